//! Personalised federated learning: methods, clients, server, messages and checkpoints.
mod acceptance;
mod aggregation;
mod algorithm;
mod asynchronous;
mod attack;
mod client;
mod codec;
mod compression;
mod disclosure;
mod divergence;
mod drift;
mod engine;
mod error;
mod file;
mod fixed_points;
mod frame;
mod message;
mod metrics;
mod observer;
mod optimiser;
mod parallel;
mod params;
mod patience;
mod plan;
mod privacy;
mod projection;
mod sampler;
mod secure;
mod sent;
mod server;
mod server_optimiser;
mod server_state;
mod state;
mod stats;
mod store;
mod training;
mod transport;
mod unseen;
mod weights;
mod work;

pub use acceptance::{Acceptance, Dropped, Limits};
pub use aggregation::{
    AdaptiveClip, Aggregation, AggregationRule, Clipping, GeometricMedian, Handled, Krum, Received, Treatment, TrimmedMean,
    clip_to,
};
pub use algorithm::*;
pub use asynchronous::{Arrival, AsyncSchedule, Asynchronous};
pub use attack::{Attack, AttackKind, Liars};
pub use client::{Client, client_seed, shared_part, shares_anything};
pub use codec::Codec;
pub use compression::{Compression, CompressionState, KnownModel, ReceivedModel, decode_model, encode_model, sending_seed};
pub use disclosure::Disclosure;
pub use divergence::diverged_in_phase;
pub use drift::{Drift, DriftWindow};
pub use engine::{
    ClientByClient, Done, Engine, Evaluated, EvaluationJob, HostWork, Job, LocalProblem, LocalProblems, ReadyPhase, ScoreRequest,
    Started, StartedEvaluation, Workspace,
};
pub use error::{Error, Result};
pub use fedeq_data::named;
pub use fedeq_models::Preset;
pub use fedeq_models::store::Metadata;
pub use fedeq_secure::{SigningSecret, key_from_hex, key_to_hex};
pub use file::{fingerprint, write_atomically};
pub use fixed_points::{Examined, FixedPoints, Search};
pub use frame::{is_framed, len as framed_len, read as read_frame, write as write_frame};
pub use message::{ClientTask, Reply, Request, Scores, Theory, decode_parts, encode_parts, encoded_len};
pub use metrics::{ClientDistance, DistanceSummary, Evaluation, Quality, Round, TheorySums};
pub use observer::{ClientObserver, Event, Observer, RoundSeconds};
pub use optimiser::{Optimiser, OptimiserName, Schedule, ScheduleShape};
pub use parallel::Workers;
pub use params::{Array, Params};
pub use patience::{StoodStill, ValidationRecord};
pub use plan::Plan;
pub use privacy::{Accountant, Drawn, Mechanism, NoiseBy, Privacy, PrivacySpent, PrivacySummary, Relation};
pub use projection::Projection;
pub use sampler::Sampling;
pub use secure::{CarryStep, SecureAggregation, SecureClient, SecureMean, SecureRounds, SecureStep};
pub use sent::{EngineWeights, SentWeights};
pub use server::Server;
pub use server_optimiser::{ServerOptimiser, ServerRule};
pub use server_state::ServerState;
pub use state::{ClientState, EngineState, KeptState};
pub use stats::*;
pub use store::ClientStore;
pub use training::{InitialHeads, Training};
pub use transport::{InProcess, Traffic, Transport};
pub use unseen::Unseen;
pub use weights::Weights;
pub use work::*;

/// The code on the page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-a-method.md")]
struct AddAMethod;
