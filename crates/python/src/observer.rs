//! What is logged while a federation trains.
use std::ops::ControlFlow;

use fedeq_core::{Dropped, Error, Event, Observer, Quality, Result, View};
use fedeq_run::run::Remote;
use pyo3::prelude::*;

/// Calls `log(level, text)`.
pub(crate) struct Log {
    log: Py<PyAny>,
    rounds: u64,
    headline: View,
    /// What it raised, if it did.
    pub(crate) exception: Option<PyErr>,
}

impl Log {
    pub(crate) fn new(log: Py<PyAny>, rounds: u64, headline: View) -> Self {
        Self { log, rounds, headline, exception: None }
    }

    fn tell(&mut self, level: &str, text: &str) -> Result<()> {
        Python::attach(|py| self.log.call1(py, (level, text)).map(|_| ())).map_err(|exception| {
            let error = Error::invalid(exception.to_string(), "see the exception");
            self.exception = Some(exception);
            error
        })
    }
}

impl Observer<Remote<'_>> for Log {
    fn observe(&mut self, event: &Event<'_>, _: &mut Remote<'_>) -> Result<ControlFlow<()>> {
        match event {
            Event::Round { round, .. } => {
                let (counted, asked) = (round.cohort.len(), round.cohort.len() + round.dropped.len());
                self.tell("info", &format!("round {} of {}: {counted} of {asked} clients", round.round + 1, self.rounds))?;
            }
            Event::Evaluation { evaluation, .. } => {
                let text = accuracy(evaluation.quality(self.headline), evaluation.dropped.len(), evaluation.rounded);
                self.tell("info", &format!("after round {}: {text}", evaluation.round))?;
            }
            Event::Dropped { dropped, .. } => {
                for Dropped { client, reason } in *dropped {
                    self.tell("warning", &format!("client {client}: {reason}"))?;
                }
            }
            Event::Settled { .. } => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// How accurate the clients' models are, and of how many of those who replied this is known, or known roughly: a client may round its scores, keep them to itself, or have no test
/// samples.
fn accuracy(quality: &Quality, dropped: usize, rounded: usize) -> String {
    let known = quality.clients.iter().flatten().count();
    let unknown = quality.clients.len().saturating_sub(known + dropped);
    let mean = 100.0 * quality.mean;
    if known == 0 {
        return format!("no accuracy is known: none of {unknown} clients tells its scores");
    }
    let notes = [(unknown, "without a score"), (rounded, "with a rounded one")];
    let notes: Vec<String> =
        notes.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
    format!("accuracy {mean:.1} % over {known} clients{notes}")
}
