//! Fewer samples a client, for trials that must not take long.
use std::num::NonZeroUsize;

use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_splits::{ClientIndices, ClientSplits};
use crate::Seed;

/// How many samples a client keeps at most; what is left out is not limited.
///
/// ```
/// use fedeq_data::partition::Limit;
/// let limit: Limit = serde_json::from_str(r#"{ "train": 100 }"#)?;
/// assert_eq!((limit.train.map(|most| most.get()), limit.test), (Some(100), None));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limit {
    /// Samples to train on.
    pub train: Option<NonZeroUsize>,
    /// Samples to tune on.
    pub validation: Option<NonZeroUsize>,
    /// Samples to be evaluated on.
    pub test: Option<NonZeroUsize>,
}

impl ClientSplits {
    /// Lets every client forget samples, drawn by seed, until it has no more than the limit; those it keeps stay in order.
    #[must_use]
    pub fn limited(mut self, limit: Limit, seed: Seed) -> Self {
        let seed = seed.derive("limit", []);
        for (index, client) in self.clients.iter_mut().chain(&mut self.unseen).enumerate() {
            let seed = seed.derive("client", [index as u64]);
            let ClientIndices { train, validation, test, .. } = client;
            keep(train, limit.train, seed.derive("train", []));
            keep(validation, limit.validation, seed.derive("validation", []));
            keep(test, limit.test, seed.derive("test", []));
        }
        self
    }
}

fn keep(samples: &mut Vec<u32>, most: Option<NonZeroUsize>, seed: Seed) {
    let Some(most) = most.filter(|most| most.get() < samples.len()) else { return };
    samples.shuffle(&mut seed.rng());
    samples.truncate(most.get());
    samples.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn federation() -> ClientSplits {
        let client = |start: u32| ClientIndices {
            name: format!("from {start}"),
            train: (start..start + 10).collect(),
            validation: Vec::new(),
            test: (start + 10..start + 13).collect(),
        };
        ClientSplits { clients: vec![client(0), client(20)], unseen: vec![client(40)] }
    }

    #[test]
    fn every_client_keeps_at_most_the_limit_of_its_own_samples_in_order() {
        let limit = Limit { train: NonZeroUsize::new(4), ..Limit::default() };
        let limited = federation().limited(limit, Seed::new(3));
        for (before, after) in federation().clients.iter().zip(&limited.clients) {
            assert_eq!((after.train.len(), &after.test), (4, &before.test));
            assert!(after.train.is_sorted() && after.train.iter().all(|sample| before.train.contains(sample)));
        }
        assert_eq!(limited.unseen[0].train.len(), 4);
        assert_eq!(limited, federation().limited(limit, Seed::new(3)), "the same seed, the same samples");
    }

    #[test]
    fn who_has_less_keeps_everything() {
        let limit = Limit { train: NonZeroUsize::new(10), test: NonZeroUsize::new(99), ..Limit::default() };
        assert_eq!(federation().limited(limit, Seed::new(3)), federation());
    }
}
