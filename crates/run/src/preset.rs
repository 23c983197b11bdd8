//! Presets: every place where the paper and its authors' code differ, decided three times.
//!
//! A preset is a way to fill in what an experiment leaves out; whatever an experiment says stands. The switches of a method are in its own file (`Algorithm::apply_preset`), the others here.
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
use std::num::NonZeroUsize;

pub use fedeq_core::Preset;
use fedeq_core::{Method, Plan, Result, Sampling, Training};
use fedeq_data::source::{Entry, SampleKind, Source};
use fedeq_equilibrium::{Adjoint, Anderson, Equilibrium, LinearSolver, Ridge, Solver, Stop, WarmStart};
use fedeq_models::{GroupNormScope, ModelConfig};

/// What a preset fills in for a data set.
pub struct PresetValues {
    preset: Preset,
    runner: Runner,
}

impl PresetValues {
    /// Those of a preset for that data.
    pub fn of(preset: Preset, source: &Source) -> Self {
        Self { preset, runner: Runner::of(source) }
    }

    /// The method of that name.
    pub fn method(&self, name: &str) -> Result<Method> {
        Method::of_preset(name, self.preset, self.runner.is_text)
    }

    /// The model of that name, or the one that the paper's runs use for this method.
    pub fn model(&self, name: Option<&str>, method: &Method) -> Result<ModelConfig> {
        let Runner { equilibrium, explicit, .. } = self.runner;
        let name = name.unwrap_or(if method.algorithm().prefers_equilibrium() { equilibrium } else { explicit });
        Ok(tuned_model(name.parse()?, self.preset))
    }

    /// How clients train.
    pub fn training(&self, method: &Method, model: &ModelConfig) -> Training {
        let Runner { rate, fedeq_rate, batch, .. } = self.runner;
        Training {
            learning_rate: if method.algorithm().prefers_equilibrium() { fedeq_rate } else { rate },
            batch_size: batch,
            warm_start: if model.is_equilibrium() { self.warm_start() } else { WarmStart::Off },
            ..Training::default()
        }
    }

    /// How long, and with whom.
    pub fn plan(&self, method: &Method) -> Plan {
        let Runner { rounds, fraction, evaluate_every, is_text, .. } = self.runner;
        let is_reference = self.preset == Preset::Reference;
        let replacement = method.algorithm().draws_with_replacement(self.preset, is_text);
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

/// How many times as large `recommended` injects embedded symbols into the DEQ-Transformer: with their deviation of 0.02 beside states of unit size, training stays at the
/// frequencies of symbols for long (see fig-shakespeare).
const INJECTION: f64 = 8.0;

/// The model as a preset has it.
fn tuned_model(mut model: ModelConfig, preset: Preset) -> ModelConfig {
    use ModelConfig::{DeqMlp, DeqResNetM, DeqResNetS, DeqResNetXs, DeqTransformer, TiedResNetM, TiedResNetS, TiedResNetXs};
    if let (DeqTransformer(options), Preset::Recommended) = (&mut model, preset) {
        options.injection = INJECTION;
    }
    if preset != Preset::Reference {
        if let DeqMlp(options) = &mut model {
            options.bias = true;
        }
        return model;
    }
    match &mut model {
        DeqMlp(options) => (options.bias, options.equilibrium) = (false, reference_images()),
        DeqResNetXs(options) | DeqResNetS(options) | DeqResNetM(options) => {
            (options.cell_norm, options.equilibrium) = (GroupNormScope::RowWise, reference_images());
        }
        TiedResNetXs(options) | TiedResNetS(options) | TiedResNetM(options) => options.cell_norm = GroupNormScope::RowWise,
        DeqTransformer(options) => options.equilibrium = reference_text(),
        _ => {}
    }
    model
}

/// jaxopt's Anderson acceleration with a history of five, and an implicit gradient to a relative tolerance of 1e-3.
fn reference_images() -> Equilibrium {
    let anderson = Anderson { memory: 4, ridge: Ridge::Absolute(1e-4), mixing: 1.0, delay: 4, restart: None };
    Equilibrium {
        solver: Solver::Anderson(anderson),
        stop: Stop::absolute(1e-3, 20),
        adjoint: Adjoint::Implicit { solver: LinearSolver::Gmres { memory: 20 }, stop: Stop::relative(1e-3, 50) },
        ..Equilibrium::default()
    }
}

/// Broyden's method both ways. The authors' tolerance is 1e-6 a number; a state of 16 symbols has 16 x 64 of them.
fn reference_text() -> Equilibrium {
    Equilibrium {
        solver: Solver::broyden(20),
        stop: Stop::absolute(3.2e-5, 20),
        adjoint: Adjoint::Implicit { solver: LinearSolver::Broyden { memory: 20 }, stop: Stop::relative(2e-10, 20) },
        ..Equilibrium::default()
    }
}

/// What does not depend on the preset.
struct Runner {
    /// T.
    rounds: u64,
    /// The share of clients a round.
    fraction: f64,
    /// Rounds between evaluations.
    evaluate_every: u64,
    /// Samples a gradient step.
    batch: NonZeroUsize,
    /// The learning rate of the methods FeDEQ is compared with.
    rate: f64,
    /// The learning rate of FeDEQ.
    fedeq_rate: f64,
    /// The model of FeDEQ.
    equilibrium: &'static str,
    /// The model of the methods it is compared with.
    explicit: &'static str,
    /// Whether samples are text.
    is_text: bool,
}

impl Runner {
    /// The values for a data set: those of the run scripts where there are any, else those of its kind.
    fn of(source: &Source) -> Self {
        let Entry { name, kind, .. } = *source.entry();
        match (name, kind) {
            ("digits", _) => Self {
                rounds: 60,
                fraction: 0.2,
                evaluate_every: 5,
                rate: 0.05,
                fedeq_rate: 0.05,
                ..Self::images("deq-resnet-xs", "resnet-xs", 10)
            },
            ("cifar10", _) => Self::images("deq-resnet-m", "resnet-34", 20),
            ("cifar100", _) => Self { rate: 0.05, ..Self::images("deq-resnet-m", "resnet-34", 20) },
            (_, SampleKind::Images) => Self::images("deq-resnet-s", "resnet-20", 10),
            (_, SampleKind::Text) => Self::text(),
            (_, SampleKind::Numbers) => Self::images("deq-mlp", "mlp", 10),
        }
    }

    fn images(equilibrium: &'static str, explicit: &'static str, batch: usize) -> Self {
        Self {
            rounds: 150,
            fraction: 0.1,
            evaluate_every: 10,
            batch: NonZeroUsize::new(batch).unwrap_or(NonZeroUsize::MIN),
            rate: 0.01,
            fedeq_rate: 0.01,
            equilibrium,
            explicit,
            is_text: false,
        }
    }

    fn text() -> Self {
        let text = Self::images("deq-transformer", "transformer-8", 16);
        Self { rounds: 400, rate: 0.1, fedeq_rate: 0.1, is_text: true, ..text }
    }
}
