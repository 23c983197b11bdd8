//! What is logged while a federation trains.
use std::ops::ControlFlow;

use fedeq_core::{Dropped, Error, Event, Observer, Result, View};
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
                let accuracy = 100.0 * evaluation.quality(self.headline).mean;
                let clients = evaluation.local.clients.len() - evaluation.dropped.len();
                self.tell("info", &format!("after round {}: accuracy {accuracy:.1} % over {clients} clients", evaluation.round))?;
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
