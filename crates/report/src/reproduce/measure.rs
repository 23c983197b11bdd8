//! From a run folder to numbers.
use std::collections::BTreeMap;

use fedeq_core::{Evaluation, Result, Round};

use super::metric::{Metric, Span};
use super::results::{Machine, Measured};
use super::spec::Spec;
use fedeq_run::portable::size_of;
use fedeq_run::run::{RunFolder, RunSummary, Timing};

/// What a finished run measured, which was carried out beside others, so many in all; nothing if it is not finished.
pub fn measure(spec: &Spec, folder: &RunFolder, jobs: usize) -> Result<Option<Measured>> {
    let Some(summary) = folder.summary()? else { return Ok(None) };
    let journals =
        RunJournals { evaluations: folder.evaluations()?, rounds: folder.rounds()?, timings: folder.timings()?, summary };
    Ok(Some(Measured {
        seed: journals.summary.seed,
        stood_still: journals.summary.stood_still.map(|end| end.last_round),
        metrics: journals.at_the_end(),
        curves: journals.curves(&spec.drawn()),
        jobs,
        disk: size_of(folder.path())?,
        machine: Machine::of_run(folder.path())?,
    }))
}

struct RunJournals {
    summary: RunSummary,
    evaluations: Vec<Evaluation>,
    rounds: Vec<Round>,
    timings: Vec<Timing>,
}

impl RunJournals {
    fn at_the_end(&self) -> BTreeMap<Metric, f64> {
        let whole =
            Span { summary: &self.summary, evaluation: &self.summary.evaluation, rounds: &self.rounds, timings: &self.timings };
        Metric::ALL.iter().filter_map(|&metric| Some((metric, tidy(metric.read(&whole)?)))).collect()
    }

    /// One value an evaluation; nothing for a metric that the run does not give every time.
    fn curves(&self, metrics: &[Metric]) -> BTreeMap<Metric, Vec<f64>> {
        let spans = self.spans();
        let curve = |metric: Metric| spans.iter().map(|span| metric.read(span).map(tidy)).collect::<Option<Vec<f64>>>();
        metrics.iter().filter_map(|&metric| Some((metric, curve(metric)?))).collect()
    }

    /// What was noted before each evaluation and after the one before it.
    fn spans(&self) -> Vec<Span<'_>> {
        let ends = || self.evaluations.iter().map(|evaluation| evaluation.round);
        let starts = std::iter::once(0).chain(ends());
        let span = |(evaluation, after)| self.span(evaluation, after);
        self.evaluations.iter().zip(starts).map(span).collect()
    }

    fn span<'a>(&'a self, evaluation: &'a Evaluation, after: u64) -> Span<'a> {
        Span {
            summary: &self.summary,
            evaluation,
            rounds: between(&self.rounds, after, evaluation.round, |round| round.round + 1),
            timings: between(&self.timings, after, evaluation.round, |timing| timing.round),
        }
    }
}

/// The part of a journal of which so many rounds were over: more than `after`, at most `until`.
fn between<T>(journal: &[T], after: u64, until: u64, over: fn(&T) -> u64) -> &[T] {
    let start = journal.partition_point(|line| over(line) <= after);
    let end = journal.partition_point(|line| over(line) <= until);
    &journal[start..end.max(start)]
}

/// Six digits of what is measured: what follows them is noise, and files are read by people. What is counted stays exact.
fn tidy(number: f64) -> f64 {
    if number.fract() == 0.0 { number } else { format!("{number:.5e}").parse().unwrap_or(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_of_a_journal_begin_after_the_evaluation_before() {
        let journal = [1, 2, 3, 4, 5];
        assert_eq!(between(&journal, 2, 4, |line| *line), [3, 4]);
        assert_eq!(between(&journal, 0, 9, |line| *line), journal);
        assert!(between(&journal, 4, 4, |line| *line).is_empty());
    }

    #[test]
    fn what_is_measured_keeps_six_digits_and_what_is_counted_all() {
        assert_eq!([tidy(87.123_456_789), tidy(0.000_123_456_789), tidy(1_244_708.0)], [87.1235, 0.000_123_457, 1_244_708.0]);
    }
}
