//! The settings that every method shares.
use std::num::NonZeroUsize;

use fedeq_data::shard::Remainder;
use fedeq_equilibrium::WarmStart;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fixed_points::Search;
use crate::projection::Projection;

/// How a client trains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// Step size for shared parameters.
    pub learning_rate: f64,
    /// Step size for personal parameters, where they are trained on their own; the shared one if left out.
    pub personal_learning_rate: Option<f64>,
    /// Passes over the local data for shared parameters, or for the whole model.
    pub epochs: usize,
    /// Passes over the local data for personal parameters, where they are trained on their own.
    pub personal_epochs: usize,
    /// Samples a gradient step.
    pub batch_size: NonZeroUsize,
    /// What becomes of samples that do not fill a batch.
    pub remainder: Remainder,
    /// Where equilibrium solves start.
    pub warm_start: WarmStart,
    /// Where personal parameters start.
    pub initial_heads: InitialHeads,
    /// Keeps DEQ-MLP's cell contractive, if given.
    pub projection: Option<Projection>,
    /// Looks at every evaluation whether solves started elsewhere end elsewhere, if given.
    pub watch_fixed_points: Option<Search>,
}

/// Where the clients' personal parameters start, `w_i^0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitialHeads {
    /// All at the same draw, as in the authors' code.
    #[default]
    Same,
    /// Each client at a draw of its own, as Algorithm 1 of the paper says.
    Own,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            learning_rate: 0.01,
            personal_learning_rate: None,
            epochs: 5,
            personal_epochs: 3,
            batch_size: const { NonZeroUsize::new(10).unwrap() },
            remainder: Remainder::Drop,
            warm_start: WarmStart::Off,
            initial_heads: InitialHeads::Same,
            projection: None,
            watch_fixed_points: None,
        }
    }
}

impl Training {
    /// The step size for personal parameters.
    pub fn personal_rate(&self) -> f64 {
        self.personal_learning_rate.unwrap_or(self.learning_rate)
    }

    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<()> {
        if self.epochs == 0 && self.personal_epochs == 0 {
            let problem = "`training.epochs` and `training.personal_epochs` are both `0`, so nothing is trained";
            return Err(Error::invalid(problem, "give at least one of them a pass over the data"));
        }
        at_most("training.epochs", self.epochs, MOST_EPOCHS)?;
        at_most("training.personal_epochs", self.personal_epochs, MOST_EPOCHS)?;
        at_most("training.batch_size", self.batch_size.get(), MOST_SAMPLES)?;
        positive("training.learning_rate", self.learning_rate)?;
        positive("training.personal_learning_rate", self.personal_rate())?;
        self.watch_fixed_points.map_or(Ok(()), |search| search.validate("training.watch_fixed_points."))?;
        self.projection.map_or(Ok(()), Projection::validate)
    }
}

/// Passes over a client's data in one round; more would never come to an end.
pub(crate) const MOST_EPOCHS: usize = 1_000_000;
/// Samples a gradient step; no client has more.
const MOST_SAMPLES: usize = 1_000_000;

pub(crate) fn at_most(name: &str, value: usize, most: usize) -> Result<()> {
    if value <= most {
        return Ok(());
    }
    Err(Error::invalid(format!("`{name}` is `{value}`"), format!("give at most {most}")))
}

pub(crate) fn positive(name: &str, value: f64) -> Result<()> {
    if is_float(value) && value > 0.0 {
        return Ok(());
    }
    Err(Error::invalid(format!("`{name}` is `{value}`"), "give a number above 0"))
}

pub(crate) fn non_negative(name: &str, value: f64) -> Result<()> {
    if is_float(value) && value >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid(format!("`{name}` is `{value}`"), "give a number of at least 0"))
}

/// Whether it is still a number in single precision, in which networks compute.
pub(crate) fn is_float(value: f64) -> bool {
    (value as f32).is_finite()
}

pub(crate) fn share(name: &str, value: f64) -> Result<()> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("`{name}` is `{value}`"), "give a number between 0 and 1"))
}
