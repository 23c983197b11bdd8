//! Networks as safetensors files, with readable names.
//!
//! A file holds every parameter under its path (`stem.conv.weight`), and for every batch normalisation layer `<path>.mean`,
//! `<path>.variance` and `<path>.steps`, all as 32-bit floats. The same network gives the same bytes.
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use burn::tensor::TensorData;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::{ModelError, Result};
use crate::network::Network;
use crate::statistics::Statistics;

/// What a saved network says about itself: free text by key.
pub type Metadata = BTreeMap<String, String>;

/// safetensors writes its metadata in no fixed order, so all of ours goes under one key, as JSON.
const METADATA_KEY: &str = "fedeq";

/// What a file holds.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The network.
    pub network: Network,
    /// Its running statistics.
    pub statistics: Statistics,
    /// What was noted about it.
    pub metadata: Metadata,
}

/// Writes a network to a file, all or nothing: a power cut leaves the old file or the new one.
pub fn save(path: &Path, network: &Network, statistics: &Statistics, metadata: &Metadata) -> Result<()> {
    let bytes = to_bytes(network, statistics, metadata)?;
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    write_through(partial, &bytes).map_err(ModelError::io(partial, "write it"))?;
    fs::rename(partial, path).map_err(ModelError::io(path, "replace it"))
}

/// Reads a network from a file into one of the same configuration and task.
pub fn load(path: &Path, like: Network) -> Result<Saved> {
    let bytes = fs::read(path).map_err(ModelError::io(path, "read it"))?;
    from_bytes(&bytes, like).map_err(|error| match error {
        ModelError::Unloadable { problem, remedy } => ModelError::unloadable(format!("`{}`: {problem}", path.display()), remedy),
        other => other,
    })
}

/// The bytes of a safetensors file.
pub fn to_bytes(network: &Network, statistics: &Statistics, metadata: &Metadata) -> Result<Vec<u8>> {
    let mut tensors = network.values();
    tensors.extend(statistics.values());
    let raw: BTreeMap<&str, (Vec<usize>, Vec<u8>)> =
        tensors.iter().map(|(name, data)| (name.as_str(), (data.shape().to_vec(), little_endian(data)))).collect();
    let views = raw.iter().map(|(&name, (shape, bytes))| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)));
    let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(unwritable)?;
    safetensors::serialize(views, header(metadata)).map_err(unwritable)
}

/// Reads the bytes of a safetensors file into a network of the same configuration and task.
///
/// Whatever the bytes are, the outcome is a network with exactly the expected tensors, all finite, or an error.
pub fn from_bytes(bytes: &[u8], like: Network) -> Result<Saved> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| damaged(error.to_string()))?;
    let expected_statistics = like.fresh_statistics();
    let expected = expected_shapes(&like, &expected_statistics);
    refuse_strangers(&file, &expected)?;
    let values = expected
        .iter()
        .map(|(name, shape)| Ok((name.clone(), read_tensor(&file, name, shape)?)))
        .collect::<Result<BTreeMap<_, _>>>()?;
    let statistics = expected_statistics.with_values(&values);
    Ok(Saved { network: like.with_values(&values), statistics, metadata: read_metadata(bytes)? })
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

fn expected_shapes(network: &Network, statistics: &Statistics) -> BTreeMap<String, Vec<usize>> {
    let parameters = network.parameters().into_iter().map(|parameter| (parameter.path, parameter.shape));
    let moments = statistics.values().into_iter().map(|(name, data)| (name, data.shape().to_vec()));
    parameters.chain(moments).collect()
}

fn refuse_strangers(file: &SafeTensors, expected: &BTreeMap<String, Vec<usize>>) -> Result<()> {
    let mut strangers: Vec<&str> = file.names().into_iter().filter(|&name| !expected.contains_key(name)).collect();
    strangers.sort_unstable();
    match strangers.first() {
        None => Ok(()),
        Some(name) => Err(foreign(format!("it holds `{name}`, which this network has not"))),
    }
}

fn read_tensor(file: &SafeTensors, name: &str, shape: &[usize]) -> Result<TensorData> {
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
        None => Ok(TensorData::new(values, shape.to_vec())),
        Some(value) => Err(damaged(format!("`{name}` holds the value `{value}`"))),
    }
}

fn little_endian(data: &TensorData) -> Vec<u8> {
    data.iter::<f32>().flat_map(f32::to_le_bytes).collect()
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

fn unwritable(error: safetensors::SafeTensorError) -> ModelError {
    ModelError::unloadable(format!("the network cannot be written: {error}"), "save fewer or shorter metadata")
}
