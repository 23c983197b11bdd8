//! What a client holds, as it was given.
use fedeq_core::Result;
use fedeq_data::partition::ClientIndices;
use fedeq_data::{Dataset, Labels, Samples};

use crate::experiment::Prepared;

/// Some samples and what is to be predicted for them, in the order of the data set.
pub struct HeldSamples {
    /// What they are for: `train`, `validation` or `test`.
    pub part: &'static str,
    /// How many there are.
    pub count: usize,
    /// The samples, in the units in which the data holds them: what a model may be asked about.
    pub samples: Samples,
    /// What is to be predicted.
    pub labels: Labels,
}

/// What a client learns from, tunes on and is evaluated by.
pub fn held(prepared: &Prepared, client: usize) -> Result<[HeldSamples; 3]> {
    prepared.require_client(client)?;
    // Scaling is not undone to the last digit: numbers are read again.
    let raw = prepared.scaling.as_ref().map(|_| prepared.experiment.load()).transpose()?;
    let samples = raw.as_ref().map_or(&prepared.dataset.samples, |raw| &raw.samples);
    let mut clients = prepared.splits.clients.iter().chain(&prepared.splits.unseen);
    let empty = ClientIndices { name: String::new(), train: Vec::new(), validation: Vec::new(), test: Vec::new() };
    let ClientIndices { train, validation, test, .. } = clients.nth(client).unwrap_or(&empty);
    let some = |part, indices: &Vec<u32>| HeldSamples {
        part,
        count: indices.len(),
        samples: chosen(samples, indices),
        labels: labels_of(&prepared.dataset, indices),
    };
    Ok([some("train", train), some("validation", validation), some("test", test)])
}

fn chosen(samples: &Samples, indices: &[u32]) -> Samples {
    match samples {
        Samples::Images(images) => {
            let pixels = rows(&images.pixels, images.shape.iter().product(), indices);
            Samples::Images(fedeq_data::Images {
                shape: images.shape,
                pixels,
                white: images.white,
                scaling: images.scaling.clone(),
            })
        }
        Samples::Vectors(vectors) => {
            let values = rows(&vectors.values, vectors.width, indices);
            Samples::Vectors(fedeq_data::Vectors { width: vectors.width, values })
        }
        Samples::Sequences(sequences) => {
            let symbols = rows(&sequences.symbols, sequences.length, indices);
            Samples::Sequences(fedeq_data::Sequences { symbols, length: sequences.length, vocabulary: sequences.vocabulary })
        }
    }
}

fn labels_of(dataset: &Dataset, indices: &[u32]) -> Labels {
    match &dataset.labels {
        Labels::Classes { names, values } => Labels::Classes { names: names.clone(), values: rows(values, 1, indices) },
        Labels::NextSymbols(next) => Labels::NextSymbols(rows(next, next.len() / dataset.len().max(1), indices)),
    }
}

fn rows<V: Copy>(values: &[V], each: usize, indices: &[u32]) -> Vec<V> {
    indices.iter().flat_map(|&index| &values[index as usize * each..][..each]).copied().collect()
}
