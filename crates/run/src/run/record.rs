//! What is written down as it happens: rounds, evaluations, timings, the table for other programs and TensorBoard's files.
use std::ops::ControlFlow;
use std::path::PathBuf;

use fedeq_core::{
    ClientTask, Dropped, Evaluation, Event, FixedPoints, Observer, PhaseBytes, PrivacySpent, Quality, Result, Round,
    RoundSeconds, TheorySums,
};
use serde::{Deserialize, Serialize};

use super::control::PauseGate;
use super::engine::DeviceUse;
use super::folder::RunFolder;
use super::journal::Journal;
use super::tensorboard::EventFile;

/// Writes rounds, evaluations, timings, the table and TensorBoard's files.
pub(super) struct Recorder<'a> {
    /// Knows how long the run was paused, which is no time of its work.
    gate: &'a PauseGate,
    /// Says what a GPU held and did.
    device_use: &'a dyn Fn() -> Option<DeviceUse>,
    /// Whether the process does nothing but this run, so that its memory is the run's.
    is_alone: bool,
    rounds: Journal,
    evaluations: Journal,
    timings: Journal,
    table: Journal,
    /// Opened when the first client fails: no simulation has this one.
    failures: PathBuf,
    events: EventFile,
    timing: Timing,
    /// The round that an evaluation follows.
    last: Round,
}

impl<'a> Recorder<'a> {
    /// Continues after so many rounds. The journals have been cut back already.
    pub(super) fn open(
        folder: &RunFolder,
        after: u64,
        gate: &'a PauseGate,
        device_use: &'a dyn Fn() -> Option<DeviceUse>,
        is_alone: bool,
    ) -> Result<Self> {
        let mut table = Journal::open(folder.table_file())?;
        if table.is_empty()? {
            table.line(HEADING)?;
        }
        Ok(Self {
            gate,
            device_use,
            is_alone,
            rounds: Journal::open(folder.rounds_file())?,
            evaluations: Journal::open(folder.evaluations_file())?,
            timings: Journal::open(folder.timings_file())?,
            table,
            failures: folder.failures_file(),
            events: EventFile::create(&folder.tensorboard(), after)?,
            timing: Timing::default(),
            last: Round::default(),
        })
    }

    fn evaluation(&mut self, evaluation: &Evaluation) -> Result<()> {
        self.evaluations.json(evaluation)?;
        self.table.line(&row(evaluation, &self.last))?;
        self.events.scalars(evaluation.round, &scalars_of_evaluation(evaluation))
    }
}

impl<T: ?Sized> Observer<T> for Recorder<'_> {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        match event {
            Event::Round { round, seconds } => {
                self.timing = Timing::of_round(round.round + 1, seconds);
                self.timing.train -= self.gate.take_waited();
                self.rounds.json(round)?;
                self.events.scalars(round.round + 1, &scalars_of_round(round))?;
                self.last = (*round).clone();
            }
            Event::Evaluation { evaluation, seconds } => {
                self.timing.evaluate = seconds - self.gate.take_waited();
                self.evaluation(evaluation)?;
            }
            Event::Dropped { round, task, dropped } => {
                let mut failures = Journal::open(self.failures.clone())?;
                dropped.iter().try_for_each(|dropped| failures.json(&FailedReply::of(*round, *task, dropped)))?;
            }
            Event::Settled { .. } => {
                self.timing.peak_memory = if self.is_alone { peak_memory() } else { None };
                self.timing.device = (self.device_use)();
                self.timings.json(&self.timing)?;
                self.events.scalars(self.timing.round, &scalars_of_timing(&self.timing))?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// One line of `failures.jsonl`: a client whose reply did not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedReply {
    /// Rounds that were over.
    pub round: u64,
    /// What it was asked to do; nothing where it was not asked for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<ClientTask>,
    /// Which client.
    pub client: usize,
    /// Why.
    pub reason: String,
    /// The node that replied in place of the client's own, where that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl FailedReply {
    fn of(round: u64, task: ClientTask, dropped: &Dropped) -> Self {
        let Dropped { client, reason } = dropped.clone();
        Self { round, task: Some(task), client, reason, node: None }
    }
}

/// Every number that TensorBoard gets of a run, with its round and its name.
pub fn scalars(folder: &RunFolder) -> Result<Vec<(u64, String, f64)>> {
    let mut found = Vec::new();
    let mut add = |round: u64, scalars: Vec<(&str, f64)>| {
        found.extend(scalars.into_iter().map(|(name, value)| (round, name.to_owned(), value)));
    };
    folder.each_round(|round| add(round.round + 1, scalars_of_round(&round)))?;
    folder.each_evaluation(|evaluation| add(evaluation.round, scalars_of_evaluation(&evaluation)))?;
    folder.timings()?.iter().for_each(|timing| add(timing.round, scalars_of_timing(timing)));
    Ok(found)
}

/// The numbers that TensorBoard gets of a round.
pub fn scalars_of_round(round: &Round) -> Vec<(&'static str, f64)> {
    let mut scalars = Vec::new();
    scalars.extend(round.training_loss().map(|loss| ("train/loss", loss)));
    scalars.extend(round.cohort_gap().map(|gap| ("train/gap", gap)));
    scalars.extend(round.rho.map(|rho| ("train/rho", rho)));
    if let Some([steps, residual, unconverged]) = round.solves.means() {
        scalars.extend([("solver/steps", steps), ("solver/residual", residual), ("solver/unconverged", unconverged)]);
        scalars.extend(round.solves.warm_share().map(|share| ("solver/warm", share)));
    }
    if let Some(last) = round.arrivals.last() {
        let sum: u64 = round.arrivals.iter().map(|arrival| arrival.staleness).sum();
        scalars.push(("asynchronous/time", last.time as f64));
        scalars.push(("asynchronous/staleness", sum as f64 / round.arrivals.len() as f64));
    }
    if let Some(PrivacySpent { epsilon, clip, deviation, .. }) = round.privacy {
        scalars.extend([("privacy/epsilon", epsilon), ("privacy/clip", clip), ("privacy/deviation", deviation)]);
    }
    if let Some(apart) = round.distance_summary() {
        scalars.extend([("aggregation/norm", apart.norm), ("aggregation/norm_largest", apart.largest_norm)]);
        scalars.extend([("aggregation/distance", apart.distance), ("aggregation/distance_largest", apart.largest_distance)]);
        scalars.extend([("aggregation/outliers", apart.outliers as f64), ("aggregation/clipped", apart.clipped as f64)]);
        scalars.push(("aggregation/left_out", apart.left_out as f64));
    }
    scalars.extend(round.bound.map(|bound| ("aggregation/bound", bound)));
    scalars.extend([("traffic/up", round.traffic.up as f64), ("traffic/down", round.traffic.down as f64)]);
    scalars
}

/// The numbers that TensorBoard gets of an evaluation.
pub fn scalars_of_evaluation(evaluation: &Evaluation) -> Vec<(&'static str, f64)> {
    let mut scalars: Vec<(&str, f64)> = LOCAL.into_iter().zip(qualities(&evaluation.local)).collect();
    if let Some(shared) = &evaluation.shared {
        scalars.extend(SHARED.into_iter().zip(qualities(shared)));
    }
    scalars.extend(evaluation.validation.as_ref().map(|quality| ("validation/accuracy", quality.mean)));
    scalars.extend([("consensus/gap", evaluation.gap), ("consensus/dual_norm", evaluation.dual_norm)]);
    if let Some(theory) = &evaluation.theory {
        scalars.push(("consensus/lagrangian", theory.lagrangian));
        scalars.push(("consensus/stationarity", theory.stationarity));
        scalars.push(("consensus/head_gradient", theory.head_gradient));
    }
    if let Some((found, shares)) = evaluation.fixed_points.as_ref().and_then(|found| Some((found, found.shares()?))) {
        scalars.extend(FIXED_POINTS.into_iter().zip(shares));
        scalars.push(("fixed_points/distance", found.distance));
        scalars.extend(found.mean_radius().map(|mean| ("fixed_points/spectral_radius", mean)));
        scalars.push(("fixed_points/spectral_radius_largest", found.largest_radius));
    }
    scalars
}

const FIXED_POINTS: [&str; 4] =
    ["fixed_points/several", "fixed_points/answers_differ", "fixed_points/unsettled", "fixed_points/unstable"];

const LOCAL: [&str; 6] =
    ["local/accuracy", "local/accuracy_weighted", "local/worst_decile", "local/deviation", "local/loss", "local/loss_weighted"];

const SHARED: [&str; 6] = [
    "shared/accuracy",
    "shared/accuracy_weighted",
    "shared/worst_decile",
    "shared/deviation",
    "shared/loss",
    "shared/loss_weighted",
];

fn qualities(quality: &Quality) -> [f64; 6] {
    [quality.mean, quality.weighted, quality.worst_decile, quality.deviation, quality.mean_loss, quality.loss]
}

fn scalars_of_timing(timing: &Timing) -> Vec<(&'static str, f64)> {
    let Timing { train, solve, backward, update, server, communicate, evaluate, peak_memory, device, .. } = timing;
    let mut scalars = vec![
        ("seconds/train", *train),
        ("seconds/solve", *solve),
        ("seconds/backward", *backward),
        ("seconds/update", *update),
        ("seconds/server", *server),
        ("seconds/communicate", *communicate),
        ("seconds/evaluate", *evaluate),
    ];
    scalars.extend(peak_memory.map(|bytes| ("memory/peak", bytes as f64)));
    if let Some(DeviceUse { memory, peak_memory, utilisation }) = device {
        scalars.extend([("device/memory", *memory as f64), ("device/peak_memory", *peak_memory as f64)]);
        scalars.push(("device/utilisation", *utilisation));
    }
    scalars
}

/// One line of `timings.jsonl`: a round and, where there was one, the evaluation after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Rounds that were over.
    pub round: u64,
    /// Seconds of the round from beginning to end.
    pub train: f64,
    /// Seconds of forward passes, summed over clients, which may have worked side by side.
    pub solve: f64,
    /// Seconds of backward passes, summed over clients.
    pub backward: f64,
    /// Seconds of parameter updates, summed over clients.
    pub update: f64,
    /// Seconds of the server's own step.
    pub server: f64,
    /// Seconds of writing, sending and reading messages, summed over clients.
    #[serde(default)]
    pub communicate: f64,
    /// Seconds of the evaluation.
    pub evaluate: f64,
    /// The most memory the local work of one client held, in bytes: parameters, gradients and all tensors on the way.
    #[serde(default)]
    pub client_memory: PhaseBytes,
    /// The most memory the process has held so far, in bytes, where the system tells and the process does nothing but this run.
    pub peak_memory: Option<u64>,
    /// What a GPU held and did; nothing on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceUse>,
}

impl Timing {
    /// Seconds of the round and of the evaluation after it.
    pub fn seconds(&self) -> f64 {
        self.train + self.evaluate
    }

    /// Adds those of a later round: seconds add up, and of memory the most counts.
    pub fn add(&mut self, later: &Self) {
        let Self { round, train, solve, backward, update, server, communicate, evaluate, client_memory, peak_memory, device } =
            later;
        self.device = DeviceUse::joined(self.device, self.seconds(), *device, later.seconds());
        self.round = *round;
        self.train += train;
        self.solve += solve;
        self.backward += backward;
        self.update += update;
        self.server += server;
        self.communicate += communicate;
        self.evaluate += evaluate;
        self.client_memory = self.client_memory.or_more(client_memory);
        self.peak_memory = self.peak_memory.max(*peak_memory);
    }

    /// The timing of a round.
    fn of_round(round: u64, seconds: &RoundSeconds) -> Self {
        let RoundSeconds { total, local, memory, server, communicate } = seconds;
        Self {
            round,
            train: *total,
            solve: local.solve,
            backward: local.backward,
            update: local.update,
            server: *server,
            communicate: *communicate,
            client_memory: *memory,
            ..Self::default()
        }
    }
}

/// The most memory this process has held, in bytes; nothing where the system does not tell.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| 1024 * kibibytes)
}

/// The first line of `metrics.csv`.
const HEADING: &str = "round,\
local_mean,local_weighted,local_worst_decile,local_deviation,local_mean_loss,local_weighted_loss,\
shared_mean,shared_weighted,shared_worst_decile,shared_deviation,shared_mean_loss,shared_weighted_loss,\
validation_mean,untrained,gap,dual_norm,lagrangian,stationarity,head_gradient,bytes_up,bytes_down,\
train_loss,solver_steps,solver_residual,solver_unconverged,solver_warm,\
fixed_points_several,fixed_points_answers_differ,fixed_points_unsettled,fixed_points_unstable,\
fixed_points_distance,spectral_radius,spectral_radius_largest";

/// An evaluation, and the round before it, as a line of the table; what there is not is left empty.
fn row(evaluation: &Evaluation, before: &Round) -> String {
    let Evaluation {
        round,
        local,
        shared,
        validation,
        untrained,
        gap,
        dual_norm,
        theory,
        fixed_points,
        traffic,
        rounded: _,
        dropped: _,
        stood_still: _,
    } = evaluation;
    let mut cells = vec![round.to_string()];
    cells.extend(numbers(Some(qualities(local))));
    cells.extend(numbers(shared.as_ref().map(qualities)));
    cells.extend(numbers(validation.as_ref().map(|quality| [quality.mean])));
    cells.push(untrained.to_string());
    cells.extend(numbers(Some([*gap, *dual_norm])));
    cells.extend(numbers(theory.as_ref().map(sums)));
    cells.extend([traffic.up.to_string(), traffic.down.to_string()]);
    cells.extend(numbers(before.training_loss().map(|loss| [loss])));
    cells.extend(numbers(before.solves.means()));
    cells.extend(numbers(before.solves.warm_share().map(|share| [share])));
    cells.extend(numbers(fixed_points.as_ref().and_then(FixedPoints::shares)));
    cells.extend(numbers(fixed_points.as_ref().and_then(distance_and_radii)));
    cells.join(",")
}

fn sums(theory: &TheorySums) -> [f64; 3] {
    [theory.lagrangian, theory.stationarity, theory.head_gradient]
}

fn distance_and_radii(found: &FixedPoints) -> Option<[f64; 3]> {
    found.mean_radius().map(|mean| [found.distance, mean, found.largest_radius])
}

fn numbers<const N: usize>(numbers: Option<[f64; N]>) -> [String; N] {
    numbers.map_or_else(|| [const { String::new() }; N], |numbers| numbers.map(|number| number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_as_many_columns_as_the_heading() {
        let columns = HEADING.split(',').count();
        let alone = Evaluation::default();
        let quality = Some(Quality::default());
        let theory = Some(TheorySums::default());
        let fixed_points = Some(FixedPoints { samples: 1, ..FixedPoints::default() });
        let whole = Evaluation { shared: quality.clone(), validation: quality, theory, fixed_points, ..alone.clone() };
        let count = |evaluation: &Evaluation| row(evaluation, &Round::default()).split(',').count();
        assert!([alone, whole].iter().all(|evaluation| count(evaluation) == columns));
    }
}
