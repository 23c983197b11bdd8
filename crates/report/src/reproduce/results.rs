//! The file of numbers that everything shown is made from.
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use fedeq_core::Result;
use serde::{Deserialize, Serialize};

use super::cell::ExperimentCell;
use super::metric::Metric;
use super::spec::ScaleName;
use fedeq_run::experiment::EngineSettings;
use fedeq_run::number::counted;
use fedeq_run::run::{UsedGpu, Version, read_json, write_json};
use fedeq_run::statistics::{BySeed, Sample};

/// What came out of an experiment at one scale, as far as it was run. The same runs give the same bytes: no date stands in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// The experiment.
    pub experiment: String,
    /// The scale.
    pub scale: ScaleName,
    /// What came out, by cell.
    pub cells: BTreeMap<String, CellResult>,
}

/// What came out of a cell, over its seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// Tells what was carried out; a cell that has changed since has not been run.
    pub identity: String,
    /// Means over seeds.
    pub mean: BTreeMap<Metric, f64>,
    /// Standard deviations over seeds, where there are several.
    pub deviation: BTreeMap<Metric, f64>,
    /// One a seed, in order.
    pub runs: Vec<Measured>,
}

/// What one run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The seed.
    pub seed: u64,
    /// The round after which training ended before its plan did, since validation accuracy stood still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood_still: Option<u64>,
    /// What came out at the end: quality, seconds, memory, bytes.
    pub metrics: BTreeMap<Metric, f64>,
    /// One value an evaluation, for what is drawn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub curves: BTreeMap<Metric, Vec<f64>>,
    /// Runs that were carried out side by side with it, itself among them: each has its part of the machine, so its seconds are as many times too long.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub jobs: usize,
    /// Bytes of its run folder.
    pub disk: u64,
    /// The program and the machine.
    pub machine: Machine,
}

/// What is written of a run by itself: nothing, as of those before jobs were written.
fn alone() -> usize {
    1
}

fn is_alone(jobs: &usize) -> bool {
    *jobs <= alone()
}

impl Measured {
    /// Seconds of the whole machine: of runs side by side each has taken its part.
    pub fn machine_seconds(&self) -> Option<f64> {
        self.metrics.get(&Metric::Seconds).map(|seconds| seconds / self.jobs.max(1) as f64)
    }
}

impl Results {
    /// The file of a scale in an experiment's folder.
    pub fn path(folder: &Path, scale: ScaleName) -> PathBuf {
        folder.join(format!("results-{scale}.json"))
    }

    /// What is in an experiment's folder, without cells that are no longer what they were; nothing is there before the first run.
    pub fn load(folder: &Path, experiment: &str, scale: ScaleName, cells: &[ExperimentCell]) -> Result<Self> {
        let path = Self::path(folder, scale);
        if !path.is_file() {
            return Ok(Self { experiment: experiment.to_owned(), scale, cells: BTreeMap::new() });
        }
        let mut results: Self = read_json(&path)?;
        let is_current = |name: &str, identity: &str| cells.iter().any(|cell| cell.name == name && cell.identity == identity);
        results.cells.retain(|name, result| is_current(name, &result.identity));
        Ok(results)
    }

    /// Writes the file.
    pub fn save(&self, folder: &Path) -> Result<()> {
        write_json(&Self::path(folder, self.scale), self)
    }

    /// Takes in a run; one of the same seed is replaced.
    pub fn add(&mut self, cell: &ExperimentCell, mut run: Measured) {
        let result = self.cells.entry(cell.name.clone()).or_default();
        result.identity.clone_from(&cell.identity);
        // A run whose models were discarded since took as much disk as it took before.
        let before = result.runs.iter().filter(|known| known.seed == run.seed).map(|known| known.disk).max();
        run.disk = run.disk.max(before.unwrap_or(0));
        result.runs.retain(|known| known.seed != run.seed);
        result.runs.push(run);
        result.runs.sort_by_key(|run| run.seed);
        result.summarise();
    }

    /// Whether a cell was run with a seed.
    pub fn has(&self, cell: &ExperimentCell, seed: u64) -> bool {
        let is_same = |result: &&CellResult| result.identity == cell.identity;
        self.cells.get(&cell.name).filter(is_same).is_some_and(|result| result.runs.iter().any(|run| run.seed == seed))
    }

    /// Takes in what others measured of the same cells, seed by seed where there is nothing yet.
    pub fn merge(&mut self, others: &Self, cells: &[ExperimentCell]) {
        for cell in cells {
            let theirs = others.cells.get(&cell.name).filter(|result| result.identity == cell.identity);
            let new: Vec<Measured> =
                theirs.into_iter().flat_map(|result| &result.runs).filter(|run| !self.has(cell, run.seed)).cloned().collect();
            new.into_iter().for_each(|run| self.add(cell, run));
        }
    }

    /// A cell's metric over its seeds; nothing if it was not run or does not give it.
    pub fn sample(&self, cell: &str, metric: Metric) -> Option<Sample> {
        let result = self.cells.get(cell)?;
        let mean = *result.mean.get(&metric)?;
        Some(Sample { count: result.runs.len(), mean, deviation: result.deviation.get(&metric).copied().unwrap_or(0.0) })
    }

    /// The rounds after which runs of a cell ended early, from the first to the last; nothing where all came to the end of their plan.
    pub fn ended_early(&self, cell: &str) -> Option<[u64; 2]> {
        let runs = &self.cells.get(cell)?.runs;
        let rounds = || runs.iter().filter_map(|run| run.stood_still);
        Some([rounds().min()?, rounds().max()?])
    }

    /// A cell's metric seed by seed; nothing if it was not run or does not give it.
    pub fn by_seed(&self, cell: &str, metric: Metric) -> BySeed {
        let runs = self.cells.get(cell).map(|result| result.runs.as_slice()).unwrap_or_default();
        runs.iter().filter_map(|run| Some((run.seed, *run.metrics.get(&metric)?))).collect()
    }

    /// The most seeds that any cell has.
    pub fn seeds(&self) -> usize {
        self.cells.values().map(|cell| cell.runs.len()).max().unwrap_or(0)
    }

    /// The machines that measured, each once, in order.
    pub fn machines(&self) -> Vec<&Machine> {
        let mut machines: Vec<&Machine> = self.cells.values().flat_map(|cell| &cell.runs).map(|run| &run.machine).collect();
        machines.sort();
        machines.dedup();
        machines
    }
}

impl CellResult {
    /// Means and deviations of the metrics that every run gives.
    fn summarise(&mut self) {
        let all = |metric: &Metric| self.runs.iter().map(|run| run.metrics.get(metric).copied()).collect::<Option<Vec<f64>>>();
        let samples: Vec<(Metric, Sample)> =
            Metric::ALL.into_iter().filter_map(|metric| Some((metric, Sample::of(all(&metric)?)))).collect();
        self.mean = samples.iter().map(|(metric, sample)| (*metric, sample.mean)).collect();
        let spread = samples.iter().filter(|(_, sample)| sample.count > 1);
        self.deviation = spread.map(|(metric, sample)| (*metric, sample.deviation)).collect();
    }
}

/// The program and the machine that carried out a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Machine {
    /// The version of the program.
    pub version: String,
    /// The commit that the program was built from, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The system and its architecture.
    pub system: String,
    /// The processor, where the system tells.
    pub processor: Option<String>,
    /// Its cores, as far as the program may use them.
    pub cores: Option<usize>,
    /// The GPU, where it was computed on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<UsedGpu>,
}

impl Machine {
    /// What a run folder says.
    pub(super) fn of_run(folder: &Path) -> Result<Self> {
        Version::read(folder).map(Self::of)
    }

    /// This program on this machine, with the GPU that is asked for.
    pub(super) fn here(engine: &EngineSettings) -> Self {
        Self::of(Version { gpu: UsedGpu::of(engine).ok().flatten(), ..Version::here() })
    }

    fn of(version: Version) -> Self {
        let Version { fedeq, commit, system, architecture, processor, cores, gpu } = version;
        Self { version: fedeq, commit, system: format!("{system} {architecture}"), processor, cores, gpu }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = self.cores.map_or_else(|| "unknown cores".into(), |cores| counted(cores, "core"));
        let processor = self.processor.as_deref().unwrap_or("unknown processor");
        let gpu = self.gpu.as_ref().map(|gpu| format!("{} with ", gpu.name)).unwrap_or_default();
        write!(formatter, "{gpu}{cores} of {processor}, {}, fedeq {}", self.system, self.version)?;
        self.commit.iter().try_for_each(|commit| write!(formatter, " ({commit})"))
    }
}
