//! Named numbers: the one currency outside the models.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fedeq_models::store::{Metadata, names_today};
use half::f16;
use rayon::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorInfo, TensorView};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::error::{Error, Result};

/// Numbers that are worked on together: few enough to stay in the nearest cache, with their sums.
const BLOCK: usize = 2048;

/// Some values, each so many times, by a total. Every entry is summed in the order given, whoever does it: the blocks are spread over the cores.
pub(crate) fn weighted_mean(items: &[(&[f32], f64)], total: f64) -> Vec<f32> {
    let mut mean = vec![0.0; items[0].0.len()];
    mean.par_chunks_mut(BLOCK).enumerate().for_each(|(block, mean)| {
        let mut sums = [0.0; BLOCK];
        for (values, weight) in items {
            let values = &values[block * BLOCK..][..mean.len()];
            sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum += weight * f64::from(value));
        }
        mean.iter_mut().zip(sums).for_each(|(mean, sum)| *mean = (sum / total) as f32);
    });
    mean
}

/// The first number that is NaN or infinite. A whole block is looked at before anything is decided, which vector instructions do at once.
fn first_not_finite(values: &[f32]) -> Option<f32> {
    let mut blocks = values.chunks(BLOCK);
    let spoiled = blocks.find(|block| block.iter().fold(false, |found, value| found | !value.is_finite()))?;
    spoiled.iter().copied().find(|value| !value.is_finite())
}

/// Ordered, named arrays that form a vector space: a parameter, a gradient, a dual, a message, an average, a checkpoint.
///
/// They live on the host. Two with the same names and shapes have the same [layout](Params::ensure_like); arithmetic
/// is only meant between such, and what comes from outside is checked before it gets here. The byte form is safetensors.
///
/// ```
/// use fedeq_core::{Array, Params};
/// let theta: Params = [("cell.weight".into(), Array::new(vec![2], vec![3.0, 4.0]))].into_iter().collect();
/// assert_eq!(theta.norm(), 5.0);
/// assert_eq!(Params::from_bytes(&theta.to_bytes(&Default::default())?)?.0, theta);
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    arrays: BTreeMap<String, Array>,
}

/// One array, row-major. Copies share their values until one of them changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its shape.
    pub shape: Vec<usize>,
    /// As many values as the shape multiplies to.
    pub values: Arc<Vec<f32>>,
}

/// safetensors writes metadata in no fixed order, so all of ours goes under one key, as JSON.
const METADATA_KEY: &str = "fedeq";

impl Array {
    /// An array of a shape.
    ///
    /// # Panics
    /// If the shape does not multiply to the number of values.
    pub fn new(shape: Vec<usize>, values: Vec<f32>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "the shape fits the values");
        Self { shape, values: values.into() }
    }
}

impl FromIterator<(String, Array)> for Params {
    fn from_iter<I: IntoIterator<Item = (String, Array)>>(arrays: I) -> Self {
        Self { arrays: arrays.into_iter().collect() }
    }
}

impl Params {
    /// Names and arrays, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.arrays.iter().map(|(name, array)| (name.as_str(), array))
    }

    /// One array by name.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name)
    }

    /// The values of one array by name, for whoever puts as many others in their place.
    pub fn shared_values_mut(&mut self, name: &str) -> Option<&mut Arc<Vec<f32>>> {
        self.arrays.get_mut(name).map(|array| &mut array.values)
    }

    /// The values of one array, to be changed.
    ///
    /// # Panics
    /// If there is no array of that name.
    pub(crate) fn values_mut(&mut self, name: &str) -> &mut [f32] {
        let array = self.arrays.get_mut(name).expect("an array of this name");
        Arc::make_mut(&mut array.values).as_mut_slice()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// How many numbers it holds.
    pub fn count(&self) -> usize {
        self.arrays.values().map(|array| array.values.len()).sum()
    }

    /// Only the arrays whose names are wanted.
    pub fn filter(&self, wanted: impl Fn(&str) -> bool) -> Self {
        self.arrays.iter().filter(|(name, _)| wanted(name)).map(|(name, array)| (name.clone(), array.clone())).collect()
    }

    /// Puts the arrays of `other` in place of those of the same name, and adds the rest.
    pub fn overwrite(&mut self, other: &Self) {
        self.arrays.extend(other.arrays.iter().map(|(name, array)| (name.clone(), array.clone())));
    }

    /// Zeros of the same layout.
    pub fn zeros_like(&self) -> Self {
        // Memory that the system gives is zero: it need not be written to.
        let zeros = |array: &Array| Array::new(array.shape.clone(), vec![0.0; array.values.len()]);
        self.arrays.iter().map(|(name, array)| (name.clone(), zeros(array))).collect()
    }

    /// The same layout with every value changed.
    pub fn map(&self, change: impl Fn(f32) -> f32) -> Self {
        let changed = |array: &Array| array.values.iter().map(|&value| change(value)).collect();
        let arrays = self.arrays.iter().map(|(name, array)| (name.clone(), Array::new(array.shape.clone(), changed(array))));
        arrays.collect()
    }

    /// `self + factor * other`.
    pub fn plus(&self, factor: f32, other: &Self) -> Self {
        let mut sum = self.clone();
        for (name, array) in &mut sum.arrays {
            let other = &other.arrays[name].values;
            Arc::make_mut(&mut array.values).iter_mut().zip(&**other).for_each(|(value, other)| *value += factor * other);
        }
        sum
    }

    /// `self - other`.
    pub fn minus(&self, other: &Self) -> Self {
        self.plus(-1.0, other)
    }

    /// The inner product.
    pub fn dot(&self, other: &Self) -> f64 {
        let pairs = self.arrays.iter().flat_map(|(name, array)| array.values.iter().zip(&*other.arrays[name].values));
        pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    }

    /// The Euclidean norm.
    pub fn norm(&self) -> f64 {
        self.dot(self).sqrt()
    }

    /// Whether every value is a finite number.
    pub fn is_finite(&self) -> bool {
        self.arrays.values().all(|array| first_not_finite(&array.values).is_none())
    }

    /// The weighted mean, summed in the order given and in f64, so that it depends on nothing else.
    ///
    /// # Panics
    /// If there is nothing to average.
    pub fn mean<'a>(items: impl IntoIterator<Item = (&'a Self, f64)> + Clone) -> Self {
        let total: f64 = items.clone().into_iter().map(|(_, weight)| weight).sum();
        let (first, _) = items.clone().into_iter().next().expect("an average is over something");
        let average = |name: &String, array: &Array| {
            let values = items.clone().into_iter().map(|(item, weight)| (item.arrays[name].values.as_slice(), weight));
            Array::new(array.shape.clone(), weighted_mean(&values.collect::<Vec<_>>(), total))
        };
        first.arrays.iter().map(|(name, array)| (name.clone(), average(name, array))).collect()
    }

    /// Refuses another layout than that of `expected`, and numbers that are not finite.
    pub fn ensure_like(&self, expected: &Self) -> Result<()> {
        for (name, array) in &expected.arrays {
            let found = self.arrays.get(name).ok_or_else(|| Error::message(format!("`{name}` is missing")))?;
            if found.shape != array.shape {
                return Err(Error::message(format!("`{name}` has shape `{:?}` instead of {:?}", found.shape, array.shape)));
            }
            if let Some(value) = first_not_finite(&found.values) {
                return Err(Error::message(format!("`{name}` holds the value `{value}`")));
            }
        }
        match self.arrays.keys().find(|name| !expected.arrays.contains_key(*name)) {
            Some(name) => Err(Error::message(format!("`{name}` is not expected"))),
            None => Ok(()),
        }
    }

    /// The same arrays under the names of today, where they have those of an [older version](names_today).
    pub(crate) fn named_like(self, expected: &Self) -> Self {
        let is_expected = |name: &str| expected.arrays.contains_key(name);
        let Some(names) = names_today(self.arrays.keys().map(String::as_str), is_expected) else { return self };
        names.into_iter().map(|(old, today)| (today, self.arrays[old].clone())).collect()
    }

    /// The same arrays under longer names: `theta` and `cell.weight` give `theta/cell.weight`.
    pub fn under(&self, prefix: &str) -> Self {
        self.arrays.iter().map(|(name, array)| (format!("{prefix}/{name}"), array.clone())).collect()
    }

    /// The arrays that were put [`under`](Self::under) a prefix.
    pub fn below(&self, prefix: &str) -> Self {
        let stripped = |name: &str| name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned);
        self.arrays.iter().filter_map(|(name, array)| Some((stripped(name)?, array.clone()))).collect()
    }

    /// The bytes of a safetensors file; the same values give the same bytes.
    pub fn to_bytes(&self, metadata: &Metadata) -> Result<Vec<u8>> {
        self.to_bytes_halving(metadata, |_| false)
    }

    /// As [`to_bytes`](Self::to_bytes), with the arrays of some names as 16-bit floats, if that loses nothing of them.
    pub(crate) fn to_bytes_halving(&self, metadata: &Metadata, halves: impl Fn(&str) -> bool) -> Result<Vec<u8>> {
        let written = |name: &str, array: &Array| match halves(name).then(|| half_bytes(&array.values)).flatten() {
            Some(bytes) => (Dtype::F16, bytes),
            None => (Dtype::F32, little_endian(&array.values)),
        };
        let raw = self.iter().map(|(name, array)| (name, array.shape.as_slice(), written(name, array))).collect::<Vec<_>>();
        let views = raw.iter().map(|(name, shape, (kind, bytes))| Ok((*name, TensorView::new(*kind, shape.to_vec(), bytes)?)));
        let views = views.collect::<std::result::Result<Vec<_>, safetensors::SafeTensorError>>();
        let header = serde_json::to_string(metadata).expect("text by text is always JSON");
        let header = (!metadata.is_empty()).then(|| HashMap::from([(METADATA_KEY.to_owned(), header)]));
        let bytes = views.and_then(|views| safetensors::serialize(views, header));
        bytes.map_err(|error| Error::message(format!("it cannot be written as safetensors: {error}")))
    }

    /// As many bytes as [`to_bytes`](Self::to_bytes) gives, counted and not written: the length of the header, the header padded to whole words, the numbers.
    pub(crate) fn encoded_len(&self, metadata: &Metadata) -> u64 {
        let mut written = Count(0);
        serde_json::to_writer(&mut written, &Header { params: self, metadata }).expect("a count takes everything");
        8 + written.0.next_multiple_of(8) + 4 * self.count() as u64
    }

    /// Reads the bytes of a safetensors file of 32-bit floats.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, Metadata)> {
        Self::from_bytes_halved(bytes, |_| false)
    }

    /// As [`from_bytes`](Self::from_bytes), where the arrays of some names may be 16-bit floats.
    pub(crate) fn from_bytes_halved(bytes: &[u8], halves: impl Fn(&str) -> bool) -> Result<(Self, Metadata)> {
        let unsound = |error: safetensors::SafeTensorError| Error::message(format!("it is not sound safetensors: {error}"));
        let (size, header) = SafeTensors::read_metadata(bytes).map_err(unsound)?;
        let numbers = &bytes[8 + size..];
        let arrays = header.tensors().into_iter().map(|(name, info)| {
            let data = &numbers[info.data_offsets.0..info.data_offsets.1];
            let is_half = info.dtype == Dtype::F16 && halves(&name);
            let array = if is_half { read_half(info, data) } else { read_array(&name, info, data)? };
            Ok((name, array))
        });
        Ok((arrays.collect::<Result<_>>()?, read_metadata(header.metadata().as_ref())?))
    }
}

/// What stands before the numbers in a safetensors file of 32-bit floats.
struct Header<'a> {
    params: &'a Params,
    metadata: &'a Metadata,
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            let text = serde_json::to_string(self.metadata).expect("text by text is always JSON");
            map.serialize_entry("__metadata__", &BTreeMap::from([(METADATA_KEY, text)]))?;
        }
        let mut start = 0;
        for (name, array) in self.params.iter() {
            let end = start + 4 * array.values.len();
            map.serialize_entry(name, &TensorInfo { dtype: Dtype::F32, shape: array.shape.clone(), data_offsets: (start, end) })?;
            start = end;
        }
        map.end()
    }
}

/// Counts what is written to it.
struct Count(u64);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn read_array(name: &str, info: &TensorInfo, data: &[u8]) -> Result<Array> {
    if info.dtype != Dtype::F32 {
        return Err(Error::message(format!("`{name}` is stored as `{}` instead of F32", info.dtype)));
    }
    let words = data.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    Ok(Array::new(info.shape.clone(), words.collect()))
}

fn read_half(info: &TensorInfo, data: &[u8]) -> Array {
    let words = data.chunks_exact(2).map(|word| f16::from_le_bytes([word[0], word[1]]).to_f32());
    Array::new(info.shape.clone(), words.collect())
}

fn read_metadata(header: Option<&HashMap<String, String>>) -> Result<Metadata> {
    let Some(json) = header.and_then(|header| header.get(METADATA_KEY)) else { return Ok(Metadata::new()) };
    serde_json::from_str(json).map_err(|error| Error::message(format!("its `{METADATA_KEY}` metadata is damaged: {error}")))
}

/// The values as 16-bit floats; nothing if one of them is not the same afterwards.
fn half_bytes(values: &[f32]) -> Option<Vec<u8>> {
    let halve = |value: &f32| Some(f16::from_f32(*value)).filter(|half| half.to_f32().to_bits() == value.to_bits());
    let halves = values.iter().map(halve).collect::<Option<Vec<f16>>>()?;
    Some(halves.into_iter().flat_map(f16::to_le_bytes).collect())
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 * values.len());
    values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}
