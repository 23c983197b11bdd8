//! The settings that every method shares.
use std::num::NonZeroUsize;

use fedeq_data::shard::{Augmentation, Remainder};
use fedeq_equilibrium::WarmStart;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::drift::Drift;
use crate::error::{Error, Result};
use crate::fixed_points::Search;
use crate::optimiser::{Optimiser, OptimiserName, OptimiserSettings, Schedule};
use crate::projection::Projection;

/// How a client trains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// Step size for shared parameters.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub learning_rate: f64,
    /// Step size for personal parameters, where they are trained on their own; the shared one if left out.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub personal_learning_rate: Option<f64>,
    /// Passes over the local data for shared parameters, or for the whole model.
    #[schemars(range(max = MOST_EPOCHS))]
    pub epochs: usize,
    /// Passes over the local data for personal parameters, where they are trained on their own.
    #[schemars(range(max = MOST_EPOCHS))]
    pub personal_epochs: usize,
    /// Samples a gradient step.
    #[schemars(range(min = 1, max = MOST_SAMPLES))]
    pub batch_size: NonZeroUsize,
    /// How a gradient becomes a step.
    #[serde(skip_serializing_if = "is_usual")]
    #[schemars(extend("default" = OptimiserName::default()))]
    pub optimiser: OptimiserName,
    /// The momentum of `sgd`; 0 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub momentum: Option<f64>,
    /// Whether steps with momentum look ahead, as Nesterov's do.
    #[serde(skip_serializing_if = "is_usual")]
    #[schemars(extend("default" = false))]
    pub nesterov: bool,
    /// The weight decay; if left out 0, and 0.01 for `adam-w`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub weight_decay: Option<f64>,
    /// The decay rate of the first moment, for `adam` and `adam-w`; 0.9 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub beta_1: Option<f64>,
    /// The decay rate of the second moment, for `adam` and `adam-w`; 0.999 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub beta_2: Option<f64>,
    /// Keeps the denominator of `adam` and `adam-w` from zero; 1e-8 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub epsilon: Option<f64>,
    /// The largest Euclidean norm of the loss's gradient, over all that is trained; a longer gradient is scaled down to it. No limit if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip_gradient: Option<f64>,
    /// Changes pictures by chance each time they are trained on, if given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub augment: Option<Augmentation>,
    /// Concept drift: in each round a client trains on a window of its samples, which moves over the rounds; on all of them in every round if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// How step sizes change over rounds; not at all if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// How step sizes change over the gradient steps of every training phase; not at all if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_schedule: Option<Schedule>,
    /// What becomes of samples that do not fill a batch.
    pub remainder: Remainder,
    /// Where equilibrium solves start.
    pub warm_start: WarmStart,
    /// Where personal parameters start.
    pub initial_heads: InitialHeads,
    /// Keeps DEQ-MLP's cell contractive, if given.
    pub projection: Option<Projection>,
    /// At every evaluation, tests whether the solver finds different fixed points from different initial states, if given.
    pub watch_fixed_points: Option<Search>,
}

/// Where the clients' personal parameters start, `w_i^0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
            optimiser: OptimiserName::Sgd,
            momentum: None,
            nesterov: false,
            weight_decay: None,
            beta_1: None,
            beta_2: None,
            epsilon: None,
            clip_gradient: None,
            augment: None,
            drift: None,
            schedule: None,
            local_schedule: None,
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

    /// How a gradient becomes a step, with all its numbers.
    pub fn optimiser(&self) -> Optimiser {
        self.optimiser_settings().resolved()
    }

    fn optimiser_settings(&self) -> OptimiserSettings {
        let Self { optimiser: name, momentum, nesterov, weight_decay, beta_1, beta_2, epsilon, .. } = *self;
        OptimiserSettings { name, momentum, nesterov, weight_decay, betas: [beta_1, beta_2], epsilon }
    }

    /// The first setting with which steps do not go along the gradient as it is, if there is one.
    pub fn beyond_plain_steps(&self) -> Option<&'static str> {
        let settings = [
            ("training.optimiser", self.optimiser != OptimiserName::Sgd),
            ("training.momentum", self.momentum.is_some_and(|momentum| momentum != 0.0)),
            ("training.weight_decay", self.weight_decay.is_some_and(|decay| decay != 0.0)),
            ("training.clip_gradient", self.clip_gradient.is_some()),
        ];
        settings.into_iter().find(|(_, is_on)| *is_on).map(|(setting, _)| setting)
    }

    /// Refuses what does not go with a method.
    pub fn validate_method(&self, algorithm: &dyn Algorithm) -> Result<()> {
        if algorithm.contrasts() && self.augment.is_some() {
            let problem =
                "`training.augment` does not go with this method, which contrasts embeddings of the unaugmented samples";
            return Err(Error::invalid(problem, "leave it out, or choose another method"));
        }
        match self.beyond_plain_steps().filter(|_| algorithm.needs_plain_steps()) {
            Some(setting) => Err(Error::invalid(
                format!(
                    "`{setting}` does not go with this method, which derives control values from the length of plain gradient steps"
                ),
                "leave it out, or choose another method",
            )),
            None => Ok(()),
        }
    }

    /// How many of a client's samples it trains on in a round.
    pub fn samples(&self, of: usize) -> usize {
        self.drift.map_or(of, |drift| drift.samples(of))
    }

    /// How many gradient steps an epoch has, of a client with so many samples.
    pub fn steps(&self, samples: usize) -> usize {
        let samples = self.samples(samples);
        let batch = self.batch_size.get().min(samples.max(1));
        match self.remainder {
            Remainder::Drop => samples / batch,
            Remainder::Keep => samples.div_ceil(batch),
        }
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
        self.optimiser_settings().validate()?;
        self.clip_gradient.map_or(Ok(()), |most| positive("training.clip_gradient", most))?;
        if self.augment.is_some_and(|augment| augment.is_nothing()) {
            return Err(Error::invalid("`training.augment` changes nothing", "say `crop` or `flip`, or leave it out"));
        }
        at_most("training.augment.crop", self.augment.and_then(|augment| augment.crop).unwrap_or(0), MOST_PIXELS)?;
        self.drift.map_or(Ok(()), |drift| drift.validate())?;
        self.schedule.map_or(Ok(()), |schedule| schedule.validate("training.schedule"))?;
        self.local_schedule.map_or(Ok(()), |schedule| schedule.validate("training.local_schedule"))?;
        self.watch_fixed_points.map_or(Ok(()), |search| search.validate("training.watch_fixed_points."))?;
        self.projection.map_or(Ok(()), Projection::validate)
    }
}

/// Whether a setting need not be written down.
fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Passes over a client's data in one round; more would never come to an end.
pub(crate) const MOST_EPOCHS: usize = 1_000_000;
/// Pixels that a picture may be moved by; none is larger.
const MOST_PIXELS: usize = 10_000;
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
