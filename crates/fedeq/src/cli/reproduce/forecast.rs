//! What would run.
use std::collections::{BTreeMap, BTreeSet};

use fedeq_core::Error;

use super::job::{Job, QueuedRun, RefusedCell};
use crate::cli::cells::finished;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::{print, tell};
use crate::cli::settings::is_interrupted;
use crate::cli::table::{Align, Table};
use fedeq_report::reproduce::{Estimate, ExperimentCell, Results, expected};
use fedeq_run::experiment::{Device, DeviceKind, Experiment, Precision};
use fedeq_run::forecast::{Forecast, Forecaster, MeasuredBy, Rates};
use fedeq_run::number::{bytes, counted, duration};

const COLUMNS: [&str; 9] = ["cell", "method", "data", "model", "rounds", "state", "a seed, about", "known by", "checkpoint"];

/// What a seed of each cell takes, by the cell's identity.
type Forecasts = BTreeMap<String, Forecast>;

impl Job<'_> {
    /// Says what would run, how long it takes and how much disk.
    pub(super) fn describe(mut self) -> Outcome<()> {
        let described = self.description();
        let is_measured = self.arguments.measure;
        if let Some(state) = self.state {
            if is_measured { state.close().map(|_| ()) } else { state.leave() }.map_err(Failure::during_work)?;
        }
        print(&described?)
    }

    fn description(&mut self) -> Outcome<String> {
        let results = self.load().map_err(Failure::refused)?;
        let mut forecaster = self.forecaster().map_err(Failure::refused)?;
        let refused = self.refused(&mut forecaster);
        self.leave_out(refused).map_err(Failure::refused)?;
        if self.arguments.measure {
            self.measure(&mut forecaster).map_err(Failure::during_work)?;
        }
        let forecasts = self.forecasts(&results, &mut forecaster).map_err(Failure::refused)?;
        let mut total = Estimate::default();
        for queued in self.all_runs() {
            if self.is_done(&queued, &results) {
                total.add_done();
            } else {
                total.add(&queued.run, &forecasts[&queued.cell.identity], self.keeps_models());
            }
        }
        let mut table = Table::new(&COLUMNS.map(|name| (name, Align::Left)));
        self.all_cells().for_each(|(of, cell)| table.row(self.row(of, cell, &forecasts[&cell.identity], &results)));
        let (cells, seeds) = (counted(self.all_cells().count(), "cell"), self.seeds_in_words());
        let by_device = self.by_device(&forecasts, &mut forecaster);
        Ok(format!("{}\n{cells}, {seeds}: {}\n{by_device}", table.text(), total.text()))
    }

    /// The cells that cannot be carried out.
    fn refused(&self, forecaster: &mut Forecaster) -> Vec<RefusedCell> {
        let refusal = |(of, cell): (usize, &ExperimentCell)| {
            let error = forecaster.check(&cell.experiment).err()?;
            Some(RefusedCell { name: self.name_of(of, cell), identity: cell.identity.clone(), error })
        };
        self.all_cells().filter_map(refusal).collect()
    }

    /// The wanted cells of all experiments, each with the place of its experiment.
    fn all_cells(&self) -> impl Iterator<Item = (usize, &ExperimentCell)> {
        self.experiments.iter().enumerate().flat_map(|(of, experiment)| experiment.cells.iter().map(move |cell| (of, cell)))
    }

    fn seeds_in_words(&self) -> String {
        let seeds = || self.all_cells().map(|(of, cell)| self.experiments[of].seeds_of(cell));
        let (least, most) = (seeds().min().unwrap_or(0), seeds().max().unwrap_or(0));
        if least == most { counted(most as usize, "seed") } else { format!("{least} to {}", counted(most as usize, "seed")) }
    }

    fn forecaster(&self) -> fedeq_core::Result<Forecaster> {
        let recorded = self.state.as_ref().map(|state| Rates::load(state.path())).transpose()?;
        Forecaster::new(recorded.unwrap_or_default())
    }

    /// What a seed of each cell takes, by what is carried out.
    fn forecasts(&self, results: &[Results], forecaster: &mut Forecaster) -> fedeq_core::Result<Forecasts> {
        if !self.arguments.run_args.quiet && self.all_cells().any(|(_, cell)| is_cpu(&cell.experiment)) {
            tell("measuring a batch of each network on this machine");
        }
        let one = |(of, cell): (usize, &ExperimentCell)| Ok((cell.identity.clone(), expected(cell, &results[of], forecaster)?));
        self.all_cells().map(one).collect()
    }

    /// Two rounds of every network, data set and method, in a folder that is removed again.
    fn measure(&self, forecaster: &mut Forecaster) -> fedeq_core::Result<()> {
        let place = std::env::temp_dir().join(format!("fedeq-measure-{}", std::process::id()));
        let mut seen = BTreeSet::new();
        for (_, cell) in self.all_cells() {
            let Experiment { data, model, method, .. } = &cell.experiment;
            if seen.insert((data.source.name(), model.name(), method.name())) {
                if !self.arguments.run_args.quiet {
                    tell(&format!("measuring two rounds of {}", cell.name));
                }
                let measured = forecaster.measure(&cell.experiment, &place, &is_interrupted);
                let removed = std::fs::remove_dir_all(&place);
                measured?;
                removed.map_err(Error::io(&place, "remove it"))?;
            }
        }
        self.state.as_ref().map_or(Ok(()), |state| forecaster.recorded().save(state.path()))
    }

    /// What all cells with all seeds take on every device of which that is known.
    fn by_device(&self, forecasts: &Forecasts, forecaster: &mut Forecaster) -> String {
        let cells = || self.all_cells().map(|(of, cell)| (self.experiments[of].seeds_of(cell) as f64, cell));
        let own: f64 = cells().map(|(seeds, cell)| seeds * forecasts[&cell.identity].seconds).sum();
        let is_cpu_job = cells().all(|(_, cell)| is_cpu(&cell.experiment));
        let named = if is_cpu_job { "this CPU".to_owned() } else { named_device(forecasts) };
        let least = at_least(forecasts.values().any(|forecast| forecast.basis.is_least()));
        let mut lines = vec![format!("  {named}: {least}{}\n", duration(own))];
        for gpu in forecaster
            .gpus()
            .into_iter()
            .filter(|gpu| *gpu != named && DeviceKind::of_description(gpu) != DeviceKind::Cuda(Precision::Exact))
        {
            let times: Vec<_> =
                cells().map(|(seeds, cell)| Some((seeds, forecaster.seconds_on(&cell.experiment, &gpu)?))).collect();
            let known: f64 = times.iter().flatten().map(|(seeds, (time, _))| seeds * time).sum();
            let least = at_least(times.iter().flatten().any(|(_, (_, by))| *by == MeasuredBy::Kernels));
            let refused = times.iter().filter(|time| time.is_none()).count();
            let but = if refused == 0 {
                String::new()
            } else {
                format!(", without {} that it cannot compute", counted(refused, "cell"))
            };
            lines.push(format!("  {gpu}: {least}{}{but}\n", duration(known)));
        }
        if !is_cpu_job {
            let on_cpu = |(seeds, cell): (f64, &ExperimentCell)| {
                let mut experiment = cell.experiment.clone();
                experiment.engine.set_device(Device::Cpu);
                forecaster.forecast(&experiment).ok().map(|forecast| seeds * forecast.seconds)
            };
            let times: Option<Vec<f64>> = cells().map(on_cpu).collect();
            lines.extend(times.map(|times| format!("  this CPU: {}\n", duration(times.iter().sum()))));
        }
        let runs = counted(self.all_runs().len(), "run");
        format!("all {runs} from the beginning, by device:\n{}", lines.concat())
    }

    fn row(&self, of: usize, cell: &ExperimentCell, forecast: &Forecast, results: &[Results]) -> [String; COLUMNS.len()] {
        let experiment = &cell.experiment;
        [
            self.name_of(of, cell),
            experiment.method.name().into(),
            experiment.data.source.name().into(),
            experiment.model.name().into(),
            experiment.plan.rounds.to_string(),
            self.progress(of, cell, results),
            duration(forecast.seconds),
            forecast.basis.to_string(),
            bytes(forecast.disk.checkpoint),
        ]
    }

    /// Whether a run is finished, or the results have it.
    fn is_done(&self, queued: &QueuedRun<'_>, results: &[Results]) -> bool {
        self.is_known(queued, results) || matches!(finished(&queued.run), Ok(Some(_)))
    }

    fn progress(&self, of: usize, cell: &ExperimentCell, results: &[Results]) -> String {
        let experiment = &self.experiments[of];
        let seeds = experiment.seeds_of(cell);
        let run = |seed| QueuedRun { of, cell, run: cell.run(seed, &experiment.runs) };
        let done = (0..seeds).filter(|seed| self.is_done(&run(*seed), results)).count();
        let has_begun = (0..seeds).any(|seed| run(seed).run.folder.exists());
        match done {
            done if done as u64 == seeds => "done".into(),
            0 if has_begun => "begun".into(),
            0 => "not run".into(),
            done => format!("{done} of {seeds}"),
        }
    }
}

/// The GPU by whose rates most cells are forecast.
fn named_device(forecasts: &Forecasts) -> String {
    let mut names = forecasts.values().filter_map(|forecast| forecast.basis.device());
    names.next().map_or_else(|| "this GPU".into(), str::to_owned)
}

/// What stands before seconds that are known by kernels alone.
fn at_least(is_least: bool) -> &'static str {
    if is_least { "at least " } else { "" }
}

fn is_cpu(experiment: &Experiment) -> bool {
    matches!(experiment.engine.place(), Ok(Device::Cpu))
}
