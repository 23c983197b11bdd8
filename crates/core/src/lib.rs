//! Personalised federated learning: methods, clients, server, messages and checkpoints.
mod algorithm;
mod asynchronous;
mod bridge;
mod client;
mod crew;
mod divergence;
mod error;
mod file;
mod fixed_points;
mod loss;
mod message;
mod metrics;
mod network_site;
mod params;
mod projection;
mod sampler;
mod score;
mod server;
mod server_state;
mod sgd;
mod site;
mod state;
mod store;
mod training;
mod transport;
mod weights;
mod witness;

pub use algorithm::*;
pub use asynchronous::{Agenda, Arrival, Asynchronous};
pub use bridge::{head_of, named_statistics, network_with, params_of, statistics_with};
pub use client::{Client, travelling};
pub use error::{Error, Result};
pub use file::{fingerprint, write_atomically};
pub use fixed_points::{Examined, FixedPoints, Search};
pub use message::{Reply, Request, Scores, Task, Theory};
pub use metrics::{Evaluation, Quality, Round, TheorySums};
pub use network_site::NetworkSite;
pub use params::{Array, Metadata, Params};
pub use projection::Projection;
pub use sampler::Sampling;
pub use server::{Event, Federation, Observer, Plan, RoundSeconds};
pub use server_state::ServerState;
pub use site::*;
pub use state::ClientState;
pub use store::ClientStore;
pub use training::{InitialHeads, Training};
pub use transport::{InProcess, Sites, Traffic, Transport, client_seed};
pub use weights::Weights;
pub use witness::Witness;

/// The code on the page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-a-method.md")]
struct AddAMethod;
