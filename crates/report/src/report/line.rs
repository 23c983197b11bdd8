//! Runs that differ only in their seed, as one line of a table and one curve of a figure.
use std::collections::BTreeMap;

use fedeq_core::{Evaluation, Result, Round};
use serde::Serialize;

use super::record::RunRecord;
use fedeq_run::compare::{Cluster, Contestant, clusters, division};
use fedeq_run::experiment::Experiment;
use fedeq_run::run::Timing;
use fedeq_run::statistics::{BySeed, Sample};
use fedeq_viewer::orders;

/// Runs that differ only in their seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodLine {
    /// What it is called beside the others: as little as tells it from them.
    pub name: String,
    /// The method.
    pub method: String,
    /// The model.
    pub model: String,
    /// The data set.
    pub data: String,
    /// What sets it apart from others of the same method, model and data: key and value.
    pub settings: BTreeMap<String, String>,
    /// By which number it is put in order among the lines of its method, for their shades.
    #[serde(skip)]
    pub(super) order: Option<f64>,
    /// The places of its runs in [`Report::runs`](super::Report::runs), in the order of their seeds.
    pub members: Vec<usize>,
}

/// The value of a curve at some place, over seeds.
pub(super) type Point = (f64, Sample);

/// Groups runs.
pub(super) fn lines(runs: &[RunRecord]) -> Result<Vec<MethodLine>> {
    let experiments: Vec<_> = runs.iter().map(|run| &run.experiment).collect();
    let clusters = clusters(&experiments)?;
    let orders = orders_of(&clusters, &experiments)?;
    let line = |(Cluster { names: [method, model, data], label, settings, members, .. }, order)| MethodLine {
        name: label,
        method,
        model,
        data,
        settings,
        order,
        members,
    };
    Ok(clusters.into_iter().zip(orders).map(line).collect())
}

/// By what clusters are put in order: by all settings, as on the page.
fn orders_of(clusters: &[Cluster], experiments: &[&Experiment]) -> Result<Vec<Option<f64>>> {
    let settings = clusters.iter().map(|cluster| experiments[cluster.members[0]].settings());
    let settings: Vec<BTreeMap<String, String>> = settings.collect::<Result<_>>()?;
    let lines = clusters.iter().zip(&settings).map(|(cluster, settings)| (cluster.names[0].as_str(), settings));
    Ok(orders(&lines.collect::<Vec<_>>()))
}

/// The runs of a line that can be put together: all after the same number of rounds. Those that are finished or, where none is, all that were evaluated, as far as all of them came.
pub(super) struct Pool<'a> {
    pub(super) members: Vec<PooledRun<'a>>,
    /// The rounds they have behind them.
    pub(super) round: u64,
    /// Whether these are results and no snapshots.
    pub(super) is_finished: bool,
}

/// A run as it was after the rounds of its pool.
#[derive(Clone, Copy)]
pub(super) struct PooledRun<'a> {
    pub(super) run: &'a RunRecord,
    pub(super) evaluation: &'a Evaluation,
    pub(super) timings: &'a [Timing],
}

impl<'a> PooledRun<'a> {
    fn of(run: &'a RunRecord, evaluation: &'a Evaluation) -> Self {
        let end = run.timings.partition_point(|timing| timing.round <= evaluation.round);
        Self { run, evaluation, timings: &run.timings[..end] }
    }
}

impl MethodLine {
    /// Its runs.
    pub(super) fn runs<'a>(&self, all: &'a [RunRecord]) -> Vec<&'a RunRecord> {
        self.members.iter().map(|place| &all[*place]).collect()
    }

    /// The runs that can be put together; nothing if none was evaluated yet.
    pub(super) fn pool<'a>(&self, all: &'a [RunRecord]) -> Option<Pool<'a>> {
        let evaluated: Vec<&RunRecord> = self.runs(all).into_iter().filter(|run| run.last().is_some()).collect();
        let finished: Vec<&RunRecord> = evaluated.iter().copied().filter(|run| run.is_finished()).collect();
        let (runs, is_finished) = if finished.is_empty() { (evaluated, false) } else { (finished, true) };
        let round = runs.iter().filter_map(|run| run.last()).map(|evaluation| evaluation.round).min()?;
        let members = runs.into_iter().filter_map(|run| Some(PooledRun::of(run, run.after(round)?))).collect();
        Some(Pool { members, round, is_finished })
    }

    /// Some measure after the same number of rounds, over seeds; nothing if no run has it.
    pub(super) fn at_the_end(&self, all: &[RunRecord], measure: impl Fn(&Evaluation) -> Option<f64>) -> Option<Sample> {
        self.over_runs(all, |member| measure(member.evaluation))
    }

    /// Some measure of the runs themselves, over seeds.
    pub(super) fn over_runs(&self, all: &[RunRecord], measure: impl Fn(&PooledRun<'_>) -> Option<f64>) -> Option<Sample> {
        let values: Vec<f64> = self.pool(all)?.members.iter().filter_map(measure).collect();
        (!values.is_empty()).then(|| Sample::of(values))
    }

    /// The line among others, by some measure of its finished runs.
    pub(super) fn contestant(&self, all: &[RunRecord], measure: impl Fn(&Evaluation) -> f64) -> Result<Contestant> {
        let runs = self.runs(all);
        let finished = runs.iter().filter_map(|run| Some((run.experiment.seed, &run.summary.as_ref()?.evaluation)));
        let scores: BySeed = finished.map(|(seed, evaluation)| (seed, measure(evaluation))).collect();
        let division = runs.first().map_or(Ok(String::new()), |run| division(&run.experiment))?;
        Ok(Contestant { data: self.data.clone(), division, scores })
    }

    /// Some measure of evaluations over the rounds before them.
    pub(super) fn over_evaluations(
        &self,
        all: &[RunRecord],
        measure: impl Fn(&Evaluation) -> Option<f64>,
    ) -> BTreeMap<u64, Sample> {
        let value = |evaluation: &Evaluation| Some((evaluation.round, measure(evaluation)?));
        self.gathered(all, |run: &RunRecord| run.evaluations.iter().filter_map(value).collect())
    }

    /// Some measure of rounds, counted from 1.
    pub(super) fn over_rounds(&self, all: &[RunRecord], measure: impl Fn(&Round) -> Option<f64>) -> Vec<Point> {
        let value = |round: &Round| Some((round.round + 1, measure(round)?));
        let values = |run: &RunRecord| run.rounds.iter().filter_map(value).collect::<Vec<_>>();
        self.gathered(all, values).into_iter().map(|(round, sample)| (round as f64, sample)).collect()
    }

    /// What the runs that can be put together measured, round by round, where all of them have it: a mean over fewer seeds would look like a change.
    fn gathered(&self, all: &[RunRecord], values: impl Fn(&RunRecord) -> Vec<(u64, f64)>) -> BTreeMap<u64, Sample> {
        // Before the first evaluation there are rounds to be seen, of whoever has them.
        let runs = self.pool(all).map_or_else(|| self.runs(all), |pool| pool.members.iter().map(|member| member.run).collect());
        let mut found: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (round, value) in runs.iter().flat_map(|run| values(run)) {
            found.entry(round).or_default().push(value);
        }
        let most = found.values().map(Vec::len).max().unwrap_or(0);
        found.retain(|_, values| values.len() == most);
        found.into_iter().map(|(round, values)| (round, Sample::of(values))).collect()
    }
}

/// Megabytes (1e6 bytes) sent in both directions before an evaluation.
pub(super) fn megabytes(evaluation: &Evaluation) -> f64 {
    evaluation.traffic.total() as f64 / 1e6
}
