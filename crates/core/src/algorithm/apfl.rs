//! APFL: a personal model mixed with the global one.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, View, Weighting};
use crate::error::{Error, Result};
use crate::work::{
    BatchLoop, ClientInfo, Expression, LocalUpdate, MixingStep, Phase, RoundContext, Slot, Trains, own, received, second,
    temporary,
};

/// APFL (Deng et al., "Adaptive personalized federated learning", 2020).
///
/// A client's model is `mixing v_i + (1 - mixing) w_i`, where `w_i` is its copy of the global model, trained as in FedAvg, and `v_i` is trained so that the mixture does
/// well: `v_i <- v_i - eta mixing grad L_i(mixture)`. On every batch each takes one step from where both were before it. The server takes the mean of the `w_i`.
///
/// The mixing is the same for all clients and all rounds, as in the paper's Algorithm 1, or it is [adaptive](Apfl::adaptive): each client has its own, `alpha_i`, and moves it
/// once a round against the gradient of its loss by it, `alpha_i <- alpha_i - eta <v_i - w_i, grad L_i(mixture)>`, on the round's first batch; the round continues with the
/// mixing it began with. The paper keeps `alpha_i` within 0 and 1; here it is at least 0.01, since a mixture without `v_i` says nothing of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Apfl {
    /// The share of the personal model in the mixture, `alpha`.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    pub mixing: f64,
    /// Whether each client adapts its own mixing, once a round by a gradient step, from `mixing` on.
    pub adaptive: bool,
    /// How much each client counts in the mean.
    pub weighting: Weighting,
    /// Whether an unseen client trains a personal model before it is evaluated.
    pub adapt_unseen: bool,
}

impl Default for Apfl {
    fn default() -> Self {
        Self { mixing: 0.5, adaptive: false, weighting: Weighting::Uniform, adapt_unseen: true }
    }
}

/// What the client keeps for a while: the mixture, the copy of the global model before a step, and the mixture after a step that only measures.
const MIXTURE: &str = "mixture";
const BEFORE: &str = "before";
const MEASURED: &str = "measured";

/// The smallest mixing that adapts: `v_i` is found from the mixture by dividing by it.
const LEAST: f64 = 0.01;

/// `mixing v_i + (1 - mixing) w_i`.
fn mixture(mixing: f64) -> Expression {
    second() + (1.0 - mixing) * (own() - second())
}

/// `v_i = (mixture - (1 - mixing) w_i) / mixing`, with the statistics of the model that met the data.
fn personal(mixing: f64) -> Expression {
    temporary(MIXTURE) + ((1.0 - mixing) / mixing) * (temporary(MIXTURE) - own())
}

/// One step on a batch.
fn step(round: &RoundContext<'_>) -> Phase {
    Phase { epochs: 1, ..round.body(Trains::Everything) }
}

/// Steps of `v_i` by `mixing` times the gradient are steps of the mixture by `mixing^2` times the gradient.
fn mixed(mixing: f64, phase: Phase) -> Phase {
    Phase { learning_rate: mixing * mixing * phase.learning_rate, ..phase }.on(Slot::Temporary(MIXTURE))
}

/// On every batch a step of each model from where both were. The mixture is kept in place of `v_i`: it moves by a step of its own, and by its share of that of `w_i`.
fn joint_steps(mixing: f64, round: &RoundContext<'_>, batches: usize) -> BatchLoop {
    let mut each = LocalUpdate::default();
    each.train(mixed(mixing, step(round)));
    let before = each.keep(BEFORE, own());
    each.train(step(round));
    each.assign(Slot::Temporary(MIXTURE), temporary(MIXTURE) + (1.0 - mixing) * (own() - before));
    BatchLoop { epochs: round.training.epochs, batches, steps: each.steps }
}

/// A step of the mixing, by the gradient that a step of the mixture on the first batch tells: it moves by `eta mixing^2` times it.
fn mixing_step(work: &mut LocalUpdate, mixing: f64, steps: &BatchLoop, round: &RoundContext<'_>) {
    let measured = work.keep(MEASURED, temporary(MIXTURE));
    work.train(steps.phase(&mixed(mixing, step(round)), 0).on(Slot::Temporary(MEASURED)));
    let (rate, along) = (1.0 / (mixing * mixing), second() - own());
    work.mix(MixingStep { from: mixing, rate, along, gradient: temporary(MIXTURE) - measured, least: LEAST });
}

impl Apfl {
    /// The mixing of a client in this round.
    fn mixing_of(&self, me: &ClientInfo) -> f64 {
        me.mixing.filter(|_| self.adaptive).unwrap_or(self.mixing)
    }
}

impl Algorithm for Apfl {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        if !me.has_second {
            work.assign(Slot::Second, own());
        }
        work.assign(Slot::Own, own().with(received()));
        let mixing = self.mixing_of(me);
        work.assign(Slot::Temporary(MIXTURE), mixture(mixing));
        let steps = joint_steps(mixing, round, me.steps);
        if self.adaptive && steps.epochs > 0 && me.steps > 0 {
            mixing_step(&mut work, mixing, &steps, round);
        }
        work.for_each_batch(steps);
        work.assign(Slot::Second, personal(mixing));
        work.sending(own())
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn sends_without_memory(&self) -> bool {
        true
    }

    /// A step of the mixture is one of `v_i` times a number, which only plain steps let through.
    fn needs_plain_steps(&self) -> bool {
        true
    }

    fn keeps_second_model(&self) -> bool {
        true
    }

    fn local_view(&self, me: &ClientInfo) -> Expression {
        if me.has_second { mixture(self.mixing_of(me)) } else { own() }
    }

    fn default_view(&self) -> View {
        View::Local
    }

    fn adopt(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        if self.adapt_unseen {
            // The copy stays as it was received, so that only the mixture has steps to take.
            work.assign(Slot::Temporary(MIXTURE), own());
            work.train(mixed(self.mixing, round.body(Trains::Everything)));
            work.assign(Slot::Second, personal(self.mixing));
        }
        work
    }

    fn validate(&self) -> Result<()> {
        if self.adaptive && self.mixing < LEAST {
            let problem = format!("`method.mixing` is `{}`, and `method.adaptive` keeps it from {LEAST} on", self.mixing);
            return Err(Error::invalid(problem, format!("begin with {LEAST} or more")));
        }
        if self.mixing > 0.0 && self.mixing <= 1.0 && self.mixing.is_finite() {
            return Ok(());
        }
        Err(Error::invalid(format!("`method.mixing` is `{}`", self.mixing), "give a share above 0 and at most 1"))
    }
}
