//! What runs wrote down, for programs that people track experiments with: MLflow and Weights & Biases. (TensorBoard reads run folders as they are.)
//!
//! A folder is read as it stands, finished or not; exported again later it also has what came since.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fedeq_core::{Error, Result, fingerprint, write_atomically};
use serde_json::{Value as Json, json};

use crate::run::{RunFolder, RunState, scalars};

/// What a run wrote down.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLog {
    /// The name of its folder.
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
    /// Tells it from other runs, and is the same whenever it is read.
    pub id: String,
    /// How it stands.
    pub state: RunState,
    /// Every setting, by its dotted path.
    pub settings: BTreeMap<String, String>,
    /// Numbers by their names.
    pub metrics: BTreeMap<String, Vec<LoggedNumber>>,
    /// When it began and when it last wrote something, in milliseconds since 1970.
    pub times: [u64; 2],
}

/// A number after a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoggedNumber {
    /// Rounds that were over.
    pub round: u64,
    /// The number.
    pub value: f64,
    /// About when, in milliseconds since 1970: by the seconds that rounds took.
    pub time: u64,
}

impl RunLog {
    /// Reads a run folder.
    pub fn read(folder: &RunFolder) -> Result<Self> {
        let experiment = folder.experiment()?;
        let mut settings = experiment.settings()?;
        settings.insert("seed".into(), experiment.seed.to_string());
        let begun = modified(&folder.path().join("experiment.toml")).unwrap_or_default();
        let mut clock: BTreeMap<u64, u64> = BTreeMap::new();
        let mut seconds = 0.0;
        for timing in folder.timings()? {
            seconds += timing.seconds();
            clock.insert(timing.round, begun + (1e3 * seconds) as u64);
        }
        let time = |round: u64| clock.range(..=round).next_back().map_or(begun, |(_, time)| *time);
        let mut metrics: BTreeMap<String, Vec<LoggedNumber>> = BTreeMap::new();
        for (round, name, value) in scalars(folder)? {
            if value.is_finite() {
                metrics.entry(name).or_default().push(LoggedNumber { round, value, time: time(round) });
            }
        }
        let name = folder.path().file_name().map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned());
        let id = fingerprint(format!("{name} {}", experiment.identity()?).as_bytes()).chars().take(32).collect();
        let ended = clock.values().next_back().copied().unwrap_or(begun);
        Ok(Self { title: experiment.title(), id, state: folder.state()?, settings, metrics, times: [begun, ended], name })
    }
}

fn modified(path: &Path) -> Option<u64> {
    let time: SystemTime = fs::metadata(path).ok()?.modified().ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_millis() as u64)
}

/// Writes runs as MLflow's file store: `mlflow ui --backend-store-uri DIR`.
pub fn write_mlflow(runs: &[RunLog], out: &Path, experiment: &str) -> Result<()> {
    let id = mlflow_id(experiment);
    let folder = out.join(&id);
    let begun = runs.iter().map(|run| run.times[0]).min().unwrap_or_default();
    let place = yaml(&absolute(&folder));
    let meta = format!(
        "artifact_location: {place}\ncreation_time: {begun}\nexperiment_id: '{id}'\nlast_update_time: {begun}\nlifecycle_stage: active\nname: {}\n",
        yaml(experiment)
    );
    write(&folder.join("meta.yaml"), &meta)?;
    runs.iter().try_for_each(|run| write_mlflow_run(run, &folder, &id))
}

fn write_mlflow_run(run: &RunLog, experiment: &Path, experiment_id: &str) -> Result<()> {
    let folder = experiment.join(&run.id);
    let [begun, ended] = run.times;
    // MLflow's numbers: running, finished, failed and killed.
    let (status, ended) = match run.state {
        RunState::Running | RunState::Paused => (1, "null".to_owned()),
        RunState::Finished => (3, ended.to_string()),
        RunState::Failed | RunState::Malformed => (4, ended.to_string()),
        RunState::Stopped | RunState::Killed => (5, ended.to_string()),
    };
    let meta = format!(
        "artifact_uri: {}\nend_time: {ended}\nentry_point_name: ''\nexperiment_id: '{experiment_id}'\nlifecycle_stage: active\nrun_id: {id}\nrun_name: {name}\nrun_uuid: {id}\n\
         source_name: fedeq\nsource_type: 4\nsource_version: ''\nstart_time: {begun}\nstatus: {status}\ntags: []\nuser_id: fedeq\n",
        yaml(&format!("{}/artifacts", absolute(&folder))),
        id = run.id,
        name = yaml(&run.name)
    );
    write(&folder.join("meta.yaml"), &meta)?;
    let artifacts = folder.join("artifacts");
    fs::create_dir_all(&artifacts).map_err(Error::io(&artifacts, "create it"))?;
    for (key, value) in &run.settings {
        write(&folder.join("params").join(key), value.trim_matches('"'))?;
    }
    for (key, value) in [("mlflow.runName", &run.name), ("mlflow.note.content", &run.title)] {
        write(&folder.join("tags").join(key), value)?;
    }
    for (name, all) in &run.metrics {
        let lines: String = all.iter().map(|LoggedNumber { round, value, time }| format!("{time} {value} {round}\n")).collect();
        write(&folder.join("metrics").join(name), &lines)?;
    }
    Ok(())
}

/// Experiments have numbers; the same name has the same one.
fn mlflow_id(name: &str) -> String {
    let digits = u64::from_str_radix(&fingerprint(name.as_bytes())[..15], 16).unwrap_or_default();
    format!("{:018}", digits % 1_000_000_000_000_000_000)
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// A text in YAML, in quotes.
fn yaml(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Writes runs for Weights & Biases, whose own files only its client can write: a folder a run, and a script that hands them to the client.
pub fn write_wandb(runs: &[RunLog], out: &Path, project: &str) -> Result<()> {
    for run in runs {
        let folder = out.join(&run.id);
        let config: BTreeMap<&String, Json> = run.settings.iter().map(|(key, text)| (key, plain(text))).collect();
        let about = json!({
            "id": run.id, "name": run.name, "notes": run.title, "project": project, "config": config, "state": run.state,
        });
        write(&folder.join("run.json"), &format!("{about:#}\n"))?;
        let mut steps: BTreeMap<u64, serde_json::Map<String, serde_json::Value>> = BTreeMap::new();
        for (name, all) in &run.metrics {
            for measured in all {
                steps.entry(measured.round).or_default().insert(name.clone(), json!(measured.value));
            }
        }
        let lines: String =
            steps.iter().map(|(round, values)| format!("{}\n", json!({ "step": round, "values": values }))).collect();
        write(&folder.join("history.jsonl"), &lines)?;
    }
    write(&out.join("import_wandb.py"), IMPORT)
}

/// A value of TOML as JSON, so that numbers can be sorted and drawn; what is no value of either (an infinity) stays a text.
fn plain(text: &str) -> Json {
    let value = text.parse::<toml::Value>().ok().and_then(|value| serde_json::to_value(value).ok());
    value.filter(|value| !value.is_null()).unwrap_or_else(|| Json::String(text.to_owned()))
}

/// The script, which needs nothing but the public client.
const IMPORT: &str = include_str!("tracking/import_wandb.py");

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io(parent, "create it"))?;
    }
    write_atomically(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_numbers_flags_texts_and_lists() {
        assert_eq!(plain("\"fedeq\""), json!("fedeq"));
        assert_eq!((plain("0.01"), plain("3"), plain("true")), (json!(0.01), json!(3), json!(true)));
        assert_eq!(plain("[1, 2]"), json!([1, 2]));
        assert_eq!(plain("inf"), json!("inf"));
    }
}
