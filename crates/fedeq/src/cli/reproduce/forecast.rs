//! What would run.
use super::job::Job;
use crate::cli::cells::finished;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::{print, tell};
use crate::cli::table::{Align, Table};
use fedeq_report::reproduce::{Estimate, ExperimentCell, expected};
use fedeq_run::experiment::Device;
use fedeq_run::forecast::{Forecast, Forecaster};
use fedeq_run::number::{counted, duration};

const COLUMNS: [&str; 7] = ["cell", "method", "data", "model", "rounds", "state", "a seed, about"];

impl Job<'_> {
    /// Says what would run, how long it takes and how much disk.
    pub(super) fn describe(&self) -> Outcome<()> {
        let forecasts = self.forecasts().map_err(Failure::refused)?;
        let mut total = Estimate::default();
        for (cell, forecast) in self.cells.iter().zip(&forecasts) {
            (0..self.seeds).for_each(|seed| total.add(&cell.run(seed, &self.runs), forecast));
        }
        let mut table = Table::new(&COLUMNS.map(|name| (name, Align::Left)));
        self.cells.iter().zip(&forecasts).for_each(|(cell, forecast)| table.row(self.row(cell, forecast)));
        let (cells, seeds) = (counted(self.cells.len(), "cell"), counted(self.seeds as usize, "seed"));
        print(&format!("{}\n{cells}, {seeds}: {}\n", table.text(), total.text()))
    }

    /// What a seed of each cell takes.
    fn forecasts(&self) -> fedeq_core::Result<Vec<Forecast>> {
        let results = self.load()?;
        let is_cpu = |cell: &ExperimentCell| matches!(cell.experiment.engine.place(), Ok(Device::Cpu));
        if !self.arguments.run_args.quiet && self.cells.iter().any(is_cpu) {
            tell("measuring a batch of each network on this machine");
        }
        let mut forecaster = Forecaster::default();
        self.cells.iter().map(|cell| expected(cell, &results, &mut forecaster)).collect()
    }

    fn row(&self, cell: &ExperimentCell, forecast: &Forecast) -> [String; COLUMNS.len()] {
        let experiment = &cell.experiment;
        [
            cell.name.clone(),
            experiment.method.name().into(),
            experiment.data.source.name().into(),
            experiment.model.name().into(),
            experiment.plan.rounds.to_string(),
            self.state(cell),
            forecast.seconds.map_or_else(|| "unknown".into(), duration),
        ]
    }

    fn state(&self, cell: &ExperimentCell) -> String {
        let is_done = |seed: &u64| matches!(finished(&cell.run(*seed, &self.runs)), Ok(Some(_)));
        let done = (0..self.seeds).filter(is_done).count();
        let has_begun = (0..self.seeds).any(|seed| cell.run(seed, &self.runs).folder.exists());
        match done {
            done if done as u64 == self.seeds => "done".into(),
            0 if has_begun => "begun".into(),
            0 => "not run".into(),
            done => format!("{done} of {}", self.seeds),
        }
    }
}
