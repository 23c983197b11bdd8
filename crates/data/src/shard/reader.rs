//! Stored samples turned into the numbers a model sees.
use std::convert::identity;

use super::batch::{Batch, Inputs, Targets};
use crate::{Dataset, Images, Labels, Samples};

/// Reads samples of one data set by index.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    dataset: &'a Dataset,
    /// What each byte of each channel stands for; empty unless the samples are pictures.
    tables: Vec<[f32; 256]>,
}

impl<'a> Reader<'a> {
    pub(super) fn of(dataset: &'a Dataset) -> Self {
        let tables = match &dataset.samples {
            Samples::Images(images) => (0..images.shape[2]).map(|channel| scaled_bytes(images, channel)).collect(),
            Samples::Vectors(_) | Samples::Sequences(_) => Vec::new(),
        };
        Self { dataset, tables }
    }

    /// The samples with these indices as a batch.
    pub(super) fn read(&self, indices: &[u32]) -> Batch {
        let ids = indices.iter().map(|&index| u64::from(index)).collect();
        Batch { inputs: self.inputs(indices), targets: self.targets(indices), ids }
    }

    fn inputs(&self, indices: &[u32]) -> Inputs {
        let samples = indices.len();
        match &self.dataset.samples {
            Samples::Images(images) => {
                let [height, width, channels] = images.shape;
                Inputs::Dense { values: self.scale(images, indices), shape: vec![samples, height, width, channels] }
            }
            Samples::Vectors(vectors) => {
                let values = gather(&vectors.values, vectors.width, indices, identity);
                Inputs::Dense { values, shape: vec![samples, vectors.width] }
            }
            Samples::Sequences(sequences) => {
                let values = gather(&sequences.symbols, sequences.length, indices, i32::from);
                Inputs::Symbols { values, shape: vec![samples, sequences.length] }
            }
        }
    }

    fn targets(&self, indices: &[u32]) -> Targets {
        match &self.dataset.labels {
            Labels::Classes { values, .. } => Targets::Classes(gather(values, 1, indices, i32::from)),
            Labels::NextSymbols(symbols) => {
                let length = symbols.len() / self.dataset.len();
                Targets::Symbols { values: gather(symbols, length, indices, i32::from), shape: vec![indices.len(), length] }
            }
        }
    }

    fn scale(&self, images: &Images, indices: &[u32]) -> Vec<f32> {
        let [height, width, channels] = images.shape;
        let size = height * width * channels;
        let mut values = vec![0.0; indices.len() * size];
        for (scaled, &index) in values.chunks_exact_mut(size).zip(indices) {
            let pixels = row(&images.pixels, size, index).chunks_exact(channels);
            for (scaled, pixel) in scaled.chunks_exact_mut(channels).zip(pixels) {
                for ((value, &byte), table) in scaled.iter_mut().zip(pixel).zip(&self.tables) {
                    *value = table[usize::from(byte)];
                }
            }
        }
        values
    }
}

/// The number each byte of one channel stands for.
fn scaled_bytes(images: &Images, channel: usize) -> [f32; 256] {
    let (mean, deviation) = (images.scaling.mean[channel], images.scaling.deviation[channel]);
    std::array::from_fn(|byte| (byte as f32 / f32::from(images.white) - mean) / deviation)
}

/// The rows of `values` with these indices, end to end.
fn gather<T: Copy, U>(values: &[T], width: usize, indices: &[u32], convert: impl Fn(T) -> U) -> Vec<U> {
    let mut gathered = Vec::with_capacity(indices.len() * width);
    for &index in indices {
        gathered.extend(row(values, width, index).iter().map(|&value| convert(value)));
    }
    gathered
}

fn row<T>(values: &[T], width: usize, index: u32) -> &[T] {
    let start = index as usize * width;
    &values[start..start + width]
}
