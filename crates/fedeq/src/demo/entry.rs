//! What came out of one experiment.
use crate::number::{bytes, count, percent};
use crate::report::written;
use crate::run::Summary;

/// The headings of the [cells](Entry::cells).
pub const COLUMNS: [&str; 8] =
    ["method", "network", "accuracy", "worst tenth", "bytes sent", "parameters shared", "peak memory", "time"];

/// One method's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The run's summary.
    pub summary: Summary,
}

impl Entry {
    /// The method as its authors write it.
    pub fn name(&self) -> &str {
        written(&self.summary.method)
    }

    /// Bytes sent in both directions.
    pub fn sent(&self) -> u64 {
        self.summary.evaluation.traffic.total()
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
