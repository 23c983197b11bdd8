//! Presets: every place where the paper and its authors' code differ, decided three times.
//!
//! A preset is a way to fill in what an experiment leaves out; whatever an experiment says stands. The switches of a method are in its own file (`Algorithm::apply_preset`), those of a network in
//! its own (`Architecture::apply_preset`), the numbers of a data set in its own (`DataSet::training`), the others here.
//!
//! | switch | `recommended` | `paper` | `reference` |
//! |---|---|---|---|
//! | gradient of an equilibrium | Jacobian-free | Jacobian-free | implicit: GMRES for images, Broyden for text |
//! | forward solver | Anderson, relative tolerance 1e-3 | the same | Anderson (images) or Broyden (text), absolute tolerances |
//! | warm start | by sample | by sample | none |
//! | normalisation in the cell | textbook | textbook | row-wise |
//! | FeDEQ: theta-step starts from | the received theta | theta_i | theta_i if also chosen in the round before |
//! | FeDEQ: head is trained on | the received theta | the received theta | where the theta-step starts |
//! | FeDEQ: mean over clients | uniform | uniform | by samples for images, uniform for text |
//! | FeDEQ: dual starts at | 0 | 0 | 0 for images, 0.001 for text |
//! | FeDEQ: ADMM terms of a step | whole | whole | divided by the symbols of the batch for text |
//! | rounds | T | T | T + 1 |
//! | FedAvg, Ditto: unseen clients | train the model | train the model | take it as it is |
//! | FedAvg: sampling for text | without replacement | without | with replacement |
//! | FedAvg+FT | all rounds, then 5 epochs | the same | rounds after the first 30 % |
//! | Ditto: personal model starts from | its last | its last | the global model just trained |
//! | FedPer | joint training | joint training | head first, then joint training |
//! | DEQ-MLP: bias in the cell | yes | yes | no |
//! | DEQ-Transformer: embedded symbols are injected | 8 times as large | as they are | as they are |
//!
//! The paper says that duals start "randomly" and gives no scale, so `paper` starts them at 0; `method.dual` can say otherwise. It says the same of
//! the heads `w_i`, which start alike in the authors' code and in all presets; `training.initial_heads = "own"` draws each client its own.
//!
//! `reference` does not offer what only an oversight explains: dropout at evaluation, padding counted as right answers, the same shuffling in both phases of a round, the last instead of random clients held out, unseen
//! clients served with the theta of the round before, kNN-Per's datastore embedded with batch statistics. Conjugate gradients on
//! the normal equations are stood in for by GMRES, which solves the same system to the same tolerance.
pub use fedeq_core::Preset;
use fedeq_core::{Method, Plan, Result, Sampling, Training};
use fedeq_data::source::{SampleKind, Source, UsualTraining};
use fedeq_equilibrium::WarmStart;
use fedeq_models::ModelConfig;

/// What a preset fills in for a data set.
pub struct PresetValues {
    preset: Preset,
    usual: UsualTraining,
    is_text: bool,
}

impl PresetValues {
    /// Those of a preset for that data.
    pub fn of(preset: Preset, source: &Source) -> Self {
        Self { preset, usual: source.training(), is_text: source.entry().kind == SampleKind::Text }
    }

    /// The method of that name.
    pub fn method(&self, name: &str) -> Result<Method> {
        Method::of_preset(name, self.preset, self.is_text)
    }

    /// The model of that name, or the one that the paper's runs use for this method.
    pub fn model(&self, name: Option<&str>, method: &Method) -> Result<ModelConfig> {
        let UsualTraining { equilibrium, explicit, .. } = self.usual;
        let name = name.unwrap_or(if method.algorithm().prefers_equilibrium() { equilibrium } else { explicit });
        let mut model: ModelConfig = name.parse()?;
        model.apply_preset(self.preset);
        Ok(model)
    }

    /// How clients train.
    pub fn training(&self, method: &Method, model: &ModelConfig) -> Training {
        let UsualTraining { rate, fedeq_rate, batch, .. } = self.usual;
        Training {
            learning_rate: if method.algorithm().prefers_equilibrium() { fedeq_rate } else { rate },
            batch_size: batch,
            warm_start: if model.is_equilibrium() { self.warm_start() } else { WarmStart::Off },
            ..Training::default()
        }
    }

    /// How long, and with whom.
    pub fn plan(&self, method: &Method) -> Plan {
        let UsualTraining { rounds, fraction, evaluate_every, .. } = self.usual;
        let is_reference = self.preset == Preset::Reference;
        let replacement = method.algorithm().draws_with_replacement(self.preset, self.is_text);
        Plan {
            rounds: rounds + u64::from(is_reference),
            sampling: Sampling { fraction, replacement, ..Sampling::default() },
            evaluate_every: if is_reference { 1 } else { evaluate_every },
            measure_theory: false,
            ..Plan::default()
        }
    }

    fn warm_start(&self) -> WarmStart {
        match self.preset {
            Preset::Recommended | Preset::Paper => WarmStart::by_sample(),
            Preset::Reference => WarmStart::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_data_set_names_models_there_are_and_that_take_its_samples() {
        for source in Source::all() {
            let kind = source.entry().kind;
            let UsualTraining { equilibrium, explicit, .. } = source.training();
            for (name, solves) in [(equilibrium, true), (explicit, false)] {
                let model: ModelConfig = name.parse().unwrap_or_else(|error| panic!("{}: {error}", source.name()));
                assert_eq!(model.is_equilibrium(), solves, "{}: {name}", source.name());
                let takes = model.inputs().map(|takes| takes.to_string());
                let expected = match kind {
                    SampleKind::Images => "images",
                    SampleKind::Numbers => "vectors and images",
                    SampleKind::Text => "sequences of symbols",
                };
                assert_eq!(takes.as_deref(), Some(expected), "{}: {name}", source.name());
            }
        }
    }
}
