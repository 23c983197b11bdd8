//! Networks as safetensors files, with readable names.
//!
//! A file holds every parameter under its path (`stem.conv.weight`), and for every batch normalisation layer `<path>.mean`,
//! `<path>.variance` and `<path>.steps`, all as 32-bit floats. The same network gives the same bytes.
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::Values;
use crate::error::{ModelError, Result};
use crate::graph::{Graph, Parameter, RunningStatistics};

/// What a file or a message says about itself: free text by key.
pub type Metadata = BTreeMap<String, String>;

/// safetensors writes its metadata in no fixed order, so all of ours goes under one key, as JSON.
const METADATA_KEY: &str = "fedeq";

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedNetwork {
    /// The parameters of the network.
    pub values: Values,
    /// Its running statistics.
    pub statistics: Values,
    /// What was noted about it.
    pub metadata: Metadata,
}

/// Writes a network to a file, all or nothing: a power cut leaves the old file or the new one.
pub fn save(path: &Path, graph: &Graph, values: &Values, statistics: &Values, metadata: &Metadata) -> Result<()> {
    let bytes = to_bytes(graph, values, statistics, metadata)?;
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    write_through(partial, &bytes).map_err(ModelError::io(partial, "write it"))?;
    fs::rename(partial, path).map_err(ModelError::io(path, "replace it"))
}

/// Reads the numbers of a network from a file that was saved from one of the same configuration and task.
pub fn load(path: &Path, graph: &Graph) -> Result<SavedNetwork> {
    let bytes = fs::read(path).map_err(ModelError::io(path, "read it"))?;
    from_bytes(&bytes, graph).map_err(|error| match error {
        ModelError::Unloadable { problem, remedy } => ModelError::unloadable(format!("`{}`: {problem}", path.display()), remedy),
        other => other,
    })
}

/// The bytes of a safetensors file.
///
/// All numbers that a network has must be there, and no others.
pub fn to_bytes(graph: &Graph, values: &Values, statistics: &Values, metadata: &Metadata) -> Result<Vec<u8>> {
    let expected = expected_shapes(graph);
    if let Some(name) = values.keys().chain(statistics.keys()).find(|name| !expected.contains_key(*name)) {
        return Err(unfitting(format!("it has no `{name}`")));
    }
    let raw = expected.into_iter().map(|(name, shape)| {
        let numbers =
            values.get(&name).or_else(|| statistics.get(&name)).ok_or_else(|| unfitting(format!("`{name}` is missing")))?;
        Ok((name, shape, numbers.iter().copied().flat_map(f32::to_le_bytes).collect::<Vec<u8>>()))
    });
    let raw = raw.collect::<Result<Vec<_>>>()?;
    let views = raw.iter().map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)));
    let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(unwritable)?;
    safetensors::serialize(views, header(metadata)).map_err(unwritable)
}

/// Reads the bytes of a safetensors file that was saved from a network of the same configuration and task.
///
/// Whatever the bytes are, the outcome is exactly the expected tensors, all finite, or an error.
pub fn from_bytes(bytes: &[u8], graph: &Graph) -> Result<SavedNetwork> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| damaged(error.to_string()))?;
    let expected = expected_shapes(graph);
    let renamed = names_today(file.names().into_iter(), |name| expected.contains_key(name)).unwrap_or_default();
    let stored: BTreeMap<&str, &str> = renamed.iter().map(|(old, today)| (today.as_str(), *old)).collect();
    if renamed.is_empty() {
        refuse_strangers(&file, &expected)?;
    }
    let read = |(name, shape): (String, Vec<usize>)| {
        let numbers = read_tensor(&file, stored.get(name.as_str()).unwrap_or(&name.as_str()), &shape)?;
        Ok((name, numbers))
    };
    Ok(SavedNetwork {
        values: graph.parameters.iter().map(named_shape).map(read).collect::<Result<_>>()?,
        statistics: graph.statistics.iter().flat_map(named_shapes).map(read).collect::<Result<_>>()?,
        metadata: read_metadata(bytes)?,
    })
}

/// The names of today for those in a file of an older version, by the older ones; nothing for a file that has the names of today, or those of
/// another network.
///
/// The head was called `player` once, and the dense layers before it `head`. Which of the two a `head` is can be told by what is expected.
pub fn names_today<'a>(
    found: impl Iterator<Item = &'a str> + Clone,
    is_expected: impl Fn(&str) -> bool,
) -> Option<BTreeMap<&'a str, String>> {
    if found.clone().all(&is_expected) {
        return None;
    }
    let names: BTreeMap<&str, String> = found.map(|old| (old, name_today(old))).collect();
    names.values().all(|name| is_expected(name)).then_some(names)
}

fn name_today(old: &str) -> String {
    match old.split_once('.') {
        Some(("player", rest)) => format!("head.{rest}"),
        Some(("head", rest)) => format!("dense.{rest}"),
        _ => old.to_owned(),
    }
}

fn write_through(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn header(metadata: &Metadata) -> Option<HashMap<String, String>> {
    let json = serde_json::to_string(metadata).expect("text by text is always JSON");
    (!metadata.is_empty()).then(|| HashMap::from([(METADATA_KEY.to_owned(), json)]))
}

fn read_metadata(bytes: &[u8]) -> Result<Metadata> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| damaged(error.to_string()))?;
    let Some(json) = header.metadata().as_ref().and_then(|all| all.get(METADATA_KEY)) else { return Ok(Metadata::new()) };
    serde_json::from_str(json).map_err(|error| damaged(format!("its `{METADATA_KEY}` metadata: {error}")))
}

fn named_shape(parameter: &Parameter) -> (String, Vec<usize>) {
    (parameter.path.clone(), parameter.shape.clone())
}

fn named_shapes(running: &RunningStatistics) -> impl Iterator<Item = (String, Vec<usize>)> {
    running.names().into_iter().zip([running.channels, running.channels, 1].map(|count| vec![count]))
}

fn expected_shapes(graph: &Graph) -> BTreeMap<String, Vec<usize>> {
    graph.parameters.iter().map(named_shape).chain(graph.statistics.iter().flat_map(named_shapes)).collect()
}

fn refuse_strangers(file: &SafeTensors, expected: &BTreeMap<String, Vec<usize>>) -> Result<()> {
    let mut strangers: Vec<&str> = file.names().into_iter().filter(|&name| !expected.contains_key(name)).collect();
    strangers.sort_unstable();
    match strangers.first() {
        None => Ok(()),
        Some(name) => Err(foreign(format!("it holds `{name}`, which this network has not"))),
    }
}

fn read_tensor(file: &SafeTensors, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    let view = file.tensor(name).map_err(|_| foreign(format!("it has no `{name}`")))?;
    if view.shape() != shape {
        return Err(foreign(format!("`{name}` has shape `{:?}` instead of {shape:?}", view.shape())));
    }
    if view.dtype() != Dtype::F32 {
        return Err(foreign(format!("`{name}` is stored as `{}` instead of F32", view.dtype())));
    }
    let words = view.data().chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let values: Vec<f32> = words.collect();
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(values),
        Some(value) => Err(damaged(format!("`{name}` holds the value `{value}`"))),
    }
}

fn damaged(problem: String) -> ModelError {
    ModelError::unloadable(format!("this is not a sound network file: {problem}"), "restore the file from where it came from")
}

fn foreign(problem: String) -> ModelError {
    ModelError::unloadable(
        format!("this file belongs to another network: {problem}"),
        "load it into a network of the configuration and the task it was saved from",
    )
}

fn unfitting(problem: String) -> ModelError {
    ModelError::unloadable(
        format!("these numbers belong to another network: {problem}"),
        "save all numbers of the network, and no others",
    )
}

fn unwritable(error: safetensors::SafeTensorError) -> ModelError {
    ModelError::unloadable(format!("the network cannot be written: {error}"), "save fewer or shorter metadata")
}
