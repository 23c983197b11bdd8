//! APFL: a personal model mixed with the global one.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, View, Weighting};
use crate::error::{Error, Result};
use crate::work::{
    ClientInfo, Expression, LocalUpdate, MixingStep, Phase, RoundContext, Slot, Trains, own, received, second, temporary,
};

/// APFL (Deng et al., "Adaptive personalized federated learning", 2020).
///
/// A client's model is `mixing v_i + (1 - mixing) w_i`, where `w_i` is its copy of the global model, trained as in FedAvg, and `v_i` is trained so that the mixture does
/// well: `v_i <- v_i - eta mixing grad L_i(mixture)`. The two take turns epoch by epoch, the mixture first; in the paper they do so step by step. The server takes
/// the mean of the `w_i`.
///
/// The mixing is the same for all clients and all rounds, as in the paper's Algorithm 1, or it is [adaptive](Apfl::adaptive): each client has its own, `alpha_i`, and moves it
/// once a round against the gradient of its loss by it, `alpha_i <- alpha_i - eta <v_i - w_i, grad L_i(mixture)>`. The gradient is the mean over the steps of the
/// round's first epoch of the mixture. The paper keeps `alpha_i` within 0 and 1; here it is at least 0.01, since a mixture without `v_i` says nothing of it.
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
    /// Whether a client that was not there during training trains a personal model before it is evaluated.
    pub adapt_unseen: bool,
}

impl Default for Apfl {
    fn default() -> Self {
        Self { mixing: 0.5, adaptive: false, weighting: Weighting::Uniform, adapt_unseen: true }
    }
}

/// What the client keeps for a while.
const MIXTURE: &str = "mixture";

/// The smallest mixing that adapts: `v_i` is found from the mixture by dividing by it.
const LEAST: f64 = 0.01;

/// `mixing v_i + (1 - mixing) w_i`.
fn mixture(mixing: f64) -> Expression {
    second() + (1.0 - mixing) * (own() - second())
}

/// An epoch of `v_i`: the mixture moves by `mixing^2` times a step, so that `v_i` moves by `mixing` times one.
fn personal_epoch(work: &mut LocalUpdate, mixing: f64, round: &RoundContext<'_>, pass: u64) {
    let mixture = work.keep(MIXTURE, mixture(mixing));
    let phase = round.body(Trains::Everything);
    let learning_rate = mixing * mixing * phase.learning_rate;
    work.train(Phase { name: "personal", epochs: 1, pass, learning_rate, ..phase }.on(Slot::Temporary(MIXTURE)));
    // v_i = (mixture - (1 - mixing) w_i) / mixing, with the statistics of the model that met the data.
    work.assign(Slot::Second, mixture.clone() + ((1.0 - mixing) / mixing) * (mixture - own()));
}

/// The same, and a step of the mixing: the mixture has moved by `eta mixing^2` times the sum of the gradients of the epoch's steps.
fn adapting_epoch(work: &mut LocalUpdate, mixing: f64, round: &RoundContext<'_>, steps: usize) {
    let before = work.keep("before", mixture(mixing));
    let along = work.keep("apart", second() - own());
    personal_epoch(work, mixing, round, 0);
    let rate = 1.0 / (mixing * mixing * steps.max(1) as f64);
    work.mix(MixingStep { from: mixing, rate, along, gradient: before - temporary(MIXTURE), least: LEAST });
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
        for pass in 0..round.training.epochs as u64 {
            match pass {
                0 if self.adaptive => adapting_epoch(&mut work, mixing, round, me.steps),
                _ => personal_epoch(&mut work, mixing, round, pass),
            }
            work.train(Phase { epochs: 1, pass, ..round.body(Trains::Everything) });
        }
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

    fn adapts_mixing(&self) -> bool {
        self.adaptive
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
            work.assign(Slot::Second, own());
            (0..round.training.epochs as u64).for_each(|pass| personal_epoch(&mut work, self.mixing, round, pass));
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
