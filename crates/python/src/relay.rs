//! What happens in a run, told to the thread that called: Python is called there and nowhere else, so that printing, plotting and debugging work as everywhere in a program.
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender};

use fedeq_core::{Event, Observer, Result, Round};
use fedeq_run::run::{RunStart, Warnings, headline, in_words, scalars_of_evaluation, scalars_of_round};
use serde_json::{Map, Value, json};

/// What there is to tell.
pub(crate) enum Report {
    /// It begins: what it is, in lines; how many rounds are over, and how many there are.
    Start {
        /// What it is and what it will take.
        lines: Vec<String>,
        /// Rounds that are over.
        round: u64,
        /// Rounds in all.
        rounds: u64,
    },
    /// Something that a person should know.
    Warning(String),
    /// A round is over; whoever hears it says whether to stop.
    Round {
        /// Its numbers, as JSON.
        numbers: String,
        /// The evaluation after it, in words; empty where there is none.
        words: String,
    },
}

/// An observer that tells another thread, and waits for what it says to a round.
pub(crate) struct Relay {
    start: RunStart,
    reports: SyncSender<Report>,
    replies: Receiver<bool>,
    warnings: Warnings,
    numbers: Map<String, Value>,
    words: String,
}

impl Relay {
    /// Says that a run begins, with more lines before what there is to say about every run.
    pub(crate) fn begin(start: RunStart, remarks: Vec<String>, reports: SyncSender<Report>, replies: Receiver<bool>) -> Self {
        let lines = remarks.into_iter().chain(start.lines()).collect();
        // A thread that does not listen any more is noticed after the first round.
        let _ = reports.send(Report::Start { lines, round: start.round, rounds: start.rounds });
        Self { start, reports, replies, warnings: Warnings::default(), numbers: Map::new(), words: String::new() }
    }

    fn round(&mut self, round: &Round) {
        self.numbers = Map::new();
        self.words.clear();
        self.numbers.insert("round".into(), json!(round.round + 1));
        self.numbers.insert("rounds".into(), json!(self.start.rounds));
        self.add(scalars_of_round(round));
    }

    /// Names as columns have them.
    fn add(&mut self, scalars: Vec<(&'static str, f64)>) {
        self.numbers.extend(scalars.into_iter().map(|(name, value)| (column(name), json!(value))));
    }

    /// Whether to stop: whoever does not listen any more wants no more of it.
    fn settled(&mut self) -> bool {
        let numbers = Value::Object(std::mem::take(&mut self.numbers)).to_string();
        let report = Report::Round { numbers, words: std::mem::take(&mut self.words) };
        self.reports.send(report).is_err() || self.replies.recv().unwrap_or(true)
    }
}

/// The column of a number that TensorBoard knows as `local/accuracy`.
pub(crate) fn column(name: &str) -> String {
    name.replace('/', "_")
}

impl<T: ?Sized> Observer<T> for Relay {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        if let Some(text) = self.warnings.about(event) {
            let _ = self.reports.send(Report::Warning(text));
        }
        match event {
            Event::Round { round, .. } => self.round(round),
            Event::Evaluation { evaluation, .. } => {
                let quality = headline(self.start.headline, evaluation);
                self.numbers.insert("accuracy".into(), json!(quality.mean));
                self.numbers.insert("worst_decile".into(), json!(quality.worst_decile));
                self.add(scalars_of_evaluation(evaluation));
                self.words = in_words(self.start.headline, evaluation);
            }
            Event::Settled { last, .. } => {
                // After the last round there is nothing left to stop.
                if self.settled() && !last {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Event::Dropped { .. } => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}
