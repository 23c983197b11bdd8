//! What would run.
use super::job::Job;
use crate::cli::cells::finished;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::print;
use crate::cli::table::{Align, Table};
use crate::number::{counted, duration};
use crate::reproduce::{Cell, Estimate, Metric, Results};

const COLUMNS: [&str; 7] = ["cell", "method", "data", "model", "rounds", "state", "a seed"];

impl Job<'_> {
    /// Says what would run, how long it takes and how much disk, as far as that is known.
    pub(super) fn describe(&self) -> Outcome<()> {
        let results = self.load().map_err(Failure::refused)?;
        let mut total = Estimate::default();
        self.all_runs().iter().for_each(|(cell, run)| total.add(&results, &cell.name, run));
        let mut table = Table::new(&COLUMNS.map(|name| (name, Align::Left)));
        self.cells.iter().for_each(|cell| table.row(self.row(cell, &results)));
        let (cells, seeds) = (counted(self.cells.len(), "cell"), counted(self.seeds as usize, "seed"));
        print(&format!("{}\n{cells}, {seeds}: {}\n", table.text(), total.text()))
    }

    fn row(&self, cell: &Cell, results: &Results) -> [String; COLUMNS.len()] {
        let experiment = &cell.experiment;
        let seconds = results.sample(&cell.name, Metric::Seconds).map(|seconds| duration(seconds.mean));
        [
            cell.name.clone(),
            experiment.method.name().into(),
            experiment.data.source.name().into(),
            experiment.model.name().into(),
            experiment.plan.rounds.to_string(),
            self.state(cell),
            seconds.unwrap_or_else(|| "unknown".into()),
        ]
    }

    fn state(&self, cell: &Cell) -> String {
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
