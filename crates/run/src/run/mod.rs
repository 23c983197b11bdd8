//! Runs: an experiment carried out in a folder that says everything about it.
//!
//! ```no_run
//! use fedeq_run::experiment::Experiment;
//! use fedeq_run::run::{Run, Silent};
//! let experiment = Experiment::read(None, &[])?;
//! let run = Run::create(&experiment, "runs/first".as_ref())?; // Whatever can be refused is refused here.
//! let summary = run.train(&mut Silent, &|| false)?;
//! println!("{:.1} %", 100.0 * summary.accuracy());
//! # Ok::<(), fedeq_core::Error>(())
//! ```
//!
//! A run folder holds
//!
//! | | |
//! |---|---|
//! | `experiment.toml` | the experiment, every choice explicit |
//! | `version.json` | which program made it, and on what |
//! | `data.safetensors` | what it learns from, where a program handed that over from memory |
//! | `scaling.json` | mean and deviation of every feature, where those of a table are standardised |
//! | `network.safetensors` | what the network started from, where it is computed outside of fedeq |
//! | `status.json`, `lock` | whether it is running, finished or stopped; the lock is held as long as the process lives |
//! | `rounds.jsonl`, `evaluations.jsonl` | one line a round and an evaluation: the same bytes for the same experiment |
//! | `timings.jsonl` | where the time went, the peak memory, and what a GPU held and did |
//! | `failures.jsonl` | clients whose replies did not count, and why, also in rounds that were repeated; only where clients are elsewhere |
//! | `heads.jsonl` | how far the clients' personal heads moved, a line a round |
//! | `clients.json` | who the clients are and how much of what they hold |
//! | `activity.json`, `control.json` | while it is carried out: who is at work, and what is wanted of it |
//! | `metrics.csv`, `tensorboard/` | evaluations for other programs |
//! | `checkpoints/` | manifests `NNNNNN.json` of the last two checkpoints (of a finished run: the last one), and the server's weights they name |
//! | `clients/` | the clients' states they name; nothing of it ever reaches the server |
//! | `summary.json` | what came out, once it is finished |
//!
//! # Layout
//! - `launch`: creating, resuming and carrying out a run; `engine`: what it is computed by
//! - `federated`: the server of a federation whose clients are elsewhere
//! - `folder`: the folder, and which folders are those of runs; `heartbeat`: whether a process works on it; `files`: what is in it; `metadata`: the small ones; `file_access`: which files may be read as parts of a run
//! - `journal`: files of lines that can be cut back, and reading them while they grow; `record`, `tensorboard`: what is written down as it happens
//! - `checkpoint`: what there is to come back to
//! - `progress`: who is at work, and what becomes of clients' heads; `control`: pausing and stopping a run from outside its process
//! - `observer`: who watches, and what a person should know meanwhile; `start`: what there is to say beforehand; `summary`: what came out
//! - `trained`: a finished run, opened to be used
mod checkpoint;
mod control;
mod engine;
mod federated;
mod file_access;
mod files;
mod folder;
mod heartbeat;
mod journal;
mod launch;
mod metadata;
mod observer;
mod progress;
mod record;
mod start;
mod summary;
mod tensorboard;
mod trained;

pub use checkpoint::{Manifest, Stage, Which};
pub use control::ControlCommand;
pub use engine::{DeviceUse, Share};
pub use federated::{ClientLink, FederatedRun, FederationPlan, LinkContext, Outgoing, ReceivedReply, Remote};
pub use file_access::FileAccess;
pub use files::{read_json, write_json};
pub use folder::{Links, RunFolder, runs_below};
pub use heartbeat::Heartbeat;
pub use journal::{Stamp, Tail};
pub use launch::{FromMemory, Run, launch};
pub use metadata::{Roster, RunState, Status, UsedGpu, Version};
pub use observer::{FederationObserver, Silent, SimulationObserver, Warnings};
pub use progress::{Activity, Head, Heads};
pub use record::{FailedReply, Timing, scalars, scalars_of_evaluation, scalars_of_round};
pub use start::{Disk, RunStart};
pub use summary::{AttackSummary, Resources, RunSummary, headline, in_words};
pub use trained::{ClientModel, Diagnosis, Reevaluation, Trained};
