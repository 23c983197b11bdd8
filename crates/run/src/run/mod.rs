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
//! | `scaling.json` | mean and deviation of every feature, where those of a table are standardised |
//! | `status.json`, `lock` | whether it is running, finished or stopped; the lock is held as long as the process lives |
//! | `rounds.jsonl`, `evaluations.jsonl` | one line a round and an evaluation: the same bytes for the same experiment |
//! | `timings.jsonl` | where the time went, and the peak memory |
//! | `heads.jsonl` | how far the clients' personal heads moved, a line a round |
//! | `clients.json` | who the clients are and how much of what they hold |
//! | `activity.json`, `control.json` | while it is carried out: who is at work, and what somebody wants of it |
//! | `metrics.csv`, `tensorboard/` | evaluations for other programs |
//! | `checkpoints/` | manifests `NNNNNN.json` of the last two checkpoints (of a finished run: the last one), and the server's weights they name |
//! | `clients/` | the clients' states they name; nothing of it ever reaches the server |
//! | `summary.json` | what came out, once it is finished |
//!
//! # Layout
//! - `launch`: creating, resuming and carrying out a run
//! - `journal`, `journals`, `lines`, `tail`: files of lines that can be cut back, one and all of them, and reading them while they grow
//! - `reach`: which files may be read as parts of a run
//! - `folder`, `status`, `version`: the folder and its files
//! - `find`: which folders are those of runs
//! - `manifest`, `checkpoint`: what there is to come back to
//! - `disk`: how much room a run will take
//! - `record`, `timing`, `table`, `tensorboard`: what is written down as it happens
//! - `roster`, `activity`, `heads`: who the clients are, who is at work, what becomes of their heads
//! - `order`, `gate`, `attendant`: pausing and stopping a run from outside its process
//! - `summary`: what came out
//! - `trained`: a finished run, opened to be used
//! - `watch`: who looks on
mod activity;
mod attendant;
mod checkpoint;
mod disk;
mod find;
mod folder;
mod gate;
mod heads;
mod journal;
mod journals;
mod launch;
mod lines;
mod manifest;
mod order;
mod reach;
mod record;
mod roster;
mod status;
mod summary;
mod table;
mod tail;
mod tensorboard;
mod timing;
mod trained;
mod version;
mod watch;

pub use activity::Activity;
pub use checkpoint::Which;
pub use disk::Disk;
pub use find::{Links, runs_below};
pub use folder::RunFolder;
pub use folder::{read_json, write_json};
pub use heads::{Head, Heads};
pub use journal::Stamp;
pub use launch::{Run, launch};
pub use manifest::{Manifest, Stage};
pub use order::Order;
pub use reach::Reach;
pub use roster::Roster;
pub use status::{State, Status};
pub use summary::headline;
pub use summary::{Resources, Summary, Unseen};
pub use tail::Tail;
pub use timing::Timing;
pub use trained::{ClientModel, Diagnosis, Judgement, Trained};
pub use version::Version;
pub use watch::{Brief, Silent, Watch};
