//! News as it comes in: one connection a page, by server-sent events.
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;

use super::answer::text;
use super::run_index::RunIndex;
use fedeq_run::run::Activity;
use fedeq_viewer::news::{Cursor, News, points_each};

/// How long news may take to arrive.
const EVERY: Duration = Duration::from_millis(500);

/// Runs in one piece of news: a page draws all its charts anew for each.
const TOGETHER: usize = 500;

/// The runs that a page follows closely.
pub(super) enum Followed {
    /// All there are, also those to come.
    All,
    /// These.
    Named(Vec<String>),
}

/// Follows the list of runs, and some of them closely.
pub(super) fn follow(index: Arc<RunIndex>, followed: Followed) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let patience = index.patience;
    let reader = Reader { index, followed, told: BTreeMap::new(), list: String::new(), step: Step::List };
    let stream = unfold((Some(reader), VecDeque::new()), |(mut reader, mut ready)| async move {
        while ready.is_empty() {
            let (back, events) = reader?.read_beside().await?;
            if events.is_empty() && back.step == Step::List {
                tokio::time::sleep(EVERY).await;
            }
            (reader, ready) = (Some(back), events);
        }
        ready.pop_front().map(|event| (Ok(event), (reader, ready)))
    });
    // More often than the patience with connections that say nothing.
    Sse::new(stream).keep_alive(KeepAlive::new().interval(patience / 4))
}

/// What one page has been told.
struct Reader {
    index: Arc<RunIndex>,
    followed: Followed,
    told: BTreeMap<String, Told>,
    list: String,
    step: Step,
}

/// What is read next. The list goes out before the news of its runs are put together: a page draws the one while the other comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    List,
    News,
}

#[derive(Default)]
struct Told {
    cursor: Cursor,
    activity: Option<Activity>,
}

impl Reader {
    /// Reads files on a thread where that holds up nobody.
    async fn read_beside(mut self) -> Option<(Self, VecDeque<Event>)> {
        let reading = tokio::task::spawn_blocking(move || {
            let events = self.read();
            (self, events)
        });
        reading.await.ok()
    }

    fn read(&mut self) -> VecDeque<Event> {
        match self.step {
            Step::List => {
                self.step = Step::News;
                self.list().into_iter().collect()
            }
            Step::News => {
                self.step = Step::List;
                self.news().chunks(TOGETHER).map(|news| Event::default().event("stories").data(text(&news))).collect()
            }
        }
    }

    /// The list, if it has changed.
    fn list(&mut self) -> Option<Event> {
        let list = text(&self.index.rows());
        let is_new = list != self.list;
        self.list = list;
        is_new.then(|| Event::default().event("runs").data(&self.list))
    }

    fn news(&mut self) -> Vec<News> {
        let names = match &self.followed {
            Followed::All => self.index.names(),
            Followed::Named(names) => names.clone(),
        };
        let points = points_each(names.len());
        self.told.retain(|run, _| names.contains(run));
        let news = |run: String| {
            let told = self.told.entry(run.clone()).or_default();
            self.index.news(&run, points, &mut told.cursor).filter(|news| told.is_news(news))
        };
        names.into_iter().filter_map(news).collect()
    }
}

impl Told {
    fn is_news(&mut self, news: &News) -> bool {
        let before = std::mem::replace(&mut self.activity, news.activity());
        !news.is_empty() || before != self.activity
    }
}
