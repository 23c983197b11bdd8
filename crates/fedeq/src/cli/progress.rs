//! Progress of a run: a bar on a terminal, lines elsewhere, and warnings everywhere.
use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;

use fedeq_core::{Event, Observer, Result, View};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use super::output::tell;
use fedeq_run::number::duration;
use fedeq_run::run::{Resources, RunStart, RunSummary, SimulationObserver, Warnings, in_words};

/// Says what a run is about to do, unless `--quiet` is given, and then shows how it goes: as fits where stderr goes.
pub(super) fn observer(quiet: bool, start: RunStart) -> Box<SimulationObserver<'static>> {
    if quiet {
        return Box::new(Quiet::default());
    }
    start.lines().iter().for_each(|line| tell(line));
    if stderr().is_terminal() { Box::new(RoundBar::new(&start)) } else { Box::new(EvaluationLines::new(start)) }
}

/// Nothing but warnings, each with the name of its run: for runs that are carried out side by side.
pub(super) fn labelled(label: String) -> Box<SimulationObserver<'static>> {
    Box::new(Quiet { label: format!("{label}: "), ..Quiet::default() })
}

/// What came out of a run, in a line.
pub(super) fn outcome(summary: &RunSummary) -> String {
    let Resources { train_seconds, evaluate_seconds, .. } = summary.resources;
    format!("{}, {}", in_words(summary.headline, &summary.evaluation), duration(train_seconds + evaluate_seconds))
}

/// No progress; only what went wrong.
#[derive(Default)]
struct Quiet {
    /// What stands before each line.
    label: String,
    warnings: Warnings,
}

impl<T: ?Sized> Observer<T> for Quiet {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        self.warnings.about(event).iter().for_each(|text| tell(&format!("{}{text}", self.label)));
        Ok(ControlFlow::Continue(()))
    }
}

/// A bar that moves, and stays as it is when this is dropped.
struct RoundBar {
    bar: ProgressBar,
    view: View,
    warnings: Warnings,
}

impl RoundBar {
    fn new(start: &RunStart) -> Self {
        let bar = ProgressBar::new(start.rounds).with_finish(ProgressFinish::Abandon);
        let bar = bar.with_style(style()).with_position(start.round);
        bar.reset_eta();
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        Self { bar, view: start.headline, warnings: Warnings::default() }
    }
}

impl<T: ?Sized> Observer<T> for RoundBar {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        self.warnings.about(event).iter().for_each(|text| self.bar.suspend(|| tell(text)));
        match event {
            Event::Round { round, .. } => self.bar.set_position(round.round + 1),
            Event::Evaluation { evaluation, .. } => self.bar.set_message(in_words(self.view, evaluation)),
            Event::Dropped { .. } | Event::Settled { .. } => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn style() -> ProgressStyle {
    let template = "round {pos} of {len} {bar:30} {msg} {eta} left";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A line an evaluation.
struct EvaluationLines {
    start: RunStart,
    loss: f64,
    warnings: Warnings,
}

impl EvaluationLines {
    fn new(start: RunStart) -> Self {
        Self { start, loss: 0.0, warnings: Warnings::default() }
    }
}

impl<T: ?Sized> Observer<T> for EvaluationLines {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        self.warnings.about(event).iter().for_each(|text| tell(text));
        match event {
            Event::Round { round, .. } => self.loss = round.training_loss().unwrap_or(self.loss),
            Event::Evaluation { evaluation, .. } => {
                let RunStart { rounds, headline, .. } = self.start;
                let result = in_words(headline, evaluation);
                tell(&format!("round {} of {rounds}: training loss {:.3}, {result}", evaluation.round, self.loss));
            }
            Event::Dropped { .. } | Event::Settled { .. } => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}
