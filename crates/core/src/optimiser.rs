//! How local gradients become steps: the optimiser, and how its rate changes.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::training::{is_float, non_negative, positive, share};

/// By which rule a gradient becomes a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OptimiserName {
    /// Stochastic gradient descent, with momentum if asked for.
    #[default]
    Sgd,
    /// Adam (Kingma and Ba, 2015), with weight decay as a part of the gradient.
    Adam,
    /// AdamW (Loshchilov and Hutter, 2019): weight decay beside the step.
    AdamW,
}

/// A rule with its numbers, as PyTorch has them. Moments begin at zero in every training phase: clients keep none from round to round.
///
/// `g` is the gradient of the loss, clipped if asked for, with the method's proximal term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimiser {
    /// `g <- g + weight_decay p`, `m <- momentum m + g`, `p <- p - rate m`; with Nesterov's look ahead `p <- p - rate (g + momentum m)`.
    Sgd {
        /// The share of the last direction that is kept.
        momentum: f64,
        /// Whether the step looks ahead.
        nesterov: bool,
        /// The weight decay.
        weight_decay: f64,
    },
    /// `m <- beta_1 m + (1 - beta_1) g`, `v <- beta_2 v + (1 - beta_2) g^2`, and
    /// `p <- p - rate (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon)`.
    Adam {
        /// How much of the first and of the second moment stays.
        betas: [f64; 2],
        /// Keeps the denominator from zero.
        epsilon: f64,
        /// The weight decay.
        weight_decay: f64,
        /// Whether weight decay is `p <- p - rate weight_decay p` before the step, and not a part of the gradient.
        decoupled: bool,
    },
}

impl Optimiser {
    /// Plain steps along the gradient.
    pub const PLAIN: Self = Self::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
}

/// How a rate changes over rounds, or over the gradient steps of a training phase: it is multiplied by a factor.
///
/// ```
/// use fedeq_core::{Schedule, ScheduleShape};
///
/// let schedule = Schedule { shape: ScheduleShape::Step, every: Some(10), factor: Some(0.5), ..Schedule::default() };
/// assert_eq!([0, 9, 10, 25].map(|round| schedule.factor_at(round, 100)), [1.0, 1.0, 0.5, 0.25]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// What becomes of the rate after the warm-up.
    pub shape: ScheduleShape,
    /// Rounds, or steps, in which the rate grows linearly to its full size first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<u64>,
    /// The factor at which `cosine` ends; 0 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub last: Option<f64>,
    /// After how many rounds, or steps, `step` multiplies again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub every: Option<u64>,
    /// What `step` multiplies by; 0.1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub factor: Option<f64>,
}

/// What becomes of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleShape {
    /// It stays.
    #[default]
    Constant,
    /// It falls by half a cosine, from 1 to `last`.
    Cosine,
    /// It is multiplied by `factor` after every `every`.
    Step,
}

impl Schedule {
    /// By what the rate is multiplied in a round, or step, of so many; counted from 0.
    pub fn factor_at(&self, at: u64, of: u64) -> f64 {
        let warm_up = self.warm_up.unwrap_or(0);
        if at < warm_up {
            return (at as f64 + 1.0) / (warm_up as f64 + 1.0);
        }
        let (at, of) = (at - warm_up, of.saturating_sub(warm_up).max(1));
        match self.shape {
            ScheduleShape::Constant => 1.0,
            ScheduleShape::Cosine => {
                let last = self.last.unwrap_or(0.0);
                last + (1.0 - last) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * at.min(of) as f64 / of as f64))
            }
            ScheduleShape::Step => power(self.factor.unwrap_or(0.1), at / self.every.unwrap_or(1).max(1)),
        }
    }

    /// Refuses settings that mean nothing; `name` is the path of the schedule.
    pub(crate) fn validate(&self, name: &str) -> Result<()> {
        let meaningless = |setting: &str, shape: &str| {
            let problem = format!("`{name}.{setting}` means nothing unless `{name}.shape` is `{shape}`");
            Err(Error::invalid(problem, format!("leave it out, or set `{name}.shape={shape}`")))
        };
        if self.last.is_some() && self.shape != ScheduleShape::Cosine {
            return meaningless("last", "cosine");
        }
        if self.every.is_some() && self.shape != ScheduleShape::Step {
            return meaningless("every", "step");
        }
        if self.factor.is_some() && self.shape != ScheduleShape::Step {
            return meaningless("factor", "step");
        }
        self.last.map_or(Ok(()), |last| share(&format!("{name}.last"), last))?;
        self.factor.map_or(Ok(()), |factor| positive(&format!("{name}.factor"), factor))?;
        match self.every {
            Some(0) => Err(Error::invalid(format!("`{name}.every` is `0`"), "give at least 1")),
            None if self.shape == ScheduleShape::Step => Err(Error::invalid(
                format!("`{name}.shape` is `step` and `{name}.every` is missing"),
                format!("say after how many the rate falls with `{name}.every`"),
            )),
            _ => Ok(()),
        }
    }
}

/// By squaring, so that it is the same everywhere.
fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

/// The settings of an optimiser as people give them: none means that of its rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OptimiserSettings {
    pub(crate) name: OptimiserName,
    pub(crate) momentum: Option<f64>,
    pub(crate) nesterov: bool,
    pub(crate) weight_decay: Option<f64>,
    pub(crate) betas: [Option<f64>; 2],
    pub(crate) epsilon: Option<f64>,
}

/// What Adam's numbers are if they are left out: PyTorch's.
const BETAS: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;
const ADAM_W_DECAY: f64 = 0.01;

impl OptimiserSettings {
    pub(crate) fn resolved(&self) -> Optimiser {
        let usual = if self.name == OptimiserName::AdamW { ADAM_W_DECAY } else { 0.0 };
        let weight_decay = self.weight_decay.unwrap_or(usual);
        match self.name {
            OptimiserName::Sgd => {
                Optimiser::Sgd { momentum: self.momentum.unwrap_or(0.0), nesterov: self.nesterov, weight_decay }
            }
            OptimiserName::Adam | OptimiserName::AdamW => Optimiser::Adam {
                betas: [0, 1].map(|at| self.betas[at].unwrap_or(BETAS[at])),
                epsilon: self.epsilon.unwrap_or(EPSILON),
                weight_decay,
                decoupled: self.name == OptimiserName::AdamW,
            },
        }
    }

    /// Refuses numbers that mean nothing, or nothing to this rule.
    pub(crate) fn validate(&self) -> Result<()> {
        let is_adam = self.name != OptimiserName::Sgd;
        let meaningless = [
            ("training.momentum", is_adam && self.momentum.is_some(), "sgd"),
            ("training.nesterov", is_adam && self.nesterov, "sgd"),
            ("training.beta_1", !is_adam && self.betas[0].is_some(), "adam"),
            ("training.beta_2", !is_adam && self.betas[1].is_some(), "adam"),
            ("training.epsilon", !is_adam && self.epsilon.is_some(), "adam"),
        ];
        if let Some((setting, _, of)) = meaningless.into_iter().find(|(_, is_meaningless, _)| *is_meaningless) {
            let problem = format!("`{setting}` means nothing to this `training.optimiser`");
            return Err(Error::invalid(problem, format!("leave it out, or set `training.optimiser={of}`")));
        }
        if self.nesterov && self.momentum.unwrap_or(0.0) == 0.0 {
            return Err(Error::invalid("`training.nesterov` looks ahead along a momentum of `0`", "set `training.momentum`"));
        }
        for (name, value) in
            [("training.momentum", self.momentum), ("training.beta_1", self.betas[0]), ("training.beta_2", self.betas[1])]
        {
            if let Some(value) = value.filter(|value| !(0.0..1.0).contains(value)) {
                return Err(Error::invalid(format!("`{name}` is `{value}`"), "give a number of at least 0 and below 1"));
            }
        }
        self.weight_decay.map_or(Ok(()), |decay| non_negative("training.weight_decay", decay))?;
        // A denominator of 0 in the precision of a network is no help.
        match self.epsilon {
            Some(epsilon) if !(is_float(epsilon) && epsilon as f32 > 0.0) => {
                Err(Error::invalid(format!("`training.epsilon` is `{epsilon}`"), "give a number above 0"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_follow_their_formulas() {
        let cosine = Schedule { shape: ScheduleShape::Cosine, last: Some(0.1), warm_up: Some(4), ..Schedule::default() };
        let factors: Vec<f64> = (0..14).map(|round| cosine.factor_at(round, 14)).collect();
        for (round, factor) in factors.iter().enumerate() {
            let expected = match round {
                0..4 => (round + 1) as f64 / 5.0,
                _ => 0.1 + 0.45 * (1.0 + (std::f64::consts::PI * (round - 4) as f64 / 10.0).cos()),
            };
            assert!((factor - expected).abs() < 1e-15, "{round}: {factor} instead of {expected}");
        }
        let step = Schedule { shape: ScheduleShape::Step, every: Some(3), factor: Some(0.7), ..Schedule::default() };
        for round in 0..40u64 {
            assert!((step.factor_at(round, 40) - 0.7f64.powf((round / 3) as f64)).abs() < 1e-15);
        }
        let constant = Schedule { warm_up: Some(2), ..Schedule::default() };
        assert_eq!([0, 1, 2, 9].map(|round| constant.factor_at(round, 10)), [1.0 / 3.0, 2.0 / 3.0, 1.0, 1.0]);
        assert_eq!(cosine.factor_at(u64::MAX, 1), 0.1, "beyond its end it stays");
    }

    #[test]
    fn schedules_that_mean_nothing_are_refused_by_name() {
        let wrong = [
            (Schedule { last: Some(0.1), ..Schedule::default() }, "training.schedule.last"),
            (Schedule { every: Some(3), ..Schedule::default() }, "training.schedule.every"),
            (Schedule { factor: Some(0.5), shape: ScheduleShape::Cosine, ..Schedule::default() }, "training.schedule.factor"),
            (Schedule { shape: ScheduleShape::Step, ..Schedule::default() }, "training.schedule.every"),
            (Schedule { shape: ScheduleShape::Step, every: Some(0), ..Schedule::default() }, "training.schedule.every"),
            (Schedule { shape: ScheduleShape::Cosine, last: Some(1.5), ..Schedule::default() }, "training.schedule.last"),
        ];
        for (schedule, setting) in wrong {
            let error = schedule.validate("training.schedule").expect_err("refused").to_string();
            assert!(error.contains(setting), "{error}");
        }
    }
}
