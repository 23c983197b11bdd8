//! The safetensors file of samples and orders that both sides read.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fedeq_data::partition::ClientIndices;
use fedeq_data::{Dataset, Images, Labels, Samples, Scaling, Sequences};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::Result;
use crate::setting::Kind;

const DATA: &str = "data.safetensors";

/// Samples, and who holds which: clients hold neighbouring samples, one client after the other.
pub(crate) struct Held {
    pub(crate) dataset: Dataset,
    pub(crate) clients: Vec<ClientIndices>,
}

/// In which order a client goes over its samples, by client, phase and epoch: `order/3/head/0`.
pub(crate) type Orders = BTreeMap<String, Vec<u32>>;

/// One array of the file.
struct Entry {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Entry {
    fn bytes(name: &str, shape: Vec<usize>, bytes: &[u8]) -> Self {
        Self { name: name.into(), dtype: Dtype::U8, shape, bytes: bytes.to_vec() }
    }

    fn integers(name: &str, shape: Vec<usize>, values: impl Iterator<Item = u32>) -> Self {
        let bytes = values.flat_map(|value| (value as i32).to_le_bytes()).collect();
        Self { name: name.into(), dtype: Dtype::I32, shape, bytes }
    }
}

/// Writes samples and orders.
pub(crate) fn write(folder: &Path, held: &Held, orders: &Orders) -> Result<()> {
    let mut entries = entries_of(&held.dataset)?;
    for (name, order) in orders {
        entries.push(Entry::integers(name, vec![order.len()], order.iter().copied()));
    }
    let views = entries.iter().map(|entry| Ok((&entry.name, TensorView::new(entry.dtype, entry.shape.clone(), &entry.bytes)?)));
    let views: Vec<_> = views.collect::<Result<_>>()?;
    fs::create_dir_all(folder)?;
    Ok(fs::write(folder.join(DATA), safetensors::serialize(views, None)?)?)
}

fn entries_of(dataset: &Dataset) -> Result<Vec<Entry>> {
    let count = dataset.len();
    match (&dataset.samples, &dataset.labels) {
        (Samples::Images(images), Labels::Classes { values, .. }) => {
            let [height, width, channels] = images.shape;
            let pixels = Entry::bytes("pixels", vec![count, height, width, channels], &images.pixels);
            Ok(vec![pixels, Entry::integers("targets", vec![count], values.iter().map(|&value| value.into()))])
        }
        (Samples::Sequences(text), Labels::NextSymbols(next)) => {
            let shape = vec![count, text.length];
            let targets = Entry::integers("targets", shape.clone(), next.iter().map(|&symbol| symbol.into()));
            Ok(vec![Entry::bytes("symbols", shape, &text.symbols), targets])
        }
        _ => Err("only pictures with classes and text can be written".into()),
    }
}

/// Reads what [`write()`] wrote; the orders are left to the other side, and tell here only who holds what.
pub(crate) fn read(folder: &Path, kind: Kind) -> Result<Held> {
    let bytes = fs::read(folder.join(DATA))?;
    let file = SafeTensors::deserialize(&bytes)?;
    let targets = integers(&file, "targets")?;
    let (samples, labels) = match kind {
        Kind::Shakespeare => {
            let next = targets.into_iter().map(|symbol| symbol as u8).collect();
            let symbols = file.tensor("symbols")?.data().to_vec();
            (Samples::Sequences(Sequences { length: 16, vocabulary: 90, symbols }), Labels::NextSymbols(next))
        }
        Kind::Femnist | Kind::Cifar10 => {
            let pixels = file.tensor("pixels")?;
            let shape = [pixels.shape()[1], pixels.shape()[2], pixels.shape()[3]];
            (Samples::Images(images(shape, pixels.data().to_vec())), classes(kind, targets))
        }
    };
    let dataset = Dataset { name: "benchmark".into(), samples, labels, owners: None, test_start: None };
    Ok(Held { dataset, clients: clients(&file)? })
}

/// Pictures whose bytes stand for numbers between 0 and 1.
pub(crate) fn images(shape: [usize; 3], pixels: Vec<u8>) -> Images {
    Images { shape, pixels, white: 255, scaling: Scaling::identity(shape[2]) }
}

/// Labels of a kind of pictures.
pub(crate) fn classes(kind: Kind, values: Vec<u32>) -> Labels {
    let names = (0..kind.task().classes).map(|class| class.to_string()).collect();
    Labels::Classes { names, values: values.into_iter().map(|value| value as u16).collect() }
}

fn clients(file: &SafeTensors) -> Result<Vec<ClientIndices>> {
    let ends = integers(file, "order/ends")?;
    let starts = std::iter::once(0).chain(ends.iter().copied());
    Ok(starts.zip(&ends).map(|(start, &end)| client(start, end)).collect())
}

/// A client that trains on a stretch of the samples.
pub(crate) fn client(start: u32, end: u32) -> ClientIndices {
    let (validation, test) = (Vec::new(), vec![start]);
    ClientIndices { name: format!("client-{start}"), train: (start..end).collect(), validation, test }
}

fn integers(file: &SafeTensors, name: &str) -> Result<Vec<u32>> {
    let words = file.tensor(name)?.data().chunks_exact(4);
    Ok(words.map(|word| i32::from_le_bytes([word[0], word[1], word[2], word[3]]) as u32).collect())
}
