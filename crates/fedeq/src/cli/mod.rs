//! What a person types, and what they read.
//!
//! stdout carries what was asked for, stderr everything else. Exit codes: 0 fine, 1 the work itself failed, 2 the request or
//! the input was wrong, 3 the time it was given is over and there is more to do, 130 it was interrupted by Ctrl-C.
//!
//! # Layout
//! - `demo`: `fedeq` alone
//! - `diagnose`: several fixed points in a finished run
//! - `data`: `fedeq data ...`; `devices`: what there is to compute on
//! - `run`, `resume`, `sweep`, `reproduce`: the commands that train; `search`: sweeps that train only the better ones to their end; `settings`, `progress` and `cells`, what they share
//! - `evaluate`, `predict`, `export`: the commands that use a finished run; `trained`, what they share; `export_logs`: journals for other programs
//! - `compare`: finished runs side by side; `report`: runs on a page; `dashboard`: runs in the browser
//! - `init_federation`, `node`: a Flower federation, its app and its clients
//! - `completions`: what a shell asks to complete
//! - `setting_list`: every setting there is
//! - `failure`: errors as people read them
//! - `output`, `table`: how things are written
mod cells;
mod compare;
mod completions;
mod dashboard;
mod data;
mod demo;
mod devices;
mod diagnose;
mod evaluate;
mod export;
mod export_logs;
mod failure;
mod init_federation;
mod node;
mod output;
mod predict;
mod progress;
mod report;
mod reproduce;
mod resume;
mod run;
mod search;
mod setting_list;
mod settings;
mod sweep;
mod trained;

/// Columns of text.
mod table {
    pub(super) use fedeq_report::text_table::{Align, TextTable as Table, facts};
}

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::program;
use failure::Outcome;

/// Personalised federated learning with deep equilibrium models.
#[derive(Debug, Parser)]
#[command(name = "fedeq", version, propagate_version = true, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  fedeq                           four methods side by side on the built-in digits, in a minute
  fedeq data list                 what data sets there are
  fedeq data inspect              look at the built-in one
  fedeq run                       train FeDEQ on it
  fedeq run --device cuda         the same on a GPU, all clients of a round at once
  fedeq report runs/demo          what came out, on a page to keep
  fedeq settings                  everything that can be set
  fedeq dashboard --open          watch runs in the browser
  fedeq reproduce --list          the paper's tables and figures";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show four methods side by side on the built-in digits; so does `fedeq` alone.
    Demo(demo::DemoCommand),
    /// Data sets: find, fetch, look at, and divide among clients.
    #[command(subcommand, after_help = data::EXAMPLES)]
    Data(data::Command),
    /// List what this machine can compute on: its CPU and its GPUs.
    Devices(devices::DevicesCommand),
    /// Train a federation.
    #[command(after_help = run::EXAMPLES)]
    Run(run::RunCommand),
    /// Continue a run that was stopped or killed.
    Resume(resume::ResumeCommand),
    /// Train over a grid of settings and several seeds.
    Sweep(sweep::SweepCommand),
    /// Reproduce tables and figures of the paper, or experiments beyond it.
    Reproduce(reproduce::ReproduceCommand),
    /// Put finished runs side by side.
    Compare(compare::Arguments),
    /// Write a report of runs: one page to keep and to share.
    Report(report::ReportCommand),
    /// Watch runs in the browser while they train.
    Dashboard(dashboard::DashboardCommand),
    /// Re-evaluate the models of a finished run.
    Evaluate(evaluate::EvaluateCommand),
    /// Predict with a client's model.
    Predict(predict::PredictCommand),
    /// Test whether the equilibrium models of a finished run have several fixed points.
    Diagnose(diagnose::DiagnoseCommand),
    /// Write clients' models as safetensors files.
    Export(export::ExportCommand),
    /// Export the logs of runs to MLflow or Weights & Biases.
    ExportLogs(export_logs::ExportLogsCommand),
    /// Write an experiment as an app for a Flower federation.
    InitFederation(init_federation::InitFederationCommand),
    /// Join a Flower federation as a client.
    Node(node::NodeCommand),
    /// List every setting of an experiment: values, default, bounds and what it is.
    Settings(setting_list::SettingsCommand),
    /// Write a script that completes `fedeq` commands in a shell.
    Completions(completions::CompletionsCommand),
}

/// Runs the command that the arguments name, the first being the program itself.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(exit_code(arguments))
}

/// The same for a process that ends by other means: gives the exit code.
pub fn exit_code(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    program::remember(&arguments);
    if completions::answer(&arguments) {
        return 0;
    }
    match Cli::try_parse_from(arguments) {
        Ok(cli) => failure::conclude(run(&cli)),
        Err(error) => {
            // Help and version are no errors; clap writes them to stdout and everything else to stderr.
            let _ = error.print();
            if error.use_stderr() { 2 } else { 0 }
        }
    }
}

fn run(cli: &Cli) -> Outcome<()> {
    let Some(command) = &cli.command else { return demo::run(&demo::DemoCommand::default()) };
    match command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Data(command) => data::run(command),
        Command::Devices(arguments) => devices::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Resume(arguments) => resume::run(arguments),
        Command::Sweep(arguments) => sweep::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Dashboard(arguments) => dashboard::run(arguments),
        Command::Evaluate(arguments) => evaluate::run(arguments),
        Command::Predict(arguments) => predict::run(arguments),
        Command::Diagnose(arguments) => diagnose::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::ExportLogs(arguments) => export_logs::run(arguments),
        Command::InitFederation(arguments) => init_federation::run(arguments),
        Command::Node(arguments) => node::run(arguments),
        Command::Settings(arguments) => setting_list::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
    }
}
