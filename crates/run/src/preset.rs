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
//! | DEQ-Transformer: embedded symbols are injected | 8 times as large | as they are | as they are |
//!
//! The paper says that duals start "randomly" and gives no scale, so `paper` starts them at 0; `method.dual` can say otherwise. It says the same of
//! the heads `w_i`, which start alike in the authors' code and in all presets; `training.initial_heads = "own"` draws each client its own.
//!
//! `reference` does not offer what only an oversight explains: dropout at evaluation, padding counted as right answers, the same shuffling in both phases of a round, the last instead of random clients held out, unseen
//! clients served with the theta of the round before, kNN-Per's datastore embedded with batch statistics. Conjugate gradients on
//! the normal equations are stood in for by GMRES, which solves the same system to the same tolerance.
use std::num::NonZeroUsize;

use fedeq_core::{Error, Method, Plan, Result, Sampling, Training};
use fedeq_data::source::{Entry, SampleKind, Source};
use fedeq_equilibrium::{Adjoint, Anderson, Equilibrium, LinearSolver, Ridge, Solver, Stop, WarmStart};
use fedeq_models::{GroupNormScope, ModelConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Makes [`Preset`] of lines `Variant = "name"`.
macro_rules! presets {
    ($($(#[$attribute:meta])+ $variant:ident = $name:literal,)+) => {
        /// How an experiment fills in what it leaves out.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum Preset {
            $($(#[$attribute])+ #[serde(rename = $name)] $variant,)+
        }

        impl Preset {
            /// Every name.
            pub const NAMES: [&str; [$($name),+].len()] = [$($name),+];

            /// The preset of that name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

presets! {
    /// `paper`, with the theta-step started from the received theta: measured to learn far better where clients take part seldom; and with larger injections into the
    /// DEQ-Transformer, which learns far sooner by them.
    #[default]
    Recommended = "recommended",
    /// Algorithm 1 to the letter.
    Paper = "paper",
    /// What the authors' code does.
    Reference = "reference",
}

impl Preset {
    /// The method of that name as this preset has it for that data.
    pub fn method(self, name: &str, source: &Source) -> Result<Method> {
        tuned_method(name, self, source)
    }

    /// The model of that name as this preset has it, or the one that the paper's runs use for this method and data.
    pub fn model(self, name: Option<&str>, method: &Method, source: &Source) -> Result<ModelConfig> {
        let runner = Runner::of(source);
        let name = name.unwrap_or(if method.algorithm().prefers_equilibrium() { runner.equilibrium } else { runner.explicit });
        Ok(tuned_model(name.parse()?, self))
    }

    /// How clients train.
    pub fn training(self, method: &Method, model: &ModelConfig, source: &Source) -> Training {
        let runner = Runner::of(source);
        Training {
            learning_rate: if method.algorithm().prefers_equilibrium() { runner.fedeq_rate } else { runner.rate },
            batch_size: runner.batch,
            warm_start: if model.is_equilibrium() { self.warm_start() } else { WarmStart::Off },
            ..Training::default()
        }
    }

    /// How long, and with whom.
    pub fn plan(self, method: &Method, source: &Source) -> Plan {
        let runner = Runner::of(source);
        let replacement = self == Self::Reference && runner.is_text && method.name() == "fedavg";
        Plan {
            rounds: runner.rounds + u64::from(self == Self::Reference),
            sampling: Sampling { fraction: runner.fraction, replacement, ..Sampling::default() },
            evaluate_every: if self == Self::Reference { 1 } else { runner.evaluate_every },
            measure_theory: false,
            ..Plan::default()
        }
    }

    fn warm_start(self) -> WarmStart {
        match self {
            Self::Recommended | Self::Paper => WarmStart::by_sample(),
            Self::Reference => WarmStart::Off,
        }
    }
}

/// The method as a preset has it.
fn tuned_method(name: &str, preset: Preset, source: &Source) -> Result<Method> {
    let mut settings = switches(name, preset, &Runner::of(source));
    settings["name"] = Method::named(name)?.name().into();
    serde_json::from_value(settings).map_err(|error| Error::invalid(format!("a preset of `{name}`: {error}"), "report this"))
}

/// The settings of a method in which a preset differs from its defaults.
fn switches(name: &str, preset: Preset, runner: &Runner) -> Value {
    let (is_text, is_reference) = (runner.is_text, preset == Preset::Reference);
    let weighting = if is_text { "uniform" } else { "samples" };
    match (name, preset) {
        ("fedeq", Preset::Recommended) => json!({ "start": "received" }),
        ("fedeq", Preset::Paper) => json!({ "start": "own" }),
        ("fedeq", Preset::Reference) => json!({
            "start": "own-if-consecutive",
            "head_on": "start",
            "weighting": weighting,
            "dual": if is_text { json!({ "constant": 0.001 }) } else { json!("zero") },
            "per_symbol": is_text,
        }),
        ("ditto", _) => json!({
            "penalty": runner.penalty,
            "start": if is_reference { "trained" } else { "own" },
            "adapt_unseen": !is_reference,
        }),
        ("fedavg", _) => json!({ "adapt_unseen": !is_reference }),
        ("fedavg-ft", Preset::Reference) => json!({ "tuning": { "from-share": 0.3 } }),
        ("fedper", Preset::Reference) => json!({ "weighting": weighting, "head_first": true }),
        _ => json!({}),
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
    /// Ditto's penalty.
    penalty: f64,
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
            penalty: 0.3,
            is_text: false,
        }
    }

    fn text() -> Self {
        let text = Self::images("deq-transformer", "transformer-8", 16);
        Self { rounds: 400, rate: 0.1, fedeq_rate: 0.1, penalty: 0.1, is_text: true, ..text }
    }
}
