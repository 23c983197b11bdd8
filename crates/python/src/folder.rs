//! What a run folder says.
use std::collections::BTreeMap;
use std::path::PathBuf;

use fedeq_core::Result;
use fedeq_python_macros::sheltered;
use fedeq_run::run::{RunFolder, headline, scalars};
use pyo3::prelude::*;
use serde_json::{Map, Value, json};

use crate::error::without_python;
use crate::relay::column;

/// The folder of a run, to be read; as JSON and TOML, which Python reads by itself.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct Folder {
    folder: RunFolder,
}

/// A title, and names with values.
type Facts = (String, Vec<(&'static str, String)>);

#[sheltered]
#[pymethods]
impl Folder {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        without_python(py, || RunFolder::open(&path)).map(|folder| Self { folder })
    }

    /// Where it is.
    #[getter]
    fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// How it stands, as far as one can tell from this machine: running, paused, stopped, killed, finished or failed.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, |folder| Ok(json!(folder.state()?).as_str().unwrap_or_default().to_owned()))
    }

    /// The experiment, as TOML.
    fn experiment(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, RunFolder::experiment_text)
    }

    /// What came out, as JSON; nothing if it is not finished.
    fn summary(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.read(py, |folder| if folder.summary()?.is_some() { folder.summary_text().map(Some) } else { Ok(None) })
    }

    /// A row a round with every number that there is, as JSON.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, metrics)
    }

    /// What came out in words: a title, and names with values. Nothing if it is not finished.
    fn facts(&self, py: Python<'_>) -> PyResult<Option<Facts>> {
        self.read(py, |folder| Ok(folder.summary()?.map(|summary| (summary.title(), summary.facts()))))
    }

    /// A row a client: who it is, what it holds, and how accurate its models were when they were last evaluated, as JSON.
    fn clients(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, clients)
    }
}

impl Folder {
    fn read<V: Send>(&self, py: Python<'_>, read: impl FnOnce(&RunFolder) -> Result<V> + Send) -> PyResult<V> {
        without_python(py, || read(&self.folder))
    }
}

fn metrics(folder: &RunFolder) -> Result<String> {
    let mut rows: BTreeMap<u64, Map<String, Value>> = BTreeMap::new();
    let view = folder.experiment()?.method.algorithm().default_view();
    for (round, name, value) in scalars(folder)? {
        rows.entry(round).or_default().insert(column(&name), json!(value));
    }
    folder.each_evaluation(|evaluation| {
        let (row, quality) = (rows.entry(evaluation.round).or_default(), headline(view, &evaluation));
        row.insert("accuracy".into(), json!(quality.mean));
        row.insert("worst_decile".into(), json!(quality.worst_decile));
    })?;
    let row = |(round, mut row): (u64, Map<String, Value>)| {
        row.insert("round".into(), json!(round));
        Value::Object(row)
    };
    Ok(Value::Array(rows.into_iter().map(row).collect()).to_string())
}

fn clients(folder: &RunFolder) -> Result<String> {
    let roster = folder.roster()?;
    let mut last = None;
    folder.each_evaluation(|evaluation| last = Some(evaluation))?;
    let unseen = folder.summary()?.and_then(|summary| summary.unseen);
    let rows = roster.tally.clients.iter().enumerate().map(|(client, tally)| {
        let is_unseen = client >= roster.training;
        let place = if is_unseen { client - roster.training } else { client };
        let (local, shared) = match (&unseen, &last) {
            (Some(unseen), _) if is_unseen => (Some(&unseen.local), unseen.shared.as_ref()),
            (_, Some(last)) if !is_unseen => (Some(&last.local), last.shared.as_ref()),
            _ => (None, None),
        };
        let accuracy =
            |quality: Option<&fedeq_core::Quality>| quality.and_then(|quality| quality.clients.get(place).copied().flatten());
        json!({
            "client": client, "name": tally.name, "unseen": is_unseen,
            "train": tally.train.samples, "validation": tally.validation.samples, "test": tally.test.samples,
            "local_accuracy": accuracy(local), "shared_accuracy": accuracy(shared),
        })
    });
    Ok(Value::Array(rows.collect()).to_string())
}
