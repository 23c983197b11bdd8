//! What came out of one method, over several seeds.
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Evaluation, Method, Quality, Result, View};

use fedeq_report::report::RunRecord;
use fedeq_run::number::{bytes, count};
use fedeq_run::run::{RunFolder, Timing};
use fedeq_run::statistics::{BySeed, Sample};

/// The headings of the [cells](MethodResult::cells).
pub const COLUMNS: [&str; 9] = [
    "method",
    "network",
    "shared %",
    "local %",
    "worst tenth %",
    "bytes sent",
    "parameters shared",
    "memory a client",
    "time a seed",
];

/// What the columns mean.
pub const LEGEND: &str = "\
Accuracy on test samples, mean over clients and ± standard deviation over seeds. shared: by the server's model with the client's own head (of Local, which shares nothing, its one model);
local: by the client's own model after its last training. Worst tenth: of the clients, by shared. Memory a client: the most that the training of one client held at a time.";

/// One method's results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MethodResult {
    /// The method.
    pub method: String,
    /// The model.
    pub model: String,
    /// Accuracies with the server's model and the clients' heads.
    pub shared: BySeed,
    /// Accuracies with the clients' own models.
    pub local: BySeed,
    /// Accuracies of the worst tenth of the clients, as shared.
    pub worst: BySeed,
    /// Bytes sent in both directions, the mean over seeds.
    pub sent: u64,
    /// Shared parameters.
    pub shared_parameters: usize,
    /// The most memory that one client's work held, in bytes.
    pub client_memory: u64,
    /// Seconds of training and evaluation, the mean over seeds.
    pub seconds: f64,
    /// Bytes sent and accuracy as shared, evaluation by evaluation: means over seeds.
    pub course: Vec<(u64, f64)>,
}

impl MethodResult {
    /// What the finished runs in some folders say, one a seed.
    pub fn read(folders: &[PathBuf]) -> Result<Self> {
        let records = folders.iter().map(|folder| RunRecord::of(&RunFolder::open(folder)?)).collect::<Result<Vec<_>>>()?;
        let first = records.first().and_then(|record| record.summary.as_ref()).ok_or_else(|| unfinished(folders.first()))?;
        let evaluations: Vec<&Evaluation> = records.iter().filter_map(RunRecord::last).collect();
        let by_seed = |view: View, part: fn(&Quality) -> f64| {
            let value = |record: &RunRecord| Some((record.experiment.seed, part(record.last()?.quality(view))));
            records.iter().filter_map(value).collect::<BySeed>()
        };
        let timings = || records.iter().flat_map(|record| &record.timings);
        Ok(Self {
            method: first.method.clone(),
            model: first.model.clone(),
            shared: by_seed(View::Shared, |quality| quality.mean),
            local: by_seed(View::Local, |quality| quality.mean),
            worst: by_seed(View::Shared, |quality| quality.worst_decile),
            sent: mean(evaluations.iter().map(|evaluation| evaluation.traffic.total() as f64)) as u64,
            shared_parameters: first.shared_parameters,
            client_memory: timings().map(|timing| timing.client_memory.most()).max().unwrap_or(0),
            seconds: timings().map(Timing::seconds).sum::<f64>() / records.len() as f64,
            course: course(&records),
        })
    }

    /// The method as its authors write it.
    pub fn name(&self) -> &str {
        Method::title(&self.method)
    }

    /// A row of the table under the [`COLUMNS`].
    pub fn cells(&self) -> [String; COLUMNS.len()] {
        [
            self.name().to_owned(),
            self.model.clone(),
            percents(&self.shared),
            percents(&self.local),
            percents(&self.worst),
            if self.sent == 0 { "nothing".into() } else { bytes(self.sent) },
            count(self.shared_parameters),
            bytes(self.client_memory),
            format!("{:.1} s", self.seconds),
        ]
    }

    /// What it had sent and reached when it had first sent at least so many bytes; nothing if it never had.
    pub(super) fn after_bytes(&self, sent: u64) -> Option<(u64, f64)> {
        self.course.iter().copied().find(|(bytes, _)| *bytes >= sent)
    }
}

/// `87.0`, or `87.0 ± 2.1` over several seeds.
pub(super) fn percents(accuracies: &BySeed) -> String {
    let Sample { count, mean, deviation } = Sample::of(accuracies.values().map(|accuracy| 100.0 * accuracy));
    if count < 2 { format!("{mean:.1}") } else { format!("{mean:.1} ± {deviation:.1}") }
}

/// Evaluation by evaluation, as far as all seeds went.
fn course(records: &[RunRecord]) -> Vec<(u64, f64)> {
    let evaluations = records.iter().map(|record| record.evaluations.len()).min().unwrap_or(0);
    let at = |index: usize| {
        let over = |part: fn(&Evaluation) -> f64| mean(records.iter().map(|record| part(&record.evaluations[index])));
        (over(|evaluation| evaluation.traffic.total() as f64) as u64, over(|evaluation| evaluation.quality(View::Shared).mean))
    };
    (0..evaluations).map(at).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    Sample::of(values).mean
}

fn unfinished(folder: Option<&PathBuf>) -> Error {
    let path = folder.map_or(Path::new("").display(), |folder| folder.display());
    Error::invalid(format!("`{path}` is not finished"), format!("finish it with `fedeq resume {path}`"))
}
