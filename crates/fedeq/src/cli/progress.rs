//! Progress of a run: a bar on a terminal, lines elsewhere, and warnings everywhere.
use std::io::{IsTerminal, stderr};

use fedeq_core::{Evaluation, Event, View};
use indicatif::{ProgressBar, ProgressStyle};

use super::output::tell;
use super::warnings::Warnings;
use fedeq_run::number::{bytes, duration};
use fedeq_run::run::{Resources, RunStart, Summary, Watch, headline};

/// What fits where stderr goes.
pub(super) fn watch(quiet: bool) -> Box<dyn Watch> {
    match (quiet, stderr().is_terminal()) {
        (true, _) => Box::new(Quiet::default()),
        (false, true) => Box::new(RoundBar::default()),
        (false, false) => Box::new(EvaluationLines::default()),
    }
}

/// Nothing but warnings, each with the name of its run: for runs that are carried out side by side.
pub(super) fn labelled(label: String) -> Box<dyn Watch> {
    Box::new(Quiet { label: format!("{label}: "), ..Quiet::default() })
}

/// What came out of a run, in a line.
pub(super) fn outcome(summary: &Summary) -> String {
    let Resources { train_seconds, evaluate_seconds, .. } = summary.resources;
    format!("{}, {}", sentence(&summary.evaluation, summary.headline), duration(train_seconds + evaluate_seconds))
}

/// What a run is, where it continues, and what it will take.
fn announce(start: &RunStart) {
    let RunStart { title, round, rounds, disk, warm_bytes, .. } = start;
    tell(title);
    if *round > 0 {
        tell(&format!("going on after round {round} of {rounds}"));
    }
    tell(&format!("takes up to {} of disk, {} when it is finished", bytes(disk.working), bytes(disk.finished)));
    if let Some(warm) = warm_bytes.filter(|warm| *warm >= WORTH_SAYING) {
        tell(&format!("warm starts: each client at work remembers up to {} of fixed points", bytes(warm)));
    }
}

/// No progress; only what went wrong.
#[derive(Default)]
struct Quiet {
    /// What stands before each line.
    label: String,
    warnings: Warnings,
}

impl Watch for Quiet {
    fn see(&mut self, event: &Event<'_>) {
        self.warnings.about(event).iter().for_each(|text| tell(&format!("{}{text}", self.label)));
    }
}

/// With which model the method is evaluated, once the run has begun.
fn sentence(evaluation: &Evaluation, view: View) -> String {
    let quality = headline(view, evaluation);
    format!("accuracy {:.1} %, worst tenth {:.1} %", 100.0 * quality.mean, 100.0 * quality.worst_decile)
}

/// Bytes of memory that nobody would miss.
const WORTH_SAYING: u64 = 1_000_000;

/// A bar that moves.
#[derive(Default)]
struct RoundBar {
    bar: Option<ProgressBar>,
    view: Option<View>,
    warnings: Warnings,
}

impl Watch for RoundBar {
    fn begin(&mut self, start: &RunStart) {
        announce(start);
        self.view = Some(start.headline);
        let bar = ProgressBar::new(start.rounds).with_style(style()).with_position(start.round);
        bar.reset_eta();
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        self.bar = Some(bar);
    }

    fn see(&mut self, event: &Event<'_>) {
        let Some(bar) = &self.bar else { return };
        self.warnings.about(event).iter().for_each(|text| bar.suspend(|| tell(text)));
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
struct EvaluationLines {
    start: Option<RunStart>,
    loss: f64,
    warnings: Warnings,
}

impl Watch for EvaluationLines {
    fn begin(&mut self, start: &RunStart) {
        announce(start);
        self.start = Some(start.clone());
    }

    fn see(&mut self, event: &Event<'_>) {
        self.warnings.about(event).iter().for_each(|text| tell(text));
        match (event, &self.start) {
            (Event::Round { round, .. }, _) => self.loss = round.loss,
            (Event::Evaluation { evaluation, .. }, Some(start)) => {
                let result = sentence(evaluation, start.headline);
                tell(&format!("round {} of {}: training loss {:.3}, {result}", evaluation.round, start.rounds, self.loss));
            }
            _ => {}
        }
    }
}
