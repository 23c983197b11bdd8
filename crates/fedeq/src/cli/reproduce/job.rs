//! Carrying out an experiment.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fedeq_core::Error;

use super::Arguments;
use crate::cli::cells::{Attempt, Cells, End, Next, conclude, finished, require_devices};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::{print, print_json, tell};
use crate::cli::table::{Align, Table};
use fedeq_report::reproduce::{ExperimentCell, GridText, Results, ScaleName, Spec, cells, legend, measure, publish, text_tables};
use fedeq_run::experiment::{Device, Experiment, Override};
use fedeq_run::forecast::{Forecaster, Rates};
use fedeq_run::limit::TimeLimit;
use fedeq_run::portable::PortableFolder;
use fedeq_run::run::RunFolder;
use fedeq_run::sweep::SweepCell;

/// An experiment at a scale, and where it goes.
pub(super) struct Job<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) spec: Spec,
    pub(super) scale: ScaleName,
    pub(super) overrides: Vec<Override>,
    pub(super) cells: Vec<ExperimentCell>,
    pub(super) seeds: u64,
    /// Where the results go.
    pub(super) out: PathBuf,
    /// Where the runs go.
    pub(super) runs: PathBuf,
    /// When it must have ended.
    pub(super) limit: TimeLimit,
    /// No larger checkpoint goes to other machines.
    pub(super) largest_checkpoint: Option<u64>,
    /// What goes to other machines.
    pub(super) state: Option<PortableFolder>,
}

/// What is forecast may take so much longer.
const CAUTION: f64 = 1.2;

impl Job<'_> {
    /// Every run: all cells with the first seed, then all with the second, so that what is there at any time is as broad as can be; the methods first that the experiment names.
    pub(super) fn all_runs(&self) -> Vec<(&ExperimentCell, SweepCell)> {
        let mut cells: Vec<&ExperimentCell> = self.cells.iter().collect();
        cells.sort_by_key(|cell| self.spec.rank(cell.experiment.method.name()));
        let with_seed = |seed| cells.iter().map(move |cell| (*cell, cell.run(seed, &self.runs))).collect::<Vec<_>>();
        (0..self.seeds).flat_map(with_seed).collect()
    }

    /// What was measured so far, here and by others whose state this is.
    pub(super) fn load(&self) -> fedeq_core::Result<Results> {
        let all = cells(&self.spec, self.scale, &self.overrides)?;
        let load = |folder: &Path| Results::load(folder, &self.spec.name, self.scale, &all);
        let mut results = load(&self.out)?;
        if let Some(folder) = self.state_results() {
            results.merge(&load(&folder)?, &all);
        }
        Ok(results)
    }

    /// Whether a run need not be carried out, since the results have it.
    pub(super) fn is_known(&self, cell: &ExperimentCell, run: &SweepCell, results: &Results) -> bool {
        !self.arguments.again && results.has(cell, run.experiment.seed)
    }

    /// Runs everything that is not done yet, and shows what is there.
    pub(super) fn carry_out(self) -> Outcome<()> {
        let ended = self.carry_out_all();
        if let Err(Failure::Told { code: 2, .. }) = ended {
            self.state.map_or(Ok(()), PortableFolder::leave).map_err(Failure::during_work)?;
            return ended.map(|_| ());
        }
        // Whatever else ended it, what there is to continue from is kept.
        let closed = self.close();
        let (end, failed) = ended?;
        closed?;
        conclude(end, failed, "run")
    }

    fn carry_out_all(&self) -> Outcome<(End, usize)> {
        let mut results = self.load().map_err(Failure::refused)?;
        self.check_ahead(&results).map_err(Failure::refused)?;
        let mut failed = 0;
        let ended = self.run_all(&mut results, &mut failed);
        // Whatever ended it, what was measured is shown.
        let saved = self.save(&results).and_then(|()| publish(&self.spec, &self.overrides, &self.out));
        let end = ended?;
        saved.map_err(Failure::during_work)?;
        self.show(&results)?;
        Ok((end, failed))
    }

    /// Refuses what can be refused before anything is trained: one cell of every data set is prepared, and on a GPU, which cannot do everything, one of every
    /// network and way of training.
    fn check_ahead(&self, results: &Results) -> fedeq_core::Result<()> {
        let runs: Vec<_> = self.all_runs().into_iter().filter(|(cell, run)| !self.is_known(cell, run, results)).collect();
        let ahead = || runs.iter().map(|(_, run)| run);
        require_devices(ahead().filter(|run| !matches!(finished(run), Ok(Some(_)))))?;
        let mut seen: Vec<&Experiment> = Vec::new();
        for experiment in ahead().filter(|run| !run.folder.exists()).map(|run| &run.experiment) {
            if !seen.iter().any(|known| is_checked_by(experiment, known)) {
                experiment.prepare()?;
                seen.push(experiment);
            }
        }
        Ok(())
    }

    fn run_all(&self, results: &mut Results, failed: &mut usize) -> Outcome<End> {
        fs::create_dir_all(&self.out).map_err(Failure::io(&self.out, "create it"))?;
        let (of, runs): (Vec<&ExperimentCell>, Vec<SweepCell>) = self.all_runs().into_iter().unzip();
        let known: Vec<bool> = of.iter().zip(&runs).map(|(cell, run)| self.is_known(cell, run, results)).collect();
        let state = self.state.as_ref();
        let rates = state.map(|state| Rates::load(state.path())).transpose().map_err(Failure::refused)?.map(Mutex::new);
        let too_large = self.too_large(&of, &known, rates.as_ref()).map_err(Failure::refused)?;
        let label = |index: usize| format!("run {} of {}", index + 1, runs.len());
        let begins = |index: usize| {
            self.announce(&label(index), of[index], &runs[index]);
            let is_late = || too_large.get(&of[index].name).is_some_and(|seconds| !self.limit.allows(*seconds));
            if known[index] {
                self.tell("already finished");
                Ok(Next::Done)
            } else if is_late() {
                self.tell("not begun: it would not end in time, and its checkpoint is too large to be kept");
                Ok(Next::Later)
            } else {
                Ok(Next::Begin)
            }
        };
        let ends = |index: usize, attempt: Attempt| match attempt {
            Ok(_) => self.keep(of[index], &runs[index], results).map_err(Failure::during_work),
            Err(_) => {
                *failed += 1;
                Ok(())
            }
        };
        let (run_args, jobs) = (&self.arguments.run_args, &self.arguments.jobs);
        let all = Cells { cells: &runs, run_args, jobs, limit: &self.limit, rates: rates.as_ref(), until: None, label: &label };
        let end = all.carry_out(begins, ends);
        if let (Some(state), Some(rates)) = (state, rates) {
            let rates = rates.into_inner().unwrap_or_else(PoisonError::into_inner);
            rates.save(state.path()).map_err(Failure::during_work)?;
        }
        end
    }

    /// The cells whose checkpoints are larger than wanted, and the seconds that they take from beginning to end.
    fn too_large(
        &self,
        of: &[&ExperimentCell],
        known: &[bool],
        rates: Option<&Mutex<Rates>>,
    ) -> fedeq_core::Result<BTreeMap<String, f64>> {
        let mut seconds = BTreeMap::new();
        let Some(largest) = self.largest_checkpoint else { return Ok(seconds) };
        let recorded = rates.map(|rates| rates.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default();
        let mut forecaster = Forecaster::new(recorded)?;
        for (cell, _) in of.iter().zip(known).filter(|(_, known)| !**known) {
            if !seconds.contains_key(&cell.name) {
                let forecast = forecaster.forecast(&cell.experiment)?;
                if forecast.disk.checkpoint > largest {
                    let jobs = self.arguments.jobs.jobs() as f64;
                    seconds.insert(cell.name.clone(), CAUTION * jobs * forecast.seconds);
                }
            }
        }
        Ok(seconds)
    }

    fn tell(&self, text: &str) {
        if !self.arguments.run_args.quiet {
            tell(text);
        }
    }

    fn announce(&self, label: &str, cell: &ExperimentCell, run: &SweepCell) {
        if !self.arguments.run_args.quiet {
            tell(&format!("{label}: {}, seed {}", cell.name, run.experiment.seed));
        }
    }

    /// Takes what a finished run measured into the results.
    fn keep(&self, cell: &ExperimentCell, run: &SweepCell, results: &mut Results) -> fedeq_core::Result<()> {
        let folder = RunFolder::open(&run.folder)?;
        if let Some(measured) = measure(&self.spec, &folder)? {
            results.add(cell, measured);
            self.save(results)?;
        }
        if self.keeps_models() { Ok(()) } else { folder.discard_models() }
    }

    /// Whether finished runs keep their models.
    pub(super) fn keeps_models(&self) -> bool {
        self.arguments.keep_models || (self.arguments.state.is_none() && !self.arguments.discard_models)
    }

    /// Writes the results, if there are any, to their folder and to the state.
    fn save(&self, results: &Results) -> fedeq_core::Result<()> {
        if results.cells.is_empty() {
            return Ok(());
        }
        results.save(&self.out)?;
        if let Some(folder) = self.state_results() {
            fs::create_dir_all(&folder).map_err(Error::io(&folder, "create it"))?;
            results.save(&folder)?;
        }
        Ok(())
    }

    fn show(&self, results: &Results) -> Outcome<()> {
        if self.arguments.run_args.json {
            return print_json(results);
        }
        let tables = text_tables(&self.spec, results).map_err(Failure::during_work)?;
        let text: String = tables.iter().map(text_of).collect();
        let legend: String =
            legend(&self.spec, results).map_err(Failure::during_work)?.iter().map(|line| format!("{line}\n")).collect();
        print(&format!("{text}{legend}\n{}\n", self.out.join("README.md").display()))
    }
}

/// Whether what may be refused of an experiment is refused of another one too.
fn is_checked_by(experiment: &Experiment, other: &Experiment) -> bool {
    let is_cpu = matches!(experiment.engine.place(), Ok(Device::Cpu));
    let is_alike = || experiment.model == other.model && experiment.training == other.training;
    experiment.data.source == other.data.source && (is_cpu || is_alike())
}

fn text_of(table: &GridText) -> String {
    let align = |(index, name): (usize, &'_ String)| (name.clone(), if index == 0 { Align::Left } else { Align::Right });
    let columns: Vec<(String, Align)> = table.heading.iter().enumerate().map(align).collect();
    let mut shown = Table::new(&columns.iter().map(|(name, align)| (name.as_str(), *align)).collect::<Vec<_>>());
    table.rows.iter().for_each(|row| shown.row(row.clone()));
    format!("{}\n\n{}\n", table.title, shown.text())
}
