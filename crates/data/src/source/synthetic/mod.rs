//! Generated problems whose best answer is known, to test learning against. [`Classification`] is a data set; [`Regression`] is a convex problem for tests of
//! methods without any network.
//!
//! What is generated is a pure function of the options and the seed, to the byte and on every platform: only sums, products and
//! quotients are used, no function of the system's mathematics library.
mod classification;
mod least_squares;
mod regression;

use super::{DataSet, Entry, SampleKind, UsualPartition};
use crate::{Dataset, Error, Result, Seed};
pub use classification::Classification;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
pub use regression::{Optimum, Regression, RegressionData};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// No more numbers than this are generated.
const MOST_VALUES: usize = 1 << 28;

/// Which problem, and the seed it is drawn with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Synthetic {
    /// The seed of the generated data.
    pub seed: u64,
    /// What is generated.
    pub problem: Problem,
}

/// The problems there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Problem {
    /// Classes that a line can tell apart.
    Classification(Classification),
}

impl Default for Problem {
    fn default() -> Self {
        Self::Classification(Classification::default())
    }
}

impl DataSet for Synthetic {
    const ENTRY: Entry = Entry {
        name: "synthetic",
        about: "generated classes that a line can tell apart, with a known optimum; nothing to download",
        kind: SampleKind::Numbers,
        partition: UsualPartition::NATURAL,
        places: &[],
        layout: "part of the program",
        licence: "none needed",
        citation: "none needed",
    };

    fn load(&self, _: &Path) -> Result<Dataset> {
        self.generate()
    }
}

impl Synthetic {
    /// Generates the data, without the optimum that belongs to it.
    pub fn generate(&self) -> Result<Dataset> {
        let seed = Seed::new(self.seed);
        match &self.problem {
            Problem::Classification(problem) => Ok(problem.generate(seed)?.0),
        }
    }
}

/// A number between -1 and 1, the latter never reached.
fn uniform(rng: &mut ChaCha8Rng) -> f32 {
    (rng.next_u32() >> 8) as f32 / (1u32 << 23) as f32 - 1.0
}

/// Refuses sizes of which one is zero, and more numbers than a machine has memory for.
fn check_size(clients: usize, samples: usize, width: usize) -> Result<()> {
    let values = clients.checked_mul(samples).and_then(|rows| rows.checked_mul(width));
    match values {
        Some(1..=MOST_VALUES) => Ok(()),
        _ => Err(Error::unmeetable(
            format!("`{clients}` clients of `{samples}` samples of `{width}` numbers cannot be generated"),
            format!("ask for at least one of each and at most {MOST_VALUES} numbers in all"),
        )),
    }
}

/// The owner of each sample when every client has as many.
fn owners(clients: usize, samples: usize) -> crate::Owners {
    crate::Owners {
        names: (0..clients).map(|client| format!("client {client}")).collect(),
        of: (0..clients as u32).flat_map(|client| std::iter::repeat_n(client, samples)).collect(),
    }
}
