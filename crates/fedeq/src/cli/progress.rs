//! Progress of a run: a bar on a terminal, lines elsewhere.
use std::io::{IsTerminal, stderr};

use fedeq_core::{Evaluation, Event, View};
use indicatif::{ProgressBar, ProgressStyle};

use super::output::tell;
use crate::number::bytes;
use crate::run::{Brief, Watch, headline};

/// What fits where stderr goes.
pub(super) fn watch() -> Box<dyn Watch> {
    if stderr().is_terminal() { Box::new(Bar::default()) } else { Box::new(Lines::default()) }
}

/// By which model the method is judged, once the run has begun.
fn sentence(evaluation: &Evaluation, view: View) -> String {
    let quality = headline(view, evaluation);
    format!("accuracy {:.1} %, worst tenth {:.1} %", 100.0 * quality.mean, 100.0 * quality.worst_decile)
}

/// What a run is, and what memory it takes beyond its model's.
fn introduce(brief: &Brief) {
    tell(&brief.title);
    if let Some(warm) = brief.warm_bytes.filter(|warm| *warm >= WORTH_SAYING) {
        tell(&format!("warm starts: each client at work remembers up to {} of fixed points", bytes(warm)));
    }
}

/// Bytes of memory that nobody would miss.
const WORTH_SAYING: u64 = 1_000_000;

/// A bar that moves.
#[derive(Default)]
struct Bar {
    bar: Option<ProgressBar>,
    view: Option<View>,
}

impl Watch for Bar {
    fn begin(&mut self, brief: &Brief) {
        introduce(brief);
        self.view = Some(brief.headline);
        let bar = ProgressBar::new(brief.rounds).with_style(style()).with_position(brief.round);
        bar.reset_eta();
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        self.bar = Some(bar);
    }

    fn see(&mut self, event: &Event<'_>) {
        let Some(bar) = &self.bar else { return };
        match event {
            Event::Round { round, .. } => bar.set_position(round.round + 1),
            Event::Evaluation { evaluation, .. } => bar.set_message(sentence(evaluation, self.view.unwrap_or(View::Local))),
            Event::Settled { .. } => {}
        }
    }

    fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

fn style() -> ProgressStyle {
    let template = "round {pos} of {len} {bar:30} {msg} {eta} left";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A line an evaluation.
#[derive(Default)]
struct Lines {
    brief: Option<Brief>,
    loss: f64,
}

impl Watch for Lines {
    fn begin(&mut self, brief: &Brief) {
        introduce(brief);
        self.brief = Some(brief.clone());
    }

    fn see(&mut self, event: &Event<'_>) {
        match (event, &self.brief) {
            (Event::Round { round, .. }, _) => self.loss = round.loss,
            (Event::Evaluation { evaluation, .. }, Some(brief)) => {
                let result = sentence(evaluation, brief.headline);
                tell(&format!("round {} of {}: training loss {:.3}, {result}", evaluation.round, brief.rounds, self.loss));
            }
            _ => {}
        }
    }
}
