//! What came out of one experiment.
use fedeq_core::Result;

use crate::number::{bytes, count, percent};
use crate::run::{RunFolder, Summary, headline};

/// The headings of the [cells](Entry::cells).
pub const COLUMNS: [&str; 8] =
    ["method", "network", "accuracy", "worst tenth", "bytes sent", "parameters shared", "peak memory", "time"];

/// One method's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The run's summary.
    pub summary: Summary,
    /// Rounds that were over and the accuracy then.
    pub curve: Vec<(u64, f64)>,
}

impl Entry {
    /// Reads what a finished run wrote.
    pub fn of(folder: &RunFolder, summary: Summary) -> Result<Self> {
        let evaluations = folder.evaluations()?;
        let curve =
            evaluations.iter().map(|evaluation| (evaluation.round, headline(summary.headline, evaluation).mean)).collect();
        Ok(Self { summary, curve })
    }

    /// The method as its authors write it.
    pub fn name(&self) -> &str {
        match self.summary.method.as_str() {
            "local" => "Local",
            "fedavg" => "FedAvg",
            "fedrep" => "FedRep",
            "fedeq" => "FeDEQ",
            other => other,
        }
    }

    /// Bytes sent in both directions.
    pub fn sent(&self) -> u64 {
        self.summary.evaluation.traffic.up + self.summary.evaluation.traffic.down
    }

    /// A row of the table under the [`COLUMNS`].
    pub fn cells(&self) -> [String; COLUMNS.len()] {
        let Summary { model, shared_parameters, resources, .. } = &self.summary;
        let quality = self.summary.quality();
        [
            self.name().to_owned(),
            model.clone(),
            percent(quality.mean),
            percent(quality.worst_decile),
            if self.sent() == 0 { "nothing".into() } else { bytes(self.sent()) },
            count(*shared_parameters),
            resources.peak_memory.map_or_else(|| "unknown".into(), bytes),
            format!("{:.0} s", resources.train_seconds + resources.evaluate_seconds),
        ]
    }
}
