//! What can be refused of an experiment without its data.
use fedeq_core::{AttackKind, Error, InitialHeads, Method, Result};
use fedeq_data::source::SampleKind;
use fedeq_models::{ModelConfig, Part};

use super::{Experiment, equilibrium_models, models_that, one_of};

impl Experiment {
    /// Refuses a schedule over rounds where there are none.
    fn check_schedule(&self) -> Result<()> {
        if self.training.schedule.is_none() || self.plan.asynchronous.is_none() {
            return Ok(());
        }
        let problem = "`training.schedule` goes by rounds, and with `plan.asynchronous` clients begin at any time";
        Err(Error::invalid(problem, "leave out one of them; `training.local_schedule` works with both"))
    }

    /// Refuses to wait for a validation accuracy where there will be none.
    fn check_patience(&self) -> Result<()> {
        if self.plan.patience.is_none() || self.data.split.validation > 0.0 {
            return Ok(());
        }
        let problem =
            "`plan.patience` waits for a better validation accuracy, and `data.split.validation` sets nothing aside for it";
        Err(Error::invalid(problem, "set `data.split.validation`, such as `0.1`, or leave out `plan.patience`"))
    }

    /// Refuses what can be refused without data.
    pub fn check_settings(&self) -> Result<()> {
        if i64::try_from(self.seed).is_err() {
            return Err(Error::invalid(format!("`seed` is `{}`", self.seed), super::TOO_LARGE));
        }
        self.training.validate()?;
        self.method.algorithm().validate()?;
        self.training.validate_method(self.method.algorithm())?;
        self.check_schedule()?;
        self.plan.validate(self.method.algorithm())?;
        self.check_patience()?;
        self.check_external()?;
        self.check_equilibrium()?;
        self.check_projection()?;
        self.check_watch()?;
        self.check_heads()?;
        self.check_symbols()?;
        self.data.source.validate()?;
        self.check_attack()?;
        self.engine.check_device()?;
        at_least_one("engine.checkpoint_every", self.engine.checkpoint_every)?;
        at_least_one("engine.checkpoint_seconds", self.engine.checkpoint_seconds)?;
        self.engine.workers.map_or(Ok(()), |workers| at_most("engine.workers", workers.get(), MOST_WORKERS))?;
        at_most("engine.client_memory_mb", self.engine.client_memory_mb, MOST_MEGABYTES)?;
        if let Some(megabytes) = self.engine.device_memory_mb {
            at_most("engine.device_memory_mb", megabytes, MOST_MEGABYTES)?;
        }
        at_least_one("engine.client_memory_mb", self.engine.client_memory_mb as u64)
    }

    /// Refuses settings of the equilibrium that mean nothing, by their whole paths.
    fn check_equilibrium(&self) -> Result<()> {
        let Some(equilibrium) = self.model.equilibrium() else { return Ok(()) };
        equilibrium.validate().map_err(|setting| {
            let setting = setting.under("model.equilibrium");
            Error::invalid(format!("`{}` is `{}`", setting.name, setting.value), format!("give {}", setting.expected))
        })
    }

    fn check_projection(&self) -> Result<()> {
        if self.training.projection.is_none() || self.model.has_projected_matrix() {
            return Ok(());
        }
        let problem = format!("`training.projection` does not go with `{}`, which has no matrix to project", self.model.name());
        Err(Error::invalid(problem, format!("leave it out, or choose {}", models_that(ModelConfig::has_projected_matrix))))
    }

    /// Heads of their own mean something only to methods that keep them with the clients.
    fn check_heads(&self) -> Result<()> {
        if self.training.initial_heads == InitialHeads::Same || !self.method.algorithm().shares(Part::Personal) {
            return Ok(());
        }
        let method = self.method.name();
        let problem =
            format!("`training.initial_heads = own` does not go with `{method}`, where the server sends every client its head");
        let keeps_heads = |name: &&str| Method::named(name).is_ok_and(|method| !method.algorithm().shares(Part::Personal));
        let methods = one_of(Method::NAMES.into_iter().filter(keeps_heads));
        Err(Error::invalid(problem, format!("leave it out, or choose a method whose clients keep their heads: {methods}")))
    }

    fn check_symbols(&self) -> Result<()> {
        let is_text = self.data.source.entry().kind == SampleKind::Text;
        match self.method.algorithm().needs_text() {
            Some(setting) if !is_text => {
                let problem = format!("`{setting}` does not go with `{}`, which is not text", self.data.source.name());
                Err(Error::invalid(problem, "leave it out"))
            }
            _ => Ok(()),
        }
    }

    fn check_attack(&self) -> Result<()> {
        let Some(attack) = &self.attack else { return Ok(()) };
        if attack.kind == AttackKind::LabelFlip && self.data.source.entry().kind == SampleKind::Text {
            let problem =
                format!("`attack = label-flip` does not go with `{}`, which has no labels but text", self.data.source.name());
            return Err(Error::invalid(problem, "choose another attack, or data with classes"));
        }
        if attack.kind != AttackKind::LabelFlip && self.plan.secure_aggregation.is_some() {
            // A liar need not keep to the clip, and no server sees what is under a mask: a simulation that clips its lies would be too kind.
            let problem = "`attack` does not go with `plan.secure_aggregation`: what a malicious client would put under its masks is not simulated";
            return Err(Error::invalid(problem, "leave one of the two out, or choose `attack=label-flip`"));
        }
        attack.validate(self.method.algorithm())
    }

    fn check_watch(&self) -> Result<()> {
        if self.training.watch_fixed_points.is_none() || self.model.is_equilibrium() {
            return Ok(());
        }
        let model = self.model.name();
        let problem = format!("`training.watch_fixed_points` does not go with `{model}`, which solves for no fixed point");
        Err(Error::invalid(problem, format!("leave it out, or choose {}", equilibrium_models())))
    }
}

/// More threads than any machine has cores are a slip, and asking for a million of them would hurt.
pub(super) const MOST_WORKERS: usize = 4096;

/// A petabyte.
pub(super) const MOST_MEGABYTES: usize = 1_000_000_000;

fn at_most(name: &str, value: usize, most: usize) -> Result<()> {
    if value <= most { Ok(()) } else { Err(Error::invalid(format!("`{name}` is `{value}`"), format!("give at most {most}"))) }
}

fn at_least_one(name: &str, value: u64) -> Result<()> {
    if value > 0 { Ok(()) } else { Err(Error::invalid(format!("`{name}` is `0`"), "give a whole number of at least 1")) }
}
