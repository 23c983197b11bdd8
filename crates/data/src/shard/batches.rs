//! An order of samples, cut into batches one after another.
use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::ops::Range;

use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::augment::Augmentation;
use super::batch::Batch;
use super::reader::Reader;
use crate::{Dataset, Seed};

/// What becomes of the samples that do not fill a batch at the end of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Remainder {
    /// They are left out of this epoch: all batches have one size. The paper's own code does this.
    #[default]
    Drop,
    /// They form a smaller last batch.
    Keep,
}

/// The batches of one pass over a [`Shard`](super::Shard), made one at a time.
#[derive(Debug)]
pub struct Batches<'a> {
    reader: Reader<'a>,
    order: Cow<'a, [u32]>,
    /// At least 1.
    size: usize,
    /// The positions of `order` yet to come.
    rest: Range<usize>,
    augmented: Option<Augmented>,
}

/// How pictures are changed, by which seed, in which memory.
#[derive(Debug)]
struct Augmented {
    by: Augmentation,
    seed: Seed,
    spare: Vec<f32>,
}

impl<'a> Batches<'a> {
    pub(super) fn in_order(dataset: &'a Dataset, indices: &'a [u32], batch_size: NonZeroUsize) -> Self {
        let reader = Reader::of(dataset);
        Self { reader, order: Cow::Borrowed(indices), size: batch_size.get(), rest: 0..indices.len(), augmented: None }
    }

    pub(super) fn shuffled(
        dataset: &'a Dataset,
        indices: &[u32],
        batch_size: NonZeroUsize,
        remainder: Remainder,
        seed: Seed,
    ) -> Self {
        let mut order = indices.to_vec();
        order.shuffle(&mut seed.derive("shuffle", []).rng());
        let size = batch_size.get().min(order.len().max(1));
        let end = match remainder {
            Remainder::Drop => order.len() - order.len() % size,
            Remainder::Keep => order.len(),
        };
        Self { reader: Reader::of(dataset), order: Cow::Owned(order), size, rest: 0..end, augmented: None }
    }
}

impl Batches<'_> {
    /// The same with pictures changed by chance; `seed` is that of the epoch. Other samples stay as they are.
    pub fn augmented(self, by: Augmentation, seed: Seed) -> Self {
        Self { augmented: (!by.is_nothing()).then(|| Augmented { by, seed, spare: Vec::new() }), ..self }
    }

    /// One of them alone, counted from 0, or all if none is named.
    pub fn only(mut self, batch: Option<u64>) -> Self {
        if let Some(batch) = batch {
            let start = (self.size as u64).saturating_mul(batch).min(self.rest.end as u64) as usize;
            self.rest = start..self.rest.end.min(start + self.size);
        }
        self
    }

    /// The samples of each batch by their indices, and nothing of them read: for an engine that holds the data set elsewhere, such as on a device.
    pub fn indices(mut self) -> impl Iterator<Item = Vec<u32>> {
        std::iter::from_fn(move || self.advance().map(|batch| self.order[batch].to_vec()))
    }

    /// The next batch, in the memory of one that is not needed any more; says whether there is one.
    pub fn read_next(&mut self, batch: &mut Batch) -> bool {
        let next = self.advance();
        if let Some(next) = next.clone() {
            self.reader.read(&self.order[next], batch);
            if let Some(Augmented { by, seed, spare }) = &mut self.augmented {
                self.reader.augment(by, *seed, batch, spare);
            }
        }
        next.is_some()
    }

    /// The positions of the next batch.
    fn advance(&mut self) -> Option<Range<usize>> {
        if self.rest.is_empty() {
            return None;
        }
        let start = self.rest.start;
        self.rest.start += self.size.min(self.rest.len());
        Some(start..self.rest.start)
    }
}

impl Iterator for Batches<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        self.read_next(&mut batch).then_some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.rest.len().div_ceil(self.size);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Batches<'_> {}
