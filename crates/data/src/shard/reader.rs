//! Stored samples turned into the numbers a model sees.
use std::convert::identity;

use super::augment::Augmentation;
use super::batch::{Batch, Inputs, Targets};
use crate::{Dataset, Images, Labels, Samples, Seed};

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

    /// The samples with these indices as a batch, in the memory of another one.
    pub(super) fn read(&self, indices: &[u32], batch: &mut Batch) {
        batch.ids.clear();
        batch.ids.extend(indices.iter().map(|&index| u64::from(index)));
        self.inputs(indices, &mut batch.inputs);
        self.targets(indices, &mut batch.targets);
    }

    /// Changes the pictures of a batch by chance.
    pub(super) fn augment(&self, by: &Augmentation, seed: Seed, batch: &mut Batch, spare: &mut Vec<f32>) {
        let (Samples::Images(images), Inputs::Dense { values, .. }) = (&self.dataset.samples, &mut batch.inputs) else { return };
        let black: Vec<f32> = self.tables.iter().map(|table| table[0]).collect();
        let each = images.shape.iter().product::<usize>();
        for (picture, &sample) in values.chunks_exact_mut(each).zip(&batch.ids) {
            by.apply(seed, sample, picture, images.shape, &black, spare);
        }
    }

    fn inputs(&self, indices: &[u32], inputs: &mut Inputs) {
        let samples = indices.len();
        match &self.dataset.samples {
            Samples::Images(images) => {
                let [height, width, channels] = images.shape;
                self.scale(images, indices, inputs.dense(&[samples, height, width, channels]));
            }
            Samples::Vectors(vectors) => {
                gather(&vectors.values, vectors.width, indices, identity, inputs.dense(&[samples, vectors.width]));
            }
            Samples::Sequences(sequences) => {
                let values = inputs.symbols([samples, sequences.length]);
                gather(&sequences.symbols, sequences.length, indices, i32::from, values);
            }
        }
    }

    fn targets(&self, indices: &[u32], targets: &mut Targets) {
        match &self.dataset.labels {
            Labels::Classes { values, .. } => gather(values, 1, indices, i32::from, targets.classes()),
            Labels::NextSymbols(symbols) => {
                let length = symbols.len() / self.dataset.len();
                gather(symbols, length, indices, i32::from, targets.symbols([indices.len(), length]));
            }
        }
    }

    fn scale(&self, images: &Images, indices: &[u32], values: &mut Vec<f32>) {
        let [height, width, channels] = images.shape;
        let size = height * width * channels;
        values.resize(indices.len() * size, 0.0);
        for (scaled, &index) in values.chunks_exact_mut(size).zip(indices) {
            let pixels = row(&images.pixels, size, index).chunks_exact(channels);
            for (scaled, pixel) in scaled.chunks_exact_mut(channels).zip(pixels) {
                for ((value, &byte), table) in scaled.iter_mut().zip(pixel).zip(&self.tables) {
                    *value = table[usize::from(byte)];
                }
            }
        }
    }
}

/// The number each byte of one channel stands for.
fn scaled_bytes(images: &Images, channel: usize) -> [f32; 256] {
    let (mean, deviation) = (images.scaling.mean[channel], images.scaling.deviation[channel]);
    std::array::from_fn(|byte| (byte as f32 / f32::from(images.white) - mean) / deviation)
}

/// The rows of `values` with these indices, end to end.
fn gather<T: Copy, U>(values: &[T], width: usize, indices: &[u32], convert: impl Fn(T) -> U, gathered: &mut Vec<U>) {
    gathered.clear();
    for &index in indices {
        gathered.extend(row(values, width, index).iter().map(|&value| convert(value)));
    }
}

fn row<T>(values: &[T], width: usize, index: u32) -> &[T] {
    let start = index as usize * width;
    &values[start..start + width]
}
