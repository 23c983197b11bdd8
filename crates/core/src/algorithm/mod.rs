//! The methods: what a client does in a round, what the server does with the replies, and which model is then meant.
use fedeq_data::{Seed, named};
use fedeq_models::{Part, Preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::aggregation::Received;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::sent::SentWeights;
use crate::server_state::ServerState;
use crate::stats::{Neighbours, TrainStats};
use crate::weights::Weights;
use crate::work::{ClientInfo, Expression, LocalUpdate, RoundContext, Slot, own, received, second};

mod apfl;
mod ditto;
mod fedavg;
mod fedbn;
mod feddyn;
mod fedeq;
mod fedper;
mod fedprox;
mod fedrep;
mod fine_tune;
mod knn_per;
mod local;
mod moon;
mod pfedme;
mod scaffold;

pub use apfl::Apfl;
pub use ditto::{Ditto, PersonalStart};
pub use fedavg::FedAvg;
pub use fedbn::FedBn;
pub use feddyn::FedDyn;
pub use fedeq::{BalanceRho, DualStart, FedEq, HeadOn, ServerStep, ThetaStart};
pub use fedper::FedPer;
pub use fedprox::FedProx;
pub use fedrep::FedRep;
pub use fine_tune::{FineTune, FineTuning};
pub use knn_per::KnnPer;
pub use local::Local;
pub use moon::Moon;
pub use pfedme::PFedMe;
pub use scaffold::Scaffold;

/// A method of personalised federated learning.
///
/// What a client does is plain data, a [`LocalUpdate`], which an [`Engine`](crate::Engine) carries out; everything the server knows is in the
/// [`ServerState`] and the [`Update`]s. A method is plain settings: it holds no state of its own, and touches no network, batch or thread.
pub trait Algorithm: Send + Sync {
    /// Whether a part of the model is shared: sent to clients, and sent back by them.
    fn shares(&self, part: Part) -> bool;

    /// One client's work in a round.
    fn client_update(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate;

    /// The server's work in a round: by default the mean of what was sent, by the method's [`weighting`](Self::weighting). How a mean is taken is not the
    /// method's business: another [rule](crate::Aggregation) may stand in its place.
    fn server_update(&self, server: &mut ServerState, received: &Received<'_>) -> Result<()> {
        server.average(received, self.weighting())
    }

    /// Whether clients send by how much something changed instead of their weights, so that the size of what they send is measured from zero and not from
    /// what they were sent.
    fn sends_changes(&self) -> bool {
        false
    }

    /// Whether a second vector like the shared part is sent beside it, both ways: a control variate. It begins at zero.
    fn sends_control(&self) -> bool {
        false
    }

    /// Whether parameters and running statistics of normalisations stay with their client, whatever part they belong to.
    fn keeps_normalisations(&self) -> bool {
        false
    }

    /// Whether clients have to take plain steps of gradient descent, since the method derives control values from their length.
    fn needs_plain_steps(&self) -> bool {
        false
    }

    /// Whether clients train with a term on embeddings.
    fn contrasts(&self) -> bool {
        false
    }

    /// Whether the server's step is the mean of what clients send and nothing else, so that another [optimiser](crate::ServerOptimiser) can take its place.
    fn averages(&self) -> bool {
        true
    }

    /// How much each client counts in the server's mean.
    fn weighting(&self) -> Weighting {
        Weighting::Uniform
    }

    /// Whether what a client sends depends on its data and on what it received alone, and not on anything it keeps from round to round.
    fn sends_without_memory(&self) -> bool {
        false
    }

    /// A setting with which the server's models depend on clients by more than the mean of what they send, and why: it does not go with
    /// [`Privacy`](crate::Privacy).
    fn spoils_privacy(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Whether the server's step makes sense of a single update, so that clients can be asynchronous.
    fn takes_single_updates(&self) -> bool {
        false
    }

    /// Whether all clients take part in every round, whatever the sampling.
    fn takes_all_clients(&self) -> bool {
        false
    }

    /// By which factor the server may multiply or divide the penalty after a round, where it moves.
    fn penalty_factor(&self) -> Option<f64> {
        None
    }

    /// A setting for which the server has to see what single clients sent, so that it does not go with [`SecureAggregation`](crate::SecureAggregation).
    fn needs_single_updates(&self) -> Option<&'static str> {
        None
    }

    /// The penalty before the first round, where the method has one.
    fn initial_rho(&self) -> Option<f64> {
        None
    }

    /// The dual a client starts with, given the model it starts with; empty where the method has none.
    fn initial_dual(&self, _own: &Weights, _seed: Seed) -> Params {
        Params::default()
    }

    /// Whether clients keep a second whole model beside their own.
    fn keeps_second_model(&self) -> bool {
        false
    }

    /// The model that is the client's own: its second one, as soon as it has one.
    fn local_view(&self, me: &ClientInfo) -> Expression {
        if me.has_second { second() } else { own() }
    }

    /// The model made of the shared part as the server has it and the client's own rest; none where nothing is shared.
    fn shared_view(&self, _me: &ClientInfo) -> Option<Expression> {
        Some(own().with(received()))
    }

    /// Which of the two the method is meant to be evaluated by, on its own: what a run reports first, and what predicts. See [`View`] on comparisons.
    fn default_view(&self) -> View {
        View::Shared
    }

    /// Whether predictions with the client's own model are mixed with those of nearest neighbours.
    fn neighbours(&self) -> Option<Neighbours> {
        None
    }

    /// What each client does once training is over, before it is evaluated for the last time.
    fn finish(&self, _me: &ClientInfo, _round: &RoundContext<'_>) -> LocalUpdate {
        LocalUpdate::nothing()
    }

    /// How an unseen client makes the shared part its own: by default it trains its personal
    /// parameters on it.
    fn adopt(&self, _me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work.train(round.head());
        work
    }

    /// Which setting pulls a client's weights towards the shared ones, and how strongly; nothing where none does. `rho` is the
    /// penalty in force.
    fn penalty(&self, _rho: Option<f64>) -> Option<(&'static str, f64)> {
        None
    }

    /// The setting that makes sense for text only, if it is on.
    fn needs_text(&self) -> Option<&'static str> {
        None
    }

    /// Whether the method is meant for equilibrium networks, so that presets choose one.
    fn prefers_equilibrium(&self) -> bool {
        false
    }

    /// Gives its settings what a preset has in place of their defaults, for text or for anything else.
    fn apply_preset(&mut self, _preset: Preset, _is_text: bool) {}

    /// Whether a preset draws the method's cohorts with replacement.
    fn draws_with_replacement(&self, _preset: Preset, _is_text: bool) -> bool {
        false
    }

    /// Refuses settings that mean nothing.
    fn validate(&self) -> Result<()> {
        Ok(())
    }
}

named! {
    /// Which of a client's two models is evaluated. Every evaluation scores both; a comparison is like for like if it takes the same one of every method.
    ///
    /// - **local**: the client's own model as it was after its last training, `theta_i` and `w_i`. A client that has not trained yet is evaluated by its first model.
    /// - **shared**: the server's `theta` with whatever the client keeps for itself, its head `w_i`.
    ///
    /// | method | local | shared |
    /// |---|---|---|
    /// | FeDEQ, FedRep, FedPer | the client's own body and head | the server's body and the client's head |
    /// | FedAvg, FedProx, SCAFFOLD, FedDyn, MOON | the global model after the client's last local epochs | the global model |
    /// | FedAvg+FT | the global model, fine-tuned by the client at the end | the global model |
    /// | FedBN | the client's own model | the global model with the client's normalisations |
    /// | Ditto, pFedMe | the personal model `v_i` or `theta_i` | the global model |
    /// | APFL | the mixture of personal and global model | the global model |
    /// | kNN-Per | the global model mixed with the client's nearest neighbours | the global model alone |
    /// | Local | the client's model | nothing is shared: the client's model again |
    ///
    /// So every method has a local view, which is what comparisons take unless told otherwise. In the shared view, FedAvg+FT, Ditto, pFedMe, APFL and kNN-Per are global models alone: what makes them
    /// personal is left out. Where a method shares nothing (Local), its one model stands in both columns of a table.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum View {
        /// `theta_i` and `w_i`.
        #[default]
        Local = "local",
        /// `theta` and `w_i`.
        Shared = "shared",
    }
}

/// Makes [`Method`] of a list: one line a method, with its variant, its settings, its name, and how its authors write it.
macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident($settings:ident) = $name:literal, $title:literal;)*) => {
        /// A method by name, with its settings. Plain data.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "name")]
        pub enum Method {
            $($(#[$doc])* #[serde(rename = $name)] $variant($settings),)*
        }

        impl Method {
            /// Every name.
            pub const NAMES: [&str; [$($name),*].len()] = [$($name),*];

            /// A method of this name as its authors write it, for people to read; other names as they are.
            pub fn title(name: &str) -> &str {
                match name {
                    $($name => $title,)*
                    other => other,
                }
            }

            /// The name, as in a configuration file.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            /// What it does.
            pub fn algorithm(&self) -> &dyn Algorithm {
                match self {
                    $(Self::$variant(method) => method,)*
                }
            }

            fn algorithm_mut(&mut self) -> &mut dyn Algorithm {
                match self {
                    $(Self::$variant(method) => method,)*
                }
            }
        }
    };
}

// A new method: its file above, and a line here.
methods! {
    /// The paper's method.
    Fedeq(FedEq) = "fedeq", "FeDEQ";
    /// Every client alone.
    Local(Local) = "local", "Local";
    /// One model for all.
    Fedavg(FedAvg) = "fedavg", "FedAvg";
    /// One model for all, then fine-tuned by each.
    FedavgFt(FineTune) = "fedavg-ft", "FedAvg+FT";
    /// A personal model beside the global one, kept near it by a proximal term.
    Ditto(Ditto) = "ditto", "Ditto";
    /// Personal heads, trained together with the shared body.
    Fedper(FedPer) = "fedper", "FedPer";
    /// Personal heads, trained before the shared body.
    Fedrep(FedRep) = "fedrep", "FedRep";
    /// One model for all, mixed with each client's nearest neighbours.
    KnnPer(KnnPer) = "knn-per", "kNN-Per";
    /// One model for all, with a proximal term in local training.
    Fedprox(FedProx) = "fedprox", "FedProx";
    /// One model for all, with control variates against drift.
    Scaffold(Scaffold) = "scaffold", "SCAFFOLD";
    /// One model for all, with a penalty that follows each client's gradient.
    Feddyn(FedDyn) = "feddyn", "FedDyn";
    /// One model for all but its normalisations.
    Fedbn(FedBn) = "fedbn", "FedBN";
    /// Personal models by Moreau envelopes.
    Pfedme(PFedMe) = "pfedme", "pFedMe";
    /// A personal model mixed with the global one.
    Apfl(Apfl) = "apfl", "APFL";
    /// One model for all, with a contrastive term that keeps local embeddings near those of the global model.
    Moon(Moon) = "moon", "MOON";
}

impl Method {
    /// The method of that name with its default settings.
    pub fn named(name: &str) -> Result<Self> {
        serde_json::from_value(serde_json::json!({ "name": name })).map_err(|_| {
            Error::invalid(format!("there is no method `{name}`"), format!("choose one of {}", Self::NAMES.join(", ")))
        })
    }

    /// The method of that name as a preset has it, for text or for anything else.
    pub fn of_preset(name: &str, preset: Preset, is_text: bool) -> Result<Self> {
        let mut method = Self::named(name)?;
        method.algorithm_mut().apply_preset(preset, is_text);
        Ok(method)
    }
}

/// How much each client counts in a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Weighting {
    /// The same.
    Uniform,
    /// By its number of training samples.
    Samples,
}

/// What the server receives of a client's work.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The shared part of the client's model, or how it changed.
    pub weights: SentWeights,
    /// How many training samples stand behind it.
    pub samples: u64,
    /// `||theta_i - theta||` after the work.
    pub gap: f64,
    /// How the training went.
    pub stats: TrainStats,
}
