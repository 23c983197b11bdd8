//! The methods: what a client does in a round, what the server does with the answers, and which model is then meant.
use std::borrow::Cow;

use fedeq_data::Seed;
use fedeq_models::Part;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::params::Params;
use crate::server_state::ServerState;
use crate::site::{Descent, Neighbours, Phase, Site, Trains};
use crate::state::ClientState;
use crate::training::Training;
use crate::weights::Weights;

mod ditto;
mod fedavg;
mod fedeq;
mod fedper;
mod fedrep;
mod fine_tune;
mod knn_per;
mod local;

pub use ditto::{Ditto, PersonalStart};
pub use fedavg::FedAvg;
pub use fedeq::{BalanceRho, DualStart, FedEq, HeadOn, ServerStep, ThetaStart};
pub use fedper::FedPer;
pub use fedrep::FedRep;
pub use fine_tune::{FineTune, FineTuning};
pub use knn_per::KnnPer;
pub use local::Local;

/// A method of personalised federated learning.
///
/// Everything a client does goes through its [`Site`]; everything the server knows is in the [`ServerState`] and the
/// [`Update`]s. A method is plain settings: it holds no state of its own.
pub trait Algorithm: Send + Sync {
    /// Which part of the model travels between server and clients.
    fn travels(&self, part: Part) -> bool;

    /// One client's work in a round, from the weights received. Changes the client's state; what is returned is sent.
    fn client_update(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work>;

    /// The server's work in a round: by default the mean of what was sent, each client counting the same.
    fn server_update(&self, server: &mut ServerState, updates: &[Update]) -> Result<()> {
        server.average(updates, Weighting::Uniform);
        Ok(())
    }

    /// Whether the server's step makes sense of a single update, so that clients need not work in step.
    fn takes_single_updates(&self) -> bool {
        false
    }

    /// Whether all clients take part in every round, whatever the sampling.
    fn takes_everybody(&self) -> bool {
        false
    }

    /// The dual a client starts with; empty where the method has none.
    fn initial_dual(&self, _theta: &Params, _seed: Seed) -> Params {
        Params::default()
    }

    /// The model that is the client's own.
    fn local_view<'a>(&self, _received: &Weights, me: &'a ClientState) -> Cow<'a, Weights> {
        Cow::Borrowed(&me.own)
    }

    /// The model made of the shared part as the server has it and the client's own rest; none where nothing is shared.
    fn shared_view(&self, received: &Weights, me: &ClientState) -> Option<Weights> {
        Some(me.own.with(received))
    }

    /// Which of the two the method is meant to be judged by, on its own: what a run reports first, and what predicts. See [`View`] on comparisons.
    fn headline(&self) -> View {
        View::Shared
    }

    /// Whether predictions with the client's own model are mixed with those of nearest neighbours.
    fn neighbours(&self) -> Option<Neighbours> {
        None
    }

    /// What each client does once training is over, before it is judged for the last time.
    fn finish(&self, _received: &Weights, _me: &mut ClientState, _turn: &Turn<'_>, _site: &dyn Site) -> Result<Descent> {
        Ok(Descent::default())
    }

    /// How a client that was not there during training makes the shared part its own: by default it trains its personal
    /// parameters on it.
    fn adopt(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Descent> {
        me.own = me.own.with(received);
        turn.head(me, site)
    }

    /// Which setting pulls a client's weights towards the shared ones, and how strongly; nothing where none does. `rho` is the
    /// penalty in force.
    fn pull(&self, _rho: Option<f64>) -> Option<(&'static str, f64)> {
        None
    }

    /// Refuses settings that mean nothing.
    fn validate(&self) -> Result<()> {
        Ok(())
    }
}

/// Which of a client's two models is judged. Every evaluation judges both; a comparison is like for like if it takes the same one of every method.
///
/// - **local**: the client's own model as it was after its last training, `theta_i` and `w_i`. A client that has not trained yet is judged by its first model.
/// - **shared**: the server's `theta` with whatever the client keeps for itself, its head `w_i`.
///
/// | method | local | shared |
/// |---|---|---|
/// | FeDEQ, FedRep, FedPer | the client's own body and head | the server's body and the client's head |
/// | FedAvg | the global model after the client's last local epochs | the global model |
/// | FedAvg+FT | the global model, fine-tuned by the client at the end | the global model |
/// | Ditto | the personal model `v_i` | the global model |
/// | kNN-Per | the global model mixed with the client's nearest neighbours | the global model alone |
/// | Local | the client's model | nothing is shared: the client's model again |
///
/// So every method has a local view, which is what comparisons take unless told otherwise. In the shared view, FedAvg+FT, Ditto and kNN-Per are FedAvg: what makes them
/// personal is left out. Where a method shares nothing (Local), its one model stands in both columns of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// `theta_i` and `w_i`.
    #[default]
    Local,
    /// `theta` and `w_i`.
    Shared,
}

impl View {
    /// Both, in the order in which tables show them.
    pub const ALL: [Self; 2] = [Self::Local, Self::Shared];

    /// Its name, as in settings and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Shared => "shared",
        }
    }
}

/// A method by name, with its settings. Plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Method {
    /// The paper's method.
    Fedeq(FedEq),
    /// Everybody alone.
    Local(Local),
    /// One model for all.
    Fedavg(FedAvg),
    /// One model for all, then fine-tuned by each.
    FedavgFt(FineTune),
    /// A personal model beside the global one, pulled towards it.
    Ditto(Ditto),
    /// Personal heads, trained together with the shared body.
    Fedper(FedPer),
    /// Personal heads, trained before the shared body.
    Fedrep(FedRep),
    /// One model for all, mixed with each client's nearest neighbours.
    KnnPer(KnnPer),
}

impl Method {
    /// Every name.
    pub const NAMES: [&str; 8] = ["fedeq", "local", "fedavg", "fedavg-ft", "ditto", "fedper", "fedrep", "knn-per"];

    /// The method of that name with its default settings.
    pub fn named(name: &str) -> Result<Self> {
        serde_json::from_value(serde_json::json!({ "name": name })).map_err(|_| {
            Error::invalid(format!("there is no method `{name}`"), format!("choose one of {}", Self::NAMES.join(", ")))
        })
    }

    /// The name, as in a configuration file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fedeq(_) => "fedeq",
            Self::Local(_) => "local",
            Self::Fedavg(_) => "fedavg",
            Self::FedavgFt(_) => "fedavg-ft",
            Self::Ditto(_) => "ditto",
            Self::Fedper(_) => "fedper",
            Self::Fedrep(_) => "fedrep",
            Self::KnnPer(_) => "knn-per",
        }
    }

    /// What it does.
    pub fn algorithm(&self) -> &dyn Algorithm {
        match self {
            Self::Fedeq(method) => method,
            Self::Local(method) => method,
            Self::Fedavg(method) => method,
            Self::FedavgFt(method) => method,
            Self::Ditto(method) => method,
            Self::Fedper(method) => method,
            Self::Fedrep(method) => method,
            Self::KnnPer(method) => method,
        }
    }
}

/// How much each client counts in a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weighting {
    /// The same.
    Uniform,
    /// By its number of training samples.
    Samples,
}

/// What a client did, on its own side.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// What is sent to the server.
    pub sent: Weights,
    /// `||theta_i - theta||` after the work.
    pub gap: f64,
    /// How the training went.
    pub descent: Descent,
}

/// What the server receives of a client's work.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The travelling part of the client's model.
    pub weights: Weights,
    /// How many training samples stand behind it.
    pub samples: u64,
    /// `||theta_i - theta||` after the work.
    pub gap: f64,
    /// How the training went.
    pub descent: Descent,
}

/// What a client knows of the round it works in.
#[derive(Clone, Debug)]
pub struct Turn<'a> {
    /// The round, from 0.
    pub round: u64,
    /// How many there will be.
    pub rounds: u64,
    /// The penalty in force.
    pub rho: Option<f64>,
    /// Randomness of this client in this round.
    pub seed: Seed,
    /// How to train.
    pub training: &'a Training,
}

impl Turn<'_> {
    /// Trains the personal parameters on the fixed representation of `me.own`.
    pub fn head(&self, me: &mut ClientState, site: &dyn Site) -> Result<Descent> {
        let phase = Phase {
            name: "head",
            trains: Trains::Personal,
            epochs: self.training.personal_epochs,
            learning_rate: self.training.personal_rate(),
            pull: None,
        };
        self.run(&phase, me, site)
    }

    /// Trains some of `me.own` for as many epochs as the shared part gets.
    pub fn body(
        &self,
        trains: Trains,
        pull: Option<&crate::site::Pull>,
        me: &mut ClientState,
        site: &dyn Site,
    ) -> Result<Descent> {
        let phase =
            Phase { name: "body", trains, epochs: self.training.epochs, learning_rate: self.training.learning_rate, pull };
        self.run(&phase, me, site)
    }

    /// Runs a phase on the client's own model.
    pub fn run(&self, phase: &Phase<'_>, me: &mut ClientState, site: &dyn Site) -> Result<Descent> {
        site.descend(&mut me.own, &mut me.memory, phase, self.seed.derive(phase.name, []))
    }
}

/// `||theta_i - theta||` over the parameters that both have.
pub(crate) fn gap(me: &Weights, received: &Weights) -> f64 {
    me.theta().minus(&received.theta()).norm()
}
