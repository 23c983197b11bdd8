//! Presets: every place where the paper and its authors' code differ, decided three times.
//!
//! A preset is a way to fill in what an experiment leaves out; whatever an experiment says stands.
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
//!
//! The paper says that duals start "randomly" and gives no scale, so `paper` starts them at 0; `method.dual` can say otherwise. It says the same of
//! the heads `w_i`, which start alike in the authors' code and in all presets; `training.initial_heads = "own"` draws each client its own.
//!
//! `reference` does not offer what only an oversight explains: dropout at evaluation, padding counted as right answers, the same shuffling in both phases of a round, the last instead of random clients held out, unseen
//! clients served with the theta of the round before, kNN-Per's datastore embedded with batch statistics. Conjugate gradients on
//! the normal equations are stood in for by GMRES, which solves the same system to the same tolerance.
mod method;
mod model;
mod runner;

pub(crate) use model::has_equilibrium;

use fedeq_core::{FedAvg, Method, Plan, Result, Sampling, Training};
use fedeq_data::source::Source;
use fedeq_equilibrium::WarmStart;
use fedeq_models::ModelConfig;
use serde::{Deserialize, Serialize};

use runner::Runner;

/// How an experiment fills in what it leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// `paper`, with the theta-step started from the received theta: measured to learn far better where clients take part seldom.
    #[default]
    Recommended,
    /// Algorithm 1 to the letter.
    Paper,
    /// What the authors' code does.
    Reference,
}

impl Preset {
    /// Every name.
    pub const NAMES: [&str; 3] = ["recommended", "paper", "reference"];

    /// The preset of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "recommended" => Some(Self::Recommended),
            "paper" => Some(Self::Paper),
            "reference" => Some(Self::Reference),
            _ => None,
        }
    }

    /// The method of that name as this preset has it for that data.
    pub fn method(self, name: &str, source: &Source) -> Result<Method> {
        Ok(method::tuned(Method::named(name)?, self, source))
    }

    /// The model of that name as this preset has it, or the one that the paper's runs use for this method and data.
    pub fn model(self, name: Option<&str>, method: &Method, source: &Source) -> Result<ModelConfig> {
        let runner = Runner::of(source);
        let name = name.unwrap_or(if is_fedeq(method) { runner.equilibrium } else { runner.explicit });
        Ok(model::tuned(name.parse()?, self))
    }

    /// How clients train.
    pub fn training(self, method: &Method, model: &ModelConfig, source: &Source) -> Training {
        let runner = Runner::of(source);
        Training {
            learning_rate: if is_fedeq(method) { runner.fedeq_rate } else { runner.rate },
            batch_size: runner.batch,
            warm_start: if model::has_equilibrium(model) { self.warm_start() } else { WarmStart::Off },
            ..Training::default()
        }
    }

    /// How long, and with whom.
    pub fn plan(self, method: &Method, source: &Source) -> Plan {
        let runner = Runner::of(source);
        let replacement = self == Self::Reference && runner.is_text && matches!(method, Method::Fedavg(FedAvg { .. }));
        Plan {
            rounds: runner.rounds + u64::from(self == Self::Reference),
            sampling: Sampling { fraction: runner.fraction, replacement },
            evaluate_every: if self == Self::Reference { 1 } else { runner.evaluate_every },
            measure_theory: false,
            asynchronous: None,
        }
    }

    fn warm_start(self) -> WarmStart {
        match self {
            Self::Recommended | Self::Paper => WarmStart::by_sample(),
            Self::Reference => WarmStart::Off,
        }
    }
}

fn is_fedeq(method: &Method) -> bool {
    matches!(method, Method::Fedeq(_))
}
