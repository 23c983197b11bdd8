//! Our side of the benchmarks: `fedeq-benchmarks JOB` does a job given as JSON, and prints what came out as JSON.
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
use std::io::Write;
use std::process::ExitCode;

use fedeq_kernels::memory::Counting;
use job::Job;
use serde_json::{Value, json};

/// So that training can tell how much memory it takes.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    match answer(&argument) {
        Ok(answer) => {
            let written = writeln!(std::io::stdout(), "{answer}");
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(argument: &str) -> Result<Value> {
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
