//! Clients' models as files for other programs.
//!
//! A folder holds a safetensors file a client, shared and personal parameters and normalisation statistics under readable names, and
//! `export.json`, which says what these are: the model, the task, how inputs are scaled, what the classes are called. A file can be used without the folder: its
//! metadata hold the network as data, the scaling and the names of the classes.
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Metadata, Neighbours, Result, write_atomically};
use fedeq_data::{Dataset, Labels, Samples};
use fedeq_models::{Graph, ModelConfig, Part, Task};
use serde::Serialize;

use crate::experiment::Prepared;
use crate::run::{ClientModel, Trained};

/// What `export.json` says.
#[derive(Clone, Debug, Serialize)]
pub struct Export {
    /// The program's version.
    pub fedeq: &'static str,
    /// The method that trained the models.
    pub method: String,
    /// The data set they were trained on.
    pub data: String,
    /// The network's configuration.
    pub model: ModelConfig,
    /// The shape of inputs and the number of classes.
    pub task: Task,
    /// How inputs become the numbers a network sees, for pictures and for tables whose features are scaled.
    pub scaling: Option<InputScaling>,
    /// The names of the classes, where they have names.
    pub classes: Vec<String>,
    /// The tensors that are personal; all others came from the shared part.
    pub personal: Vec<String>,
    /// How the client's training samples vote along in its predictions, where the method lets them: these are not in the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Neighbours>,
    /// One file a client.
    pub clients: Vec<Exported>,
}

/// A value `v` is fed as `(v / white - mean) / deviation`: of a picture channel by channel, of a table column by column.
#[derive(Clone, Debug, Serialize)]
pub struct InputScaling {
    /// The value that stands for 1; 1 for tables.
    pub white: u8,
    /// Subtracted.
    pub mean: Vec<f32>,
    /// Divided by.
    pub deviation: Vec<f32>,
}

/// One client's file.
#[derive(Clone, Debug, Serialize)]
pub struct Exported {
    /// The client.
    pub name: String,
    /// Its file in this folder.
    pub file: String,
}

/// Writes the models of some clients into a folder that is new or empty.
pub fn export(trained: &Trained, clients: &[usize], folder: &Path) -> Result<Export> {
    if let ModelConfig::External(options) = &trained.prepared().experiment.model {
        let problem =
            format!("the network `{}` is computed outside of fedeq, and what is exported could not be run", options.network);
        return Err(Error::invalid(problem, "take its numbers in Python: `fedeq.open(folder).client(name).state_dict()`"));
    }
    ensure_empty(folder)?;
    fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
    let files = clients.iter().map(|&client| export_client(trained, client, folder)).collect::<Result<Vec<_>>>()?;
    let export = describe(trained, files);
    let path = folder.join("export.json");
    let json = serde_json::to_string_pretty(&export).map_err(|error| Error::io(&path, "write it")(error.into()))?;
    write_atomically(&path, (json + "\n").as_bytes())?;
    Ok(export)
}

fn ensure_empty(folder: &Path) -> Result<()> {
    let is_empty = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    if is_empty {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` is not empty", folder.display()), "name a new folder with `--out`"))
}

fn export_client(trained: &Trained, client: usize, folder: &Path) -> Result<Exported> {
    let model = trained.model(client)?;
    let file = file_of(&model);
    write_atomically(&folder.join(&file), &model_file(trained, &model)?)?;
    Ok(Exported { name: model.name, file })
}

/// The bytes of a client's file: its arrays, and in the metadata what it takes to use them.
pub fn model_file(trained: &Trained, model: &ClientModel) -> Result<Vec<u8>> {
    let (prepared, summary) = (trained.prepared(), trained.summary());
    let notes = [
        ("client", model.name.clone()),
        ("method", summary.method.clone()),
        ("data", summary.data.clone()),
        ("model", summary.model.clone()),
        ("network", json(prepared.network.graph())?),
        ("scaling", json(&scaling_of(prepared))?),
        ("classes", json(&classes_of(&prepared.dataset))?),
    ];
    let metadata: Metadata = notes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut arrays = model.weights.params.clone();
    arrays.overwrite(&model.weights.statistics);
    arrays.to_bytes(&metadata)
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::invalid(error.to_string(), "report this"))
}

/// The client's name where it can be a file's; else with its number in front, so that no two clients share a file.
fn file_of(model: &ClientModel) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let plain: String = model.name.chars().map(|character| if is_plain(character) { character } else { '_' }).collect();
    let is_safe = plain == model.name && !plain.starts_with('.') && plain.len() < 100;
    let shortened: String = plain.chars().take(100).collect();
    if is_safe { format!("{plain}.safetensors") } else { format!("{:06}-{shortened}.safetensors", model.client) }
}

fn describe(trained: &Trained, clients: Vec<Exported>) -> Export {
    let prepared = trained.prepared();
    Export {
        fedeq: env!("CARGO_PKG_VERSION"),
        method: trained.summary().method.clone(),
        data: trained.summary().data.clone(),
        model: prepared.experiment.model.clone(),
        task: prepared.network.graph().task,
        scaling: scaling_of(prepared),
        classes: classes_of(&prepared.dataset),
        personal: personal_of(prepared.network.graph()),
        neighbours: prepared.experiment.method.algorithm().neighbours(),
        clients,
    }
}

fn scaling_of(prepared: &Prepared) -> Option<InputScaling> {
    let (white, fedeq_data::Scaling { mean, deviation }) = match &prepared.dataset.samples {
        Samples::Images(images) => (images.white, images.scaling.clone()),
        _ => (1, prepared.scaling.clone()?),
    };
    Some(InputScaling { white, mean, deviation })
}

fn classes_of(dataset: &Dataset) -> Vec<String> {
    if let Labels::Classes { names, .. } = &dataset.labels { names.clone() } else { Vec::new() }
}

fn personal_of(graph: &Graph) -> Vec<String> {
    graph.parameters_of(Part::Personal).map(|parameter| parameter.path.clone()).collect()
}
