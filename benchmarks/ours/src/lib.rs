//! Our side of the benchmarks: does a job given as JSON, and says what came out as JSON.
//!
//! The program is the example `fedeq-benchmarks`: a second binary in the workspace would leave `cargo run` without an answer to which one is meant.
//!
//! # Layout
//! - `job`: what can be asked for
//! - `setting`: a network and how its equilibrium is solved
//! - `samples`, `file`: the data both sides work on, and how it reaches the other side
//! - `step`, `round`, `peak`: the work
//! - `memory`: what it took
mod file;
mod job;
mod memory;
mod peak;
mod round;
mod samples;
mod setting;
mod step;

use std::error::Error;

use job::Job;
use serde_json::{Value, json};

/// What can go wrong is told to whoever reads it, and nobody tells kinds apart.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Does the job that a line of JSON describes.
pub fn answer(argument: &str) -> Result<Value> {
    let job: Job = serde_json::from_str(argument)?;
    let idle = memory::megabytes("VmRSS")?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(job.threads()).build()?;
    let mut answer = pool.install(|| job.run())?;
    if let Value::Object(entries) = &mut answer {
        entries.insert("idle_mb".into(), json!(idle));
        entries.insert("peak_mb".into(), json!(memory::megabytes("VmHWM")?));
    }
    Ok(answer)
}
