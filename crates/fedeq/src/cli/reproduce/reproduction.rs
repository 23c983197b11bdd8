//! One of the experiments that are asked for: its cells, and where its results and runs lie.
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result};

use fedeq_report::reproduce::{ExperimentCell, Results, ScaleName, Spec, measure, publish};
use fedeq_run::experiment::Override;
use fedeq_run::run::RunFolder;
use fedeq_run::sweep::SweepCell;

/// An experiment at a scale, and where it goes.
pub(super) struct Reproduction {
    pub(super) spec: Spec,
    pub(super) scale: ScaleName,
    /// All cells, by which results are recognised.
    pub(super) all: Vec<ExperimentCell>,
    /// Those that are wanted, in the order in which they are carried out.
    pub(super) cells: Vec<ExperimentCell>,
    /// Seeds of every cell, where a person has asked for so many.
    pub(super) seeds: Option<u64>,
    /// Where the results go.
    pub(super) out: PathBuf,
    /// Where the runs go.
    pub(super) runs: PathBuf,
    /// Where the state, if there is one, has the results.
    pub(super) state_results: Option<PathBuf>,
}

impl Reproduction {
    /// What was measured so far, here and by others whose state this is.
    pub(super) fn load(&self) -> Result<Results> {
        let load = |folder: &Path| Results::load(folder, &self.spec.name, self.scale, &self.all);
        let mut results = load(&self.out)?;
        if let Some(folder) = &self.state_results {
            results.merge(&load(folder)?, &self.all);
        }
        Ok(results)
    }

    /// How many seeds a cell has.
    pub(super) fn seeds_of(&self, cell: &ExperimentCell) -> u64 {
        self.seeds.unwrap_or(cell.seeds)
    }

    /// Every run of the wanted cells.
    pub(super) fn all_runs(&self) -> impl Iterator<Item = (&ExperimentCell, SweepCell)> {
        let of_cell = move |cell| (0..self.seeds_of(cell)).map(move |seed| (cell, cell.run(seed, &self.runs)));
        self.cells.iter().flat_map(of_cell)
    }

    /// Takes what a run measured that is finished, one of so many side by side, into the results, and writes them.
    pub(super) fn keep(&self, cell: &ExperimentCell, folder: &RunFolder, jobs: usize, results: &mut Results) -> Result<()> {
        let Some(measured) = measure(&self.spec, folder, jobs)? else { return Ok(()) };
        results.add(cell, measured);
        self.save(results)
    }

    /// Writes the results, if there are any, to their folder and to the state.
    pub(super) fn save(&self, results: &Results) -> Result<()> {
        if results.cells.is_empty() {
            return Ok(());
        }
        for folder in [Some(&self.out), self.state_results.as_ref()].into_iter().flatten() {
            std::fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
            results.save(folder)?;
        }
        Ok(())
    }

    /// Writes the results, and what is shown of them.
    pub(super) fn publish(&self, overrides: &[Override], results: &Results) -> Result<()> {
        self.save(results)?;
        publish(&self.spec, overrides, &self.out)
    }
}
