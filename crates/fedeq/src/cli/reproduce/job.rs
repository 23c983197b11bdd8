//! Carrying out experiments.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fedeq_core::Error;

use super::ReproduceCommand;
use super::reproduction::Reproduction;
use crate::cli::cells::{Attempt, Cells, End, Next, conclude, finished, require_devices};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::{print, print_json, tell};
use crate::cli::table::{Align, Table};
use fedeq_report::reproduce::{ExperimentCell, GridText, Results, legend, text_tables};
use fedeq_run::experiment::{Device, Experiment, Override};
use fedeq_run::forecast::{Forecaster, Rates};
use fedeq_run::limit::TimeLimit;
use fedeq_run::portable::PortableFolder;
use fedeq_run::present::require_present;
use fedeq_run::run::RunFolder;
use fedeq_run::sweep::SweepCell;
use serde::Serialize;

/// The experiments that are asked for, as one queue.
pub(super) struct Job<'a> {
    pub(super) arguments: &'a ReproduceCommand,
    pub(super) overrides: Vec<Override>,
    pub(super) experiments: Vec<Reproduction>,
    /// When all must have ended.
    pub(super) limit: TimeLimit,
    /// No larger checkpoint goes to other machines.
    pub(super) largest_checkpoint: Option<u64>,
    /// What goes to other machines.
    pub(super) state: Option<PortableFolder>,
}

/// A run of the queue.
pub(super) struct QueuedRun<'a> {
    /// The place of its experiment.
    pub(super) of: usize,
    pub(super) cell: &'a ExperimentCell,
    pub(super) run: SweepCell,
}

/// What a program is told of an experiment.
#[derive(Serialize)]
struct ExperimentOutput<'a> {
    /// Where its results are.
    folder: &'a Path,
    #[serde(flatten)]
    results: &'a Results,
}

/// A cell that cannot be carried out.
pub(super) struct RefusedCell {
    /// What would have been.
    pub(super) identity: String,
    pub(super) name: String,
    pub(super) error: Error,
}

/// What is forecast may take so much longer.
const CAUTION: f64 = 1.2;

impl Job<'_> {
    /// Every run: all cells of all experiments with the first seed, then all with the second, so that what is there at any time is as broad as can be. With one
    /// seed those of our method come first, then those of its nearest rivals, of whatever experiment.
    pub(super) fn all_runs(&self) -> Vec<QueuedRun<'_>> {
        let mut queue = Vec::new();
        for (of, experiment) in self.experiments.iter().enumerate() {
            queue.extend(experiment.all_runs().map(|(cell, run)| QueuedRun { of, cell, run }));
        }
        queue.sort_by_key(|queued| {
            let Experiment { seed, method, .. } = &queued.run.experiment;
            (*seed, self.experiments[queued.of].spec.rank(method.name()), queued.of)
        });
        queue
    }

    /// What was measured so far, by experiment.
    pub(super) fn load(&self) -> fedeq_core::Result<Vec<Results>> {
        self.experiments.iter().map(Reproduction::load).collect()
    }

    /// Whether a run need not be carried out, since the results have it.
    pub(super) fn is_known(&self, QueuedRun { of, cell, run }: &QueuedRun<'_>, results: &[Results]) -> bool {
        !self.arguments.again && results[*of].has(cell, run.experiment.seed)
    }

    /// What a cell is called: with the name of its experiment where there are several.
    pub(super) fn name_of(&self, of: usize, cell: &ExperimentCell) -> String {
        match &self.experiments[..] {
            [_] => cell.name.clone(),
            several => format!("{}/{}", several[of].spec.name, cell.name),
        }
    }

    /// Runs everything that is not done yet, and shows what is there.
    pub(super) fn carry_out(mut self) -> Outcome<()> {
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

    fn carry_out_all(&mut self) -> Outcome<(End, usize)> {
        let mut results = self.load().map_err(Failure::refused)?;
        self.check_ahead(&results).map_err(Failure::refused)?;
        let mut failed = 0;
        let ended = self.run_all(&mut results, &mut failed);
        // Whatever ended it, what was measured is shown.
        let published = self.publish(&results);
        let end = ended?;
        published.map_err(Failure::during_work)?;
        self.show(&results)?;
        Ok((end, failed))
    }

    /// Carries out nothing, and writes what is shown of the results that there are, here and in the state.
    pub(super) fn publish_only(self) -> Outcome<()> {
        let results = self.load().map_err(Failure::refused)?;
        self.publish(&results).map_err(Failure::during_work)?;
        self.show(&results)?;
        self.state.map_or(Ok(()), PortableFolder::leave).map_err(Failure::during_work)
    }

    fn publish(&self, results: &[Results]) -> fedeq_core::Result<()> {
        let mut each = self.experiments.iter().zip(results);
        each.try_for_each(|(experiment, results)| experiment.publish(&self.overrides, results))
    }

    /// Refuses what can be refused before anything is trained, and leaves out cells that cannot be carried out: one cell of every data set is prepared, and on
    /// a GPU, which cannot do everything, one of every network and way of training.
    fn check_ahead(&mut self, results: &[Results]) -> fedeq_core::Result<()> {
        let runs: Vec<_> = self.all_runs().into_iter().filter(|queued| !self.is_known(queued, results)).collect();
        require_devices(runs.iter().map(|queued| &queued.run).filter(|run| !matches!(finished(run), Ok(Some(_)))))?;
        let (mut seen, mut refused): (Vec<&Experiment>, Vec<RefusedCell>) = Default::default();
        for QueuedRun { of, cell, run } in runs.iter().filter(|queued| !queued.run.folder.exists()) {
            if refused.iter().any(|known| known.identity == cell.identity) {
                continue;
            }
            let experiment = &run.experiment;
            require_present(&experiment.data.source, &experiment.data.folder)?;
            let is_known = seen.iter().any(|known| is_checked_by(experiment, known));
            let checked = if is_known { experiment.check_settings() } else { experiment.prepare().map(drop) };
            match checked {
                Ok(()) => seen.push(experiment),
                Err(error) => refused.push(RefusedCell { name: self.name_of(*of, cell), identity: cell.identity.clone(), error }),
            }
        }
        self.leave_out(refused)
    }

    /// Leaves out cells that were refused, and says so; where no other is left, the first refusal is that of all.
    pub(super) fn leave_out(&mut self, refused: Vec<RefusedCell>) -> fedeq_core::Result<()> {
        let is_refused = |cell: &ExperimentCell| refused.iter().any(|known| known.identity == cell.identity);
        let all_refused = self.experiments.iter().flat_map(|experiment| &experiment.cells).all(is_refused);
        self.experiments.iter_mut().for_each(|experiment| experiment.cells.retain(|cell| !is_refused(cell)));
        for RefusedCell { name, error, .. } in refused {
            if all_refused {
                return Err(error);
            }
            tell(&format!("`{name}` is left out: {error}"));
        }
        Ok(())
    }

    fn run_all(&self, results: &mut [Results], failed: &mut usize) -> Outcome<End> {
        for Reproduction { out, .. } in &self.experiments {
            fs::create_dir_all(out).map_err(Failure::io(out, "create it"))?;
        }
        let queue = self.all_runs();
        let known: Vec<bool> = queue.iter().map(|queued| self.is_known(queued, results)).collect();
        let state = self.state.as_ref();
        let rates = state.map(|state| Rates::load(state.path())).transpose().map_err(Failure::refused)?.map(Mutex::new);
        let too_large = self.too_large(&queue, &known, rates.as_ref()).map_err(Failure::refused)?;
        let label = |index: usize| format!("run {} of {}", index + 1, queue.len());
        let begins = |index: usize| {
            let queued = &queue[index];
            self.announce(&label(index), queued);
            if known[index] {
                self.tell("already finished");
                return Ok(Next::Done);
            }
            Ok(match too_large.get(&queued.cell.identity) {
                None => Next::Begin,
                Some(seconds) if self.limit.allows(*seconds) && self.keeps_models() => Next::Begin,
                Some(seconds) if self.limit.allows(*seconds) => Next::BeginUnkept,
                Some(_) => {
                    self.tell("not begun: it would not end in time, and its checkpoint is too large to be kept");
                    Next::Later
                }
            })
        };
        let (run_args, jobs) = (&self.arguments.run_args, &self.arguments.jobs);
        let jobs_at_once = usize::from(jobs.jobs()).min(queue.len());
        let ends = |index: usize, attempt: Attempt| match attempt {
            Ok(_) => self.keep(&queue[index], jobs_at_once, results).map_err(Failure::during_work),
            Err(_) => {
                *failed += 1;
                Ok(())
            }
        };
        let runs: Vec<SweepCell> = queue.iter().map(|queued| queued.run.clone()).collect();
        let all = Cells { cells: &runs, run_args, jobs, limit: &self.limit, rates: rates.as_ref(), until: None, label: &label };
        let end = all.carry_out(begins, ends);
        if let (Some(state), Some(rates)) = (state, rates) {
            let rates = rates.into_inner().unwrap_or_else(PoisonError::into_inner);
            rates.save(state.path()).map_err(Failure::during_work)?;
        }
        end
    }

    /// The cells whose checkpoints are larger than wanted, by what is carried out, and the seconds that they take from beginning to end.
    fn too_large(
        &self,
        queue: &[QueuedRun<'_>],
        known: &[bool],
        rates: Option<&Mutex<Rates>>,
    ) -> fedeq_core::Result<BTreeMap<String, f64>> {
        let mut seconds = BTreeMap::new();
        let Some(largest) = self.largest_checkpoint else { return Ok(seconds) };
        let recorded = rates.map(|rates| rates.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default();
        let mut forecaster = Forecaster::new(recorded)?;
        for (QueuedRun { cell, .. }, _) in queue.iter().zip(known).filter(|(_, known)| !**known) {
            if !seconds.contains_key(&cell.identity) {
                let forecast = forecaster.forecast(&cell.experiment)?;
                if forecast.disk.checkpoint > largest {
                    let jobs = self.arguments.jobs.jobs() as f64;
                    seconds.insert(cell.identity.clone(), CAUTION * jobs * forecast.seconds);
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

    fn announce(&self, label: &str, QueuedRun { of, cell, run }: &QueuedRun<'_>) {
        if !self.arguments.run_args.quiet {
            tell(&format!("{label}: {}, seed {}", self.name_of(*of, cell), run.experiment.seed));
        }
    }

    /// Takes what a finished run measured, one of so many side by side, into the results.
    fn keep(&self, QueuedRun { of, cell, run }: &QueuedRun<'_>, jobs: usize, results: &mut [Results]) -> fedeq_core::Result<()> {
        let folder = RunFolder::open(&run.folder)?;
        self.experiments[*of].keep(cell, &folder, jobs, &mut results[*of])?;
        if self.keeps_models() { Ok(()) } else { folder.discard_models() }
    }

    /// Whether finished runs keep their models.
    pub(super) fn keeps_models(&self) -> bool {
        self.arguments.keep_models || (self.arguments.state.is_none() && !self.arguments.discard_models)
    }

    fn show(&self, results: &[Results]) -> Outcome<()> {
        if self.arguments.run_args.json {
            let each = self.experiments.iter().zip(results);
            let told: Vec<ExperimentOutput<'_>> =
                each.map(|(Reproduction { out, .. }, results)| ExperimentOutput { folder: out, results }).collect();
            return match &told[..] {
                [one] => print_json(one),
                several => print_json(&several),
            };
        }
        for (Reproduction { spec, out, all, .. }, results) in self.experiments.iter().zip(results) {
            let tables = text_tables(spec, all, results).map_err(Failure::during_work)?;
            let text: String = tables.iter().map(text_of).collect();
            let legend = legend(spec, all, results).map_err(Failure::during_work)?;
            let legend: String = legend.iter().map(|line| format!("{line}\n")).collect();
            print(&format!("{text}{legend}\n{}\n", out.join("README.md").display()))?;
        }
        Ok(())
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
