//! The content of a message: records of named arrays, metrics and settings, as a tree of objects.
use std::collections::{BTreeMap, BTreeSet};

use fedeq_core::{Array, Params};
use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::limit::{self, MOST_CHUNKS, MemoryBudget};
use crate::npy;
use crate::object::{Bundle, Id, Object, ObjectKind};
use crate::python_json::to_json;
use crate::wire::{Item, NamedValues, Scalar, Value};
use crate::{Error, Result};

/// A message's records by name, in the order they were added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    records: Vec<(String, Record)>,
}

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Named arrays of numbers.
    Arrays(Params),
    /// Named arrays of bytes.
    Bytes(BTreeMap<String, Vec<u8>>),
    /// Named numbers.
    Metrics(NamedValues),
    /// Named settings.
    Config(NamedValues),
}

/// Arrays are split into chunks of so many bytes.
const CHUNK: usize = 5 << 20;
const SERIALISATION: &str = "numpy.ndarray";
/// What arrays are of.
const FLOATS: &str = "float32";
const BYTES: &str = "uint8";

/// The body of an [`Array`](ObjectKind::Array) object.
#[derive(Serialize, Deserialize)]
struct ArrayBody {
    dtype: String,
    shape: Vec<usize>,
    stype: String,
    /// Which of the object's children stands at each place: equal chunks are one child.
    arraychunk_ids: Vec<usize>,
}

impl Content {
    /// With one more record.
    pub fn with(mut self, name: &str, record: Record) -> Self {
        self.records.push((name.into(), record));
        self
    }

    /// The arrays of a name.
    pub fn arrays(&self, name: &str) -> Result<&Params> {
        match self.record(name)? {
            Record::Arrays(arrays) => Ok(arrays),
            _ => Err(Error::record(name, "it is not a record of arrays")),
        }
    }

    /// The arrays of bytes of a name; nothing where it has numbers.
    pub fn bytes(&self, name: &str) -> Result<Option<&BTreeMap<String, Vec<u8>>>> {
        match self.record(name)? {
            Record::Bytes(arrays) => Ok(Some(arrays)),
            _ => Ok(None),
        }
    }

    /// The settings of a name.
    pub fn config(&self, name: &str) -> Result<&NamedValues> {
        match self.record(name)? {
            Record::Config(values) => Ok(values),
            _ => Err(Error::record(name, "it is not a record of settings")),
        }
    }

    fn record(&self, name: &str) -> Result<&Record> {
        let found = self.records.iter().find(|(known, _)| known == name);
        found.map(|(_, record)| record).ok_or_else(|| Error::record(name, "the message has no such record"))
    }

    /// Adds all objects to a bundle and gives the id of the root, an [`ObjectKind::RecordDict`].
    pub fn deflate(&self, bundle: &mut Bundle) -> Id {
        let named: Vec<(&str, Id)> = self.records.iter().map(|(name, record)| (name.as_str(), record.deflate(bundle))).collect();
        add_references(ObjectKind::RecordDict, &named, bundle)
    }

    /// Reads an [`ObjectKind::RecordDict`] and all below it, if it takes no more than the [default](limit::DEFAULT).
    pub fn inflate(id: &str, bundle: &Bundle) -> Result<Self> {
        Self::inflate_within(id, bundle, limit::DEFAULT)
    }

    /// Reads an [`ObjectKind::RecordDict`] and all below it, if it takes no more than so many bytes when it is unpacked.
    pub fn inflate_within(id: &str, bundle: &Bundle, most: usize) -> Result<Self> {
        let mut budget = MemoryBudget::new(most);
        let references = references(&bundle.get(id, ObjectKind::RecordDict)?, id, &mut budget)?;
        let read = |(name, id): (String, Id)| Record::inflate(&name, &id, bundle, &mut budget).map(|record| (name, record));
        Ok(Self { records: references.into_iter().map(read).collect::<Result<_>>()? })
    }
}

impl Record {
    fn deflate(&self, bundle: &mut Bundle) -> Id {
        let leaf = |kind, values: &NamedValues| Object { kind, children: Vec::new(), body: values.encode_to_vec() };
        match self {
            Self::Metrics(values) => bundle.add(&leaf(ObjectKind::MetricRecord, values)),
            Self::Config(values) => bundle.add(&leaf(ObjectKind::ConfigRecord, values)),
            Self::Arrays(arrays) => {
                let named: Vec<(&str, Id)> = arrays
                    .iter()
                    .map(|(name, array)| (name, deflate_array(FLOATS, &array.shape, &npy::write(array), bundle)))
                    .collect();
                add_references(ObjectKind::ArrayRecord, &named, bundle)
            }
            Self::Bytes(arrays) => {
                let deflate =
                    |bytes: &Vec<u8>, bundle: &mut Bundle| deflate_array(BYTES, &[bytes.len()], &npy::write_bytes(bytes), bundle);
                let named: Vec<(&str, Id)> = arrays.iter().map(|(name, bytes)| (name.as_str(), deflate(bytes, bundle))).collect();
                add_references(ObjectKind::ArrayRecord, &named, bundle)
            }
        }
    }

    fn inflate(name: &str, id: &str, bundle: &Bundle, budget: &mut MemoryBudget) -> Result<Self> {
        let bytes = bundle.bytes(id).ok_or_else(|| Error::object(id, "it has not arrived"))?;
        let object = Object::from_bytes(id, bytes)?;
        match object.kind {
            ObjectKind::MetricRecord => inflate_values(name, &object.body, budget).map(Self::Metrics),
            ObjectKind::ConfigRecord => inflate_values(name, &object.body, budget).map(Self::Config),
            ObjectKind::ArrayRecord => {
                let mut floats = Vec::new();
                let mut bytes = BTreeMap::new();
                for (array, id) in references(&object, id, budget)? {
                    match inflate_array(&array, &id, bundle, budget)? {
                        Inflated::Floats(values) => floats.push((array, values)),
                        Inflated::Bytes(values) => drop(bytes.insert(array, values)),
                    }
                }
                match (floats.is_empty(), bytes.is_empty()) {
                    (_, true) => Ok(Self::Arrays(floats.into_iter().collect())),
                    (true, false) => Ok(Self::Bytes(bytes)),
                    (false, false) => Err(Error::record(name, "it has arrays of numbers and arrays of bytes")),
                }
            }
            other => Err(Error::record(name, format!("an object of kind `{}` is not a record", other.name()))),
        }
    }
}

/// Adds an object whose body maps names to other objects.
fn add_references(kind: ObjectKind, named: &[(&str, Id)], bundle: &mut Bundle) -> Id {
    let mut seen = BTreeSet::new();
    let children = named.iter().map(|(_, id)| id.clone()).filter(|id| seen.insert(id.clone())).collect();
    bundle.add(&Object { kind, children, body: to_json(&Pairs(named)) })
}

/// Pairs as a JSON object, in their order.
struct Pairs<'a>(&'a [(&'a str, Id)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, id)| (name, id)))
    }
}

/// Named values. The smallest takes two bytes encoded and sixty in memory, in a list that grows by doubling.
fn inflate_values(name: &str, body: &[u8], budget: &mut MemoryBudget) -> Result<NamedValues> {
    budget.take(body.len(), 64)?;
    NamedValues::decode(body).map_err(|error| Error::record(name, error.to_string()))
}

/// The names in an object's body and the ids they refer to, which must be among the object's children.
fn references(object: &Object, id: &str, budget: &mut MemoryBudget) -> Result<BTreeMap<String, Id>> {
    budget.take(object.body.len(), 4)?;
    let named: BTreeMap<String, Id> =
        serde_json::from_slice(&object.body).map_err(|error| Error::object(id, format!("its body is malformed: {error}")))?;
    let children: BTreeSet<&Id> = object.children.iter().collect();
    match named.values().find(|child| !children.contains(child)) {
        Some(_) => Err(Error::object(id, "its body refers to an object that is not among its children")),
        None => Ok(named),
    }
}

fn deflate_array(dtype: &str, shape: &[usize], file: &[u8], bundle: &mut Bundle) -> Id {
    let chunk = |bytes: &[u8]| Object { kind: ObjectKind::ArrayChunk, children: Vec::new(), body: bytes.to_vec() };
    let chunks: Vec<Id> = file.chunks(CHUNK).map(|bytes| bundle.add(&chunk(bytes))).collect();
    let mut children: Vec<Id> = Vec::new();
    let mut places = Vec::new();
    for id in chunks {
        let place = children.iter().position(|child| *child == id).unwrap_or(children.len());
        places.push(place);
        if place == children.len() {
            children.push(id);
        }
    }
    let body = ArrayBody { dtype: dtype.into(), shape: shape.to_vec(), stype: SERIALISATION.into(), arraychunk_ids: places };
    bundle.add(&Object { kind: ObjectKind::Array, children, body: to_json(&body) })
}

/// An array that was read.
enum Inflated {
    Floats(Array),
    Bytes(Vec<u8>),
}

fn inflate_array(name: &str, id: &str, bundle: &Bundle, budget: &mut MemoryBudget) -> Result<Inflated> {
    let object = bundle.get(id, ObjectKind::Array)?;
    let refuse = |problem: String| Error::record(name, problem);
    budget.take(object.body.len(), 8)?;
    let body: ArrayBody = serde_json::from_slice(&object.body).map_err(|error| refuse(error.to_string()))?;
    if body.stype != SERIALISATION {
        return Err(refuse(format!("it is serialised as `{}`, not as `{SERIALISATION}`", body.stype)));
    }
    if body.arraychunk_ids.len() > MOST_CHUNKS {
        return Err(refuse(format!("it has more than {MOST_CHUNKS} chunks")));
    }
    // The size by its shape is taken from the budget before any chunk is copied, and its chunks may not be larger than that.
    let size = npy::size(&body.shape).ok_or_else(|| refuse("its shape is too large".into()))?;
    let size = if body.dtype == BYTES { size / 4 } else { size };
    budget.take(size, 1)?;
    let file = joined(&object, &body.arraychunk_ids, size.saturating_add(npy::LONGEST_HEADER), bundle, &refuse)?;
    if body.dtype == BYTES {
        let bytes = npy::read_bytes(&file).map_err(refuse)?;
        return if body.shape == [bytes.len()] {
            Ok(Inflated::Bytes(bytes))
        } else {
            Err(refuse(format!("its shape is ({},), not {}", bytes.len(), npy::tuple(&body.shape))))
        };
    }
    let array = npy::read(&file).map_err(refuse)?;
    if array.shape != body.shape {
        return Err(refuse(format!("its shape is {}, not {}", npy::tuple(&array.shape), npy::tuple(&body.shape))));
    }
    Ok(Inflated::Floats(array))
}

/// The chunks of an array in their order, with so many bytes at most.
fn joined(array: &Object, places: &[usize], most: usize, bundle: &Bundle, refuse: &dyn Fn(String) -> Error) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    for &place in places {
        let child = array.children.get(place).ok_or_else(|| refuse(format!("it has no chunk {place}")))?;
        let chunk = bundle.get(child, ObjectKind::ArrayChunk)?.body;
        if chunk.is_empty() || chunk.len() > most.saturating_sub(file.len()) {
            return Err(refuse("its chunks are empty, or larger than its shape says".into()));
        }
        file.extend(chunk);
    }
    Ok(file)
}

impl NamedValues {
    /// With one more value.
    pub fn with(mut self, key: &str, scalar: Scalar) -> Self {
        self.items.push(Item { key: key.into(), value: Some(Value { scalar: Some(scalar) }) });
        self
    }

    /// The value of a name.
    pub fn get(&self, key: &str) -> Option<&Scalar> {
        self.items.iter().find(|item| item.key == key)?.value.as_ref()?.scalar.as_ref()
    }
}
