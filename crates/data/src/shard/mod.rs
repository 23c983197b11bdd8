//! One client's samples, and the batches cut from them.
mod augment;
mod batch;
mod batches;
mod reader;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

pub use augment::{Augmentation, PictureChange};
pub use batch::{Batch, Inputs, Targets};
pub use batches::{Batches, Remainder};

use crate::{Dataset, Error, Result, Seed};

/// A client's view of a data set: some of its samples, none of them copied.
///
/// ```
/// # use std::num::NonZeroUsize;
/// # use std::sync::Arc;
/// use fedeq_data::shard::{Remainder, Shard};
/// use fedeq_data::{Dataset, Labels, Samples, Seed, Vectors};
///
/// let dataset = Arc::new(Dataset {
///     name: "four numbers".into(),
///     samples: Samples::Vectors(Vectors { width: 1, values: vec![0.0, 10.0, 20.0, 30.0] }),
///     labels: Labels::Classes { names: vec!["low".into(), "high".into()], values: vec![0, 0, 1, 1] },
///     owners: None,
///     test_start: None,
/// });
/// let shard = Shard::new(dataset, vec![0, 2, 3])?;
/// let two = NonZeroUsize::new(2).expect("two is not zero");
///
/// let sizes: Vec<usize> = shard.in_order(two).map(|batch| batch.len()).collect();
/// assert_eq!(sizes, [2, 1]);
/// for epoch in 0..3 {
///     let seed = Seed::new(7).derive("epoch", [epoch]);
///     assert_eq!(shard.batches(two, Remainder::Drop, seed).count(), 1);
/// }
/// // The same batches as lists of indices.
/// assert_eq!(shard.in_order(two).indices().collect::<Vec<_>>(), [vec![0, 2], vec![3]]);
/// # Ok::<(), fedeq_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Shard {
    dataset: Arc<Dataset>,
    indices: Vec<u32>,
}

impl Shard {
    /// The samples of `dataset` that `indices` name, in that order.
    pub fn new(dataset: Arc<Dataset>, indices: Vec<u32>) -> Result<Self> {
        let samples = dataset.len();
        if let Some(stranger) = indices.iter().find(|&&index| index as usize >= samples) {
            let problem = format!("sample `{stranger}` is not below the `{samples}` samples of `{}`", dataset.name);
            return Err(Error::unmeetable(problem, "use indices that were assigned from this very data set"));
        }
        Ok(Self { dataset, indices })
    }

    /// How many samples it shows.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether it shows none.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// The data set behind it.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Which samples of the data set it shows.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// One epoch for training: the samples in an order that depends on `seed` alone, cut into batches.
    ///
    /// A batch has `min(len, batch_size)` samples, so that a client with few samples still trains. Derive a seed an epoch:
    /// equal seeds give equal epochs.
    pub fn batches(&self, batch_size: NonZeroUsize, remainder: Remainder, seed: Seed) -> Batches<'_> {
        self.batches_of(0..self.len(), batch_size, remainder, seed)
    }

    /// The same of a part of the samples, by their places.
    pub fn batches_of(&self, part: Range<usize>, batch_size: NonZeroUsize, remainder: Remainder, seed: Seed) -> Batches<'_> {
        Batches::shuffled(&self.dataset, &self.indices[part], batch_size, remainder, seed)
    }

    /// All samples once, in order, for evaluation; the last batch may be smaller.
    pub fn in_order(&self, batch_size: NonZeroUsize) -> Batches<'_> {
        Batches::in_order(&self.dataset, &self.indices, batch_size)
    }
}
