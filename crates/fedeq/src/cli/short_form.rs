//! Short forms of the settings that everybody types.
use clap::Args;
use fedeq_run::experiment::{Override, SHORT_FORMS};

use super::candidates;
use super::failure::{Failure, Outcome};

/// What stands for `--set` with a longer key.
#[derive(Args, Debug, Default)]
pub(super) struct ShortForms {
    /// The method, as `--set method=NAME`; `fedeq settings method` lists them
    #[arg(long, value_name = "NAME", help_heading = "Short forms of settings", add = candidates::methods())]
    method: Option<String>,
    /// The network, as `--set model=NAME`; `fedeq settings model` lists them
    #[arg(long, value_name = "NAME", help_heading = "Short forms of settings", add = candidates::values_of("model"))]
    model: Option<String>,
    /// Rounds of training, as `--set plan.rounds=N`
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Short forms of settings")]
    rounds: Option<String>,
    /// Among how many clients the data is divided, as `--set data.partition.clients=N`
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Short forms of settings")]
    clients: Option<String>,
    /// The learning rate, as `--set training.learning_rate=RATE`
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, help_heading = "Short forms of settings")]
    lr: Option<String>,
    /// All randomness comes from here, as `--set seed=N`
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Short forms of settings")]
    seed: Option<String>,
}

impl ShortForms {
    /// In the order of [`SHORT_FORMS`].
    fn values(&self) -> [&Option<String>; 6] {
        [&self.method, &self.model, &self.rounds, &self.clients, &self.lr, &self.seed]
    }

    /// The settings that they stand for; refuses those that are set by their whole keys as well.
    pub(super) fn overrides(&self, others: &[Override]) -> Outcome<Vec<Override>> {
        let mut overrides = Vec::new();
        for ((name, key), value) in SHORT_FORMS.into_iter().zip(self.values()) {
            let Some(value) = value else { continue };
            let setting: Override = format!("{key}={value}").parse().map_err(Failure::refused)?;
            let (written, typed) = (|| format!("--{name} {value}"), |other: &Override| format!("--set {other}"));
            setting.require_alone(others, written, typed).map_err(Failure::refused)?;
            overrides.push(setting);
        }
        Ok(overrides)
    }
}
