//! A client's samples divided into training, validation and test.
use rand::RngExt;
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_splits::ClientIndices;
use crate::{Error, Result, Seed};

/// The test fraction of data sets whose publisher keeps no test set apart, where none is asked for.
pub const DEFAULT_TEST: f64 = 0.2;

/// How a client's samples are divided.
///
/// A fraction is of the samples the client is dealt, rounded to the nearest whole sample; a client keeps at least one to train on.
/// Where samples have classes, each class is divided in about the same proportions (to within one sample).
///
/// ```
/// use fedeq_data::partition::Split;
/// let split: Split = serde_json::from_str(r#"{ "validation": 0.1 }"#)?;
/// assert_eq!(split, Split { validation: 0.1, test: None });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Split {
    /// The fraction of a client's samples set aside for tuning; where the publisher's test set is used, of its training samples.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub validation: f64,
    /// The fraction set aside for testing. Left out, it is the publisher's test set, divided among the clients by the same rule
    /// as the training set, or [`DEFAULT_TEST`] where there is none. Given, the publisher's division is not used: both sets
    /// are dealt together and each client's samples are divided again.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub test: Option<f64>,
}

impl Split {
    /// Refuses fractions that are none, or that leave nothing to train on.
    pub(super) fn check(&self, is_test_published: bool) -> Result<()> {
        let test = if is_test_published { 0.0 } else { self.test_fraction() };
        let validation = self.validation;
        for (part, fraction) in [("validation", validation), ("test", test)] {
            if !(0.0..=1.0).contains(&fraction) {
                let problem = format!("the {part} part `{fraction}` is not a fraction");
                return Err(Error::unmeetable(problem, format!("set `{part}` to a number from 0 to below 1")));
            }
        }
        if validation + test >= 1.0 {
            let problem = format!("validation `{validation}` and test `{test}` leave nothing to train on");
            return Err(Error::unmeetable(problem, "set fractions whose sum is below 1"));
        }
        Ok(())
    }

    fn test_fraction(&self) -> f64 {
        self.test.unwrap_or(DEFAULT_TEST)
    }

    /// Divides the samples `own` of one client; `published` is its part of the publisher's test set where that is used.
    pub(super) fn divide(
        &self,
        name: String,
        own: Vec<u32>,
        published: Option<Vec<u32>>,
        classes: Option<&[u16]>,
        seed: Seed,
    ) -> ClientIndices {
        let samples = own.len();
        let (rest, test) = match published {
            Some(test) => (own, test),
            None => set_aside(own, share(samples, self.test_fraction()), classes, seed.derive("test", [])),
        };
        let (train, validation) = set_aside(rest, share(samples, self.validation), classes, seed.derive("validation", []));
        ClientIndices { name, train, validation, test }
    }
}

fn share(samples: usize, fraction: f64) -> usize {
    (samples as f64 * fraction).round() as usize
}

/// Takes `count` samples away, but never the last: what is kept, and what is taken.
///
/// The samples are shuffled and ordered by class, and taken at equal steps along that order from a random start: each class gives
/// within one sample of its due, whatever its size.
fn set_aside(samples: Vec<u32>, count: usize, classes: Option<&[u16]>, seed: Seed) -> (Vec<u32>, Vec<u32>) {
    let total = samples.len();
    let count = count.min(total.saturating_sub(1));
    if count == 0 {
        return (samples, Vec::new());
    }
    let mut rng = seed.rng();
    let mut order = samples;
    order.shuffle(&mut rng);
    if let Some(classes) = classes {
        order.sort_by_key(|&sample| classes[sample as usize]);
    }
    let start = rng.random_range(0..total);
    let steps_before = |position: usize| (position * count + start) / total;
    let (mut kept, mut taken) = (Vec::with_capacity(total - count), Vec::with_capacity(count));
    for (position, sample) in order.into_iter().enumerate() {
        let part = if steps_before(position + 1) > steps_before(position) { &mut taken } else { &mut kept };
        part.push(sample);
    }
    kept.sort_unstable();
    taken.sort_unstable();
    (kept, taken)
}
