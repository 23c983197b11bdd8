//! News as it comes in: one connection a page, by server-sent events.
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;

use super::answer::text;
use super::run_index::{Cursor, News, RunIndex};
use fedeq_run::run::Activity;

/// How long news may take to arrive.
const EVERY: Duration = Duration::from_millis(500);

/// Follows the list of runs, and some of them closely.
pub(super) fn follow(index: Arc<RunIndex>, runs: Vec<String>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let patience = index.patience;
    let runs = runs.into_iter().map(|run| (run, Followed::default())).collect();
    let reader = Reader { index, runs, list: String::new() };
    let stream = unfold((Some(reader), VecDeque::new()), |(mut reader, mut ready)| async move {
        while ready.is_empty() {
            let (back, news) = reader?.read_beside().await?;
            (reader, ready) = (Some(back), news);
            if ready.is_empty() {
                tokio::time::sleep(EVERY).await;
            }
        }
        ready.pop_front().map(|event| (Ok(event), (reader, ready)))
    });
    // More often than the patience with connections that say nothing.
    Sse::new(stream).keep_alive(KeepAlive::new().interval(patience / 4))
}

/// What one page has been told.
struct Reader {
    index: Arc<RunIndex>,
    runs: BTreeMap<String, Followed>,
    list: String,
}

#[derive(Default)]
struct Followed {
    cursor: Cursor,
    activity: Option<Activity>,
}

impl Reader {
    /// Reads files on a thread where that holds up nobody.
    async fn read_beside(mut self) -> Option<(Self, VecDeque<Event>)> {
        let reading = tokio::task::spawn_blocking(move || {
            let news = self.read();
            (self, news)
        });
        reading.await.ok()
    }

    fn read(&mut self) -> VecDeque<Event> {
        let mut events = VecDeque::new();
        let list = text(&self.index.rows());
        if list != self.list {
            events.push_back(Event::default().event("runs").data(&list));
            self.list = list;
        }
        for (run, followed) in &mut self.runs {
            let news = self.index.news(run, &mut followed.cursor);
            events.extend(news.filter(|news| followed.is_news(news)).map(|news| Event::default().event("run").data(text(&news))));
        }
        events
    }
}

impl Followed {
    fn is_news(&mut self, news: &News) -> bool {
        let before = std::mem::replace(&mut self.activity, news.activity());
        !news.is_empty() || before != self.activity
    }
}
