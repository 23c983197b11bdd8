//! What would run.
use std::collections::BTreeSet;

use fedeq_core::Error;

use super::job::Job;
use crate::cli::cells::finished;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::{print, tell};
use crate::cli::settings::is_interrupted;
use crate::cli::table::{Align, Table};
use fedeq_report::reproduce::{Estimate, ExperimentCell, Results, expected};
use fedeq_run::experiment::{Device, Experiment};
use fedeq_run::forecast::{Forecast, Forecaster, MeasuredBy, Rates};
use fedeq_run::number::{bytes, counted, duration};

const COLUMNS: [&str; 9] = ["cell", "method", "data", "model", "rounds", "state", "a seed, about", "known by", "checkpoint"];

impl Job<'_> {
    /// Says what would run, how long it takes and how much disk.
    pub(super) fn describe(self) -> Outcome<()> {
        let described = self.description();
        let is_measured = self.arguments.measure;
        if let Some(state) = self.state {
            if is_measured { state.close().map(|_| ()) } else { state.leave() }.map_err(Failure::during_work)?;
        }
        print(&described?)
    }

    fn description(&self) -> Outcome<String> {
        let results = self.load().map_err(Failure::refused)?;
        let mut forecaster = self.forecaster().map_err(Failure::refused)?;
        if self.arguments.measure {
            self.measure(&mut forecaster).map_err(Failure::during_work)?;
        }
        let forecasts = self.forecasts(&results, &mut forecaster).map_err(Failure::refused)?;
        let mut total = Estimate::default();
        for (cell, forecast) in self.cells.iter().zip(&forecasts) {
            for seed in 0..self.seeds {
                if self.is_done(cell, seed, &results) {
                    total.add_done();
                } else {
                    total.add(&cell.run(seed, &self.runs), forecast, self.keeps_models());
                }
            }
        }
        let mut table = Table::new(&COLUMNS.map(|name| (name, Align::Left)));
        self.cells.iter().zip(&forecasts).for_each(|(cell, forecast)| table.row(self.row(cell, forecast, &results)));
        let (cells, seeds) = (counted(self.cells.len(), "cell"), counted(self.seeds as usize, "seed"));
        let by_device = self.by_device(&forecasts, &mut forecaster);
        Ok(format!("{}\n{cells}, {seeds}: {}\n{by_device}", table.text(), total.text()))
    }

    fn forecaster(&self) -> fedeq_core::Result<Forecaster> {
        let recorded = self.state.as_ref().map(|state| Rates::load(state.path())).transpose()?;
        Forecaster::new(recorded.unwrap_or_default())
    }

    /// What a seed of each cell takes.
    fn forecasts(&self, results: &Results, forecaster: &mut Forecaster) -> fedeq_core::Result<Vec<Forecast>> {
        if !self.arguments.run_args.quiet && self.cells.iter().any(|cell| is_cpu(&cell.experiment)) {
            tell("measuring a batch of each network on this machine");
        }
        self.cells.iter().map(|cell| expected(cell, results, forecaster)).collect()
    }

    /// Two rounds of every network, data set and method, in a folder that is removed again.
    fn measure(&self, forecaster: &mut Forecaster) -> fedeq_core::Result<()> {
        let place = std::env::temp_dir().join(format!("fedeq-measure-{}", std::process::id()));
        let mut seen = BTreeSet::new();
        for cell in &self.cells {
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
    fn by_device(&self, forecasts: &[Forecast], forecaster: &mut Forecaster) -> String {
        let seeds = self.seeds as f64;
        let own: f64 = forecasts.iter().map(|forecast| seeds * forecast.seconds).sum();
        let is_cpu_job = self.cells.iter().all(|cell| is_cpu(&cell.experiment));
        let named = if is_cpu_job { "this CPU".to_owned() } else { self.named_device(forecasts) };
        let least = at_least(forecasts.iter().any(|forecast| forecast.basis.is_least()));
        let mut lines = vec![format!("  {named}: {least}{}\n", duration(own))];
        for gpu in forecaster.gpus().into_iter().filter(|gpu| *gpu != named && !gpu.ends_with("(exact)")) {
            let times: Vec<_> = self.cells.iter().map(|cell| forecaster.seconds_on(&cell.experiment, &gpu)).collect();
            let known: f64 = times.iter().flatten().map(|(time, _)| seeds * time).sum();
            let least = at_least(times.iter().flatten().any(|(_, by)| *by == MeasuredBy::Kernels));
            let refused = times.iter().filter(|time| time.is_none()).count();
            let but = if refused == 0 {
                String::new()
            } else {
                format!(", without {} that it cannot compute", counted(refused, "cell"))
            };
            lines.push(format!("  {gpu}: {least}{}{but}\n", duration(known)));
        }
        if !is_cpu_job {
            let on_cpu = |cell: &ExperimentCell| {
                let mut experiment = cell.experiment.clone();
                experiment.engine.set_device(Device::Cpu);
                forecaster.forecast(&experiment).ok().map(|forecast| seeds * forecast.seconds)
            };
            let times: Option<Vec<f64>> = self.cells.iter().map(on_cpu).collect();
            lines.extend(times.map(|times| format!("  this CPU: {}\n", duration(times.iter().sum()))));
        }
        format!(
            "all {} from the beginning, by device:\n{}",
            counted(self.cells.len() * self.seeds as usize, "run"),
            lines.concat()
        )
    }

    /// The GPU by whose rates most cells are forecast.
    fn named_device(&self, forecasts: &[Forecast]) -> String {
        let mut names = forecasts.iter().filter_map(|forecast| forecast.basis.device());
        names.next().map_or_else(|| "this GPU".into(), str::to_owned)
    }

    fn row(&self, cell: &ExperimentCell, forecast: &Forecast, results: &Results) -> [String; COLUMNS.len()] {
        let experiment = &cell.experiment;
        [
            cell.name.clone(),
            experiment.method.name().into(),
            experiment.data.source.name().into(),
            experiment.model.name().into(),
            experiment.plan.rounds.to_string(),
            self.progress(cell, results),
            duration(forecast.seconds),
            forecast.basis.to_string(),
            bytes(forecast.disk.checkpoint),
        ]
    }

    /// Whether a run is finished, or the results have it.
    fn is_done(&self, cell: &ExperimentCell, seed: u64, results: &Results) -> bool {
        let run = cell.run(seed, &self.runs);
        self.is_known(cell, &run, results) || matches!(finished(&run), Ok(Some(_)))
    }

    fn progress(&self, cell: &ExperimentCell, results: &Results) -> String {
        let done = (0..self.seeds).filter(|seed| self.is_done(cell, *seed, results)).count();
        let has_begun = (0..self.seeds).any(|seed| cell.run(seed, &self.runs).folder.exists());
        match done {
            done if done as u64 == self.seeds => "done".into(),
            0 if has_begun => "begun".into(),
            0 => "not run".into(),
            done => format!("{done} of {}", self.seeds),
        }
    }
}

/// What stands before seconds that are known by kernels alone.
fn at_least(is_least: bool) -> &'static str {
    if is_least { "at least " } else { "" }
}

fn is_cpu(experiment: &Experiment) -> bool {
    matches!(experiment.engine.place(), Ok(Device::Cpu))
}
