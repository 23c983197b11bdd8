//! `fedeq-benchmarks JOB` does a job given as JSON, and prints what came out as JSON.
use std::io::Write;
use std::process::ExitCode;

use fedeq_memory::Counting;

/// So that training can tell how much memory it takes.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    fedeq_memory::keep();
    let argument = std::env::args().nth(1).unwrap_or_default();
    match fedeq_benchmarks::answer(&argument) {
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
