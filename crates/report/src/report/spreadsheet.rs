//! One line a run, for other programs.
use fedeq_core::{Error, Quality, Result};

use super::{Report, RunRecord};

const HEADING: [&str; 28] = [
    "run",
    "state",
    "method",
    "model",
    "data",
    "settings",
    "seed",
    "rounds",
    "judged_by",
    "local_mean",
    "local_weighted",
    "local_worst_decile",
    "shared_mean",
    "shared_weighted",
    "shared_worst_decile",
    "gap",
    "dual_norm",
    "bytes_up",
    "bytes_down",
    "shared_parameters",
    "personal_parameters",
    "peak_memory",
    "seconds",
    "device",
    "gpu_memory",
    "gpu_utilisation",
    "epsilon",
    "delta",
];

/// Accuracies and shares between 0 and 1, bytes, seconds; what there is not is left empty.
pub(super) fn text(report: &Report) -> Result<String> {
    let failed = |error: String| Error::invalid(format!("the table cannot be written: {error}"), "choose another format");
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(HEADING).map_err(|error| failed(error.to_string()))?;
    for line in &report.lines {
        let settings: Vec<String> = line.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        for run in line.runs(&report.runs) {
            writer.write_record(row(run, settings.join(" "))).map_err(|error| failed(error.to_string()))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}

fn row(run: &RunRecord, settings: String) -> [String; HEADING.len()] {
    let last = run.last();
    let local = |part: fn(&Quality) -> f64| number(last.map(|evaluation| part(&evaluation.local)));
    let shared = |part: fn(&Quality) -> f64| number(last.and_then(|evaluation| evaluation.shared.as_ref()).map(part));
    let used = run.device_use();
    let spent = run.rounds.last().and_then(|round| round.privacy);
    let parameters = run.summary.as_ref().map(|summary| [summary.shared_parameters, summary.personal_parameters]);
    [
        run.name(),
        format!("{:?}", run.state).to_lowercase(),
        run.experiment.method.name().into(),
        run.experiment.model.to_string(),
        run.experiment.data.source.name().into(),
        settings,
        run.experiment.seed.to_string(),
        run.round().to_string(),
        run.headline().name().into(),
        local(|quality| quality.mean),
        local(|quality| quality.weighted),
        local(|quality| quality.worst_decile),
        shared(|quality| quality.mean),
        shared(|quality| quality.weighted),
        shared(|quality| quality.worst_decile),
        number(last.map(|evaluation| evaluation.gap)),
        number(last.map(|evaluation| evaluation.dual_norm)),
        number(last.map(|evaluation| evaluation.traffic.up)),
        number(last.map(|evaluation| evaluation.traffic.down)),
        number(parameters.map(|[shared, _]| shared)),
        number(parameters.map(|[_, personal]| personal)),
        number(run.peak_memory()),
        run.seconds().to_string(),
        run.experiment.devices(),
        number(used.map(|used| used.peak_memory)),
        number(used.map(|used| used.utilisation)),
        number(spent.map(|spent| spent.epsilon)),
        number(spent.map(|spent| spent.delta)),
    ]
}

fn number<N: ToString>(number: Option<N>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}
