//! `fedeq sweep --halving`: many points for a few rounds, the better ones of them further.
use std::collections::{BTreeMap, BTreeSet};

use fedeq_core::{Evaluation, View, write_atomically};
use fedeq_run::experiment::Experiment;
use fedeq_run::number::counted;
use fedeq_run::run::RunFolder;
use fedeq_run::sweep::{Halving, SweepAxis, SweepCell};

use super::cells::End;
use super::failure::{Failure, Outcome};
use super::output::tell;

/// The runs of a search, and how far they are trained.
pub(super) struct Search<'a> {
    pub(super) axes: &'a [SweepAxis],
    pub(super) cells: &'a [SweepCell],
    pub(super) halving: &'a Halving,
    pub(super) out: &'a std::path::Path,
    pub(super) quiet: bool,
}

/// A combination of values, and what became of it so far.
struct Candidate {
    /// The places of its runs.
    cells: Vec<usize>,
    /// The round until which it was trained, and how well it did then; nothing where a run of it failed.
    reached: Option<(u64, f64)>,
}

impl Search<'_> {
    /// Carries out all rungs but the last; the places of the runs that are to be trained to their end.
    pub(super) fn narrow_down(&self, carry_out: impl Fn(&[SweepCell], u64) -> Outcome<End>) -> Outcome<(BTreeSet<usize>, End)> {
        let mut candidates = self.candidates();
        let mut alive: Vec<usize> = (0..candidates.len()).collect();
        self.warn_of_test_samples();
        for (rung, &(round, _)) in self.halving.rungs.iter().enumerate() {
            let Some(&(_, next)) = self.halving.rungs.get(rung + 1) else { break };
            let places: Vec<usize> = alive.iter().flat_map(|at| candidates[*at].cells.clone()).collect();
            let ahead = places.iter().map(|place| &self.cells[*place]).filter(|cell| !is_far_enough(cell, round));
            let runs: Vec<SweepCell> = ahead.cloned().collect();
            self.say(&format!("{} until round {round}", counted(alive.len(), "point")));
            if carry_out(&runs, round)? == End::TimeIsOver {
                return Ok((BTreeSet::new(), End::TimeIsOver));
            }
            for at in &alive {
                candidates[*at].reached = self.score(&candidates[*at], round).map(|score| (round, score));
            }
            // A point that failed is worse than any other; of equals the first one stays.
            let worth = |at: &usize| candidates[*at].reached.map_or(f64::NEG_INFINITY, |(_, score)| score);
            alive.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.cmp(b)));
            alive.retain(|at| candidates[*at].reached.is_some());
            alive.truncate(next);
            self.write(&candidates, &alive)?;
            if alive.is_empty() {
                return Err(Failure::work("every point of the search failed", "try smaller learning rates, or other values"));
            }
        }
        Ok((alive.iter().flat_map(|at| candidates[*at].cells.clone()).collect(), End::AllDone))
    }

    fn candidates(&self) -> Vec<Candidate> {
        let mut by_values: Vec<(&Vec<String>, Vec<usize>)> = Vec::new();
        for (place, cell) in self.cells.iter().enumerate() {
            match by_values.iter_mut().find(|(values, _)| **values == cell.values) {
                Some((_, places)) => places.push(place),
                None => by_values.push((&cell.values, vec![place])),
            }
        }
        by_values.into_iter().map(|(_, cells)| Candidate { cells, reached: None }).collect()
    }

    /// The mean over its seeds of what points are chosen by; nothing where a run has none.
    fn score(&self, candidate: &Candidate, round: u64) -> Option<f64> {
        let scores: Option<Vec<f64>> = candidate.cells.iter().map(|place| score_of(&self.cells[*place], round)).collect();
        let scores = scores?;
        Some(scores.iter().sum::<f64>() / scores.len() as f64)
    }

    /// Who chooses by what they are evaluated by in the end learns too much from it.
    fn warn_of_test_samples(&self) {
        let has_validation = |experiment: &Experiment| experiment.data.split.validation > 0.0;
        if self.cells.iter().any(|cell| !has_validation(&cell.experiment)) {
            tell(
                "points are chosen by test samples, which makes the best of them look too good; `--set data.split.validation=0.1` sets others aside to choose by",
            );
        }
    }

    /// What is known of every point so far, for people and other programs.
    fn write(&self, candidates: &[Candidate], alive: &[usize]) -> Outcome<()> {
        let keys: Vec<&str> = self.axes.iter().map(|axis| axis.key.as_str()).collect();
        let mut lines = csv::Writer::from_writer(Vec::new());
        let written = |error: csv::Error| Failure::work(format!("cannot write `search.csv`: {error}"), "report this");
        let heading = keys.iter().copied().chain(["rounds", "score", "kept"]);
        lines.write_record(heading).map_err(written)?;
        for (at, candidate) in candidates.iter().enumerate() {
            let values = candidate.cells.first().map(|place| self.cells[*place].values.clone()).unwrap_or_default();
            let [round, score] =
                candidate.reached.map_or_else(Default::default, |(round, score)| [round.to_string(), score.to_string()]);
            lines.write_record(values.into_iter().chain([round, score, alive.contains(&at).to_string()])).map_err(written)?;
        }
        let bytes = lines.into_inner().map_err(|error| Failure::work(error.to_string(), "report this"))?;
        write_atomically(&self.out.join("search.csv"), &bytes).map_err(Failure::during_work)
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            tell(text);
        }
    }
}

fn is_far_enough(cell: &SweepCell, round: u64) -> bool {
    RunFolder::open(&cell.folder)
        .is_ok_and(|folder| folder.is_complete() || folder.kept_rounds().is_some_and(|kept| kept >= round))
}

/// How well a run did at its last evaluation up to a round: on validation samples where there are some, else on test samples by its clients' own models.
fn score_of(cell: &SweepCell, round: u64) -> Option<f64> {
    let mut last: BTreeMap<u64, Evaluation> = BTreeMap::new();
    let folder = RunFolder::open(&cell.folder).ok()?;
    folder.each_evaluation(|evaluation| drop(last.insert(evaluation.round, evaluation))).ok()?;
    let (_, evaluation) = last.range(..=round).next_back()?;
    let test = || evaluation.quality(View::Local).mean;
    let score = evaluation.validation.as_ref().map_or_else(test, |validation| validation.mean);
    score.is_finite().then_some(score)
}
