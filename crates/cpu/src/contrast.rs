//! A loss on embeddings: near to those by one model, far from those by another.
use std::collections::BTreeMap;

use fedeq_core::{ContrastModels, Result, Weights};
use fedeq_data::shard::Shard;

use crate::evaluate::{EVALUATION_BATCH, Evaluator};
use crate::network::{Network, input_of};
use crate::op::Start;

/// Embeddings one after the other, and how many rows of how many numbers a sample has.
pub(crate) type Rows = (Vec<f32>, [usize; 2]);

/// What two models that stay as they are make of a client's samples.
#[derive(Debug)]
pub(crate) struct Embeddings {
    weight: f64,
    temperature: f64,
    /// Where a sample's numbers are, by its number in the data set.
    place: BTreeMap<u64, usize>,
    /// Numbers of a sample: those of a row, for text of all its positions.
    each: usize,
    /// Numbers of a row.
    width: usize,
    attracting: Vec<f32>,
    repelling: Vec<f32>,
}

impl Embeddings {
    /// Those of all samples of a shard.
    pub(crate) fn of(network: &Network, samples: &Shard, contrast: &ContrastModels) -> Result<Self> {
        Self::by(samples, contrast, |weights| embedded(network, samples, weights))
    }

    /// Those of all samples of a shard, as `embedded` gives them for a model: in order, with how many rows of how many numbers a sample has.
    pub(crate) fn by(samples: &Shard, contrast: &ContrastModels, embedded: impl Fn(&Weights) -> Result<Rows>) -> Result<Self> {
        let (attracting, [rows, width]) = embedded(&contrast.attracts)?;
        let (repelling, _) = embedded(&contrast.repels)?;
        let place = samples.indices().iter().enumerate().map(|(at, &sample)| (u64::from(sample), at)).collect();
        let ContrastModels { weight, temperature, .. } = *contrast;
        Ok(Self { weight, temperature, place, each: rows * width, width, attracting, repelling })
    }

    /// Numbers of a row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The mean over rows that are not `ignored`, times the weight; its gradient goes to `gradient`.
    pub(crate) fn loss(&self, samples: &[u64], ignored: Option<&[bool]>, z: &[f32], gradient: &mut [f32]) -> f64 {
        gradient.fill(0.0);
        let rows = self.each / self.width;
        let counts = |row: usize| !ignored.is_some_and(|ignored| ignored[row]);
        let share = self.weight / (0..samples.len() * rows).filter(|&row| counts(row)).count().max(1) as f64;
        let mut sum = 0.0;
        for (row, (z, gradient)) in z.chunks_exact(self.width).zip(gradient.chunks_exact_mut(self.width)).enumerate() {
            let Some(&place) = self.place.get(&samples[row / rows]).filter(|_| counts(row)) else { continue };
            let at = place * self.each + row % rows * self.width;
            let [near, far] = [&self.attracting, &self.repelling].map(|all| &all[at..at + self.width]);
            sum += share * self.row(z, [near, far], share, gradient);
        }
        sum
    }

    /// `-log (exp(s / t) / (exp(s / t) + exp(r / t)))` of one row; so many times its gradient goes to `gradient`.
    fn row(&self, z: &[f32], [near, far]: [&[f32]; 2], share: f64, gradient: &mut [f32]) -> f64 {
        let (s, r) = (Cosine::of(z, near), Cosine::of(z, far));
        let difference = (r.value - s.value) / self.temperature;
        // log(1 + exp(difference)), without an overflow.
        let loss = difference.max(0.0) + libm::log1p(libm::exp(-difference.abs()));
        // By how much the loss grows with `r`, and falls with `s`.
        let slope = share / self.temperature / (1.0 + libm::exp(-difference));
        for (at, gradient) in gradient.iter_mut().enumerate() {
            *gradient = (slope * (r.slope(z, far, at) - s.slope(z, near, at))) as f32;
        }
        loss
    }
}

/// The cosine between two vectors, 0 where one of them is.
struct Cosine {
    value: f64,
    /// `1 / |z|^2` and `1 / (|z| |other|)`.
    scales: [f64; 2],
}

impl Cosine {
    fn of(z: &[f32], other: &[f32]) -> Self {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let (own, others) = (dot(z, z), dot(other, other));
        if own == 0.0 || others == 0.0 {
            return Self { value: 0.0, scales: [0.0; 2] };
        }
        let scale = 1.0 / (own * others).sqrt();
        Self { value: dot(z, other) * scale, scales: [1.0 / own, scale] }
    }

    /// How it grows with one number of `z`.
    fn slope(&self, z: &[f32], other: &[f32], at: usize) -> f64 {
        self.scales[1] * f64::from(other[at]) - self.scales[0] * self.value * f64::from(z[at])
    }
}

/// The embeddings of all samples in order.
fn embedded(network: &Network, samples: &Shard, weights: &Weights) -> Result<Rows> {
    let mut model = Evaluator::new(network, weights)?;
    let classes = network.graph().task.classes;
    let (mut all, mut shape) = (Vec::new(), [1, 1]);
    for batch in samples.in_order(EVALUATION_BATCH) {
        let executor = model.run(&batch, Start::Model)?;
        let embedding = executor.embedding(input_of(&batch)).unwrap_or_default();
        let rows = executor.logits().len() / classes;
        shape = [rows / batch.len(), embedding.len() / rows];
        all.extend_from_slice(embedding);
    }
    Ok((all, shape))
}
