//! What a person types, and what they read.
//!
//! stdout carries what was asked for, stderr everything else. Exit codes: 0 fine, 1 the work itself failed, 2 the request or
//! the input was wrong, 130 it was interrupted by Ctrl-C.
//!
//! # Layout
//! - `data`: `fedeq data ...`
//! - `run`, `resume`: the commands that train; `settings` and `progress`, what they share
//! - `failure`: errors as people read them
//! - `output`, `table`: how things are written
mod data;
mod failure;
mod output;
mod progress;
mod resume;
mod run;
mod settings;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Outcome;

/// Personalised federated learning with deep equilibrium models.
#[derive(Debug, Parser)]
#[command(name = "fedeq", version, propagate_version = true, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  fedeq data list                 what data sets there are
  fedeq data inspect              look at the built-in one
  fedeq run                       train FeDEQ on it";

#[derive(Debug, Subcommand)]
enum Command {
    /// Data sets: find, fetch, look at, and divide among clients.
    #[command(subcommand, after_help = data::EXAMPLES)]
    Data(data::Command),
    /// Train a federation.
    #[command(after_help = run::EXAMPLES)]
    Run(run::Arguments),
    /// Go on with a run that was stopped or killed.
    Resume(resume::Arguments),
}

/// Runs the command that the arguments name, the first being the program itself.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => failure::conclude(run(&cli)),
        Err(error) => {
            // Help and version are no errors; clap writes them to stdout and everything else to stderr.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
    }
}

fn run(cli: &Cli) -> Outcome<()> {
    match &cli.command {
        Command::Data(command) => data::run(command),
        Command::Run(arguments) => run::run(arguments),
        Command::Resume(arguments) => resume::run(arguments),
    }
}
