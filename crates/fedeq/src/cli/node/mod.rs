//! `fedeq node ...`.
//!
//! # Layout
//! - `join`: `fedeq node --superlink ...`; `guard`, what ends its work
//! - `inspect`: what an experiment would do with a device's data
//! - `predict`, `key`: commands that need a node's folder and no SuperLink
mod guard;
mod inspect;
mod join;
mod key;
mod predict;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::failure::{Failure, Outcome};

/// Joins a Flower federation as a client.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  fedeq node inspect agreement.toml
  fedeq node --superlink 127.0.0.1:8000 --insecure --client 7 --state node-7 --accept FINGERPRINT
  fedeq node --superlink fl.example.org:8000 --roots ca.pem --client 7 --data data --state /var/lib/fedeq --accept FINGERPRINT
  fedeq node key --state node-7 > node-7.pub
  fedeq node predict --state node-7 --input seven.png

The node carries out one experiment, the one whose fingerprint is accepted, and refuses everything else. It keeps its key, its model and its dual in the
state folder and continues from there after a restart or a power cut. Ctrl-C stops it at once.
A server can still compute something about samples from the parameters that the node sends: see docs/security.md. It is told only that a
request was refused; the reason is logged here."
)]
pub(super) struct NodeCommand {
    #[command(flatten)]
    join: Option<join::Join>,
    #[command(flatten)]
    limits: join::Limits,
    /// The folder of the data sets, or the path of your own data
    #[arg(long, value_name = "DIR", env = "FEDEQ_DATA", default_value = "data", global = true)]
    data: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what an experiment would do with your data, before you accept it.
    Inspect(inspect::NodeInspectCommand),
    /// Predict with the node's current model; no connection is needed.
    Predict(predict::NodePredictCommand),
    /// Print a public key of the node: for `flwr supernode register`, or for other clients.
    Key(key::NodeKeyCommand),
}

pub(super) fn run(arguments: &NodeCommand) -> Outcome<()> {
    let NodeCommand { join, limits, data, command } = arguments;
    match (command, join) {
        (Some(Command::Inspect(arguments)), _) => inspect::run(arguments),
        (Some(Command::Predict(arguments)), _) => predict::run(arguments, data),
        (Some(Command::Key(arguments)), _) => key::run(arguments),
        (None, Some(arguments)) => join::run(arguments, limits, data),
        (None, None) => Err(Failure::request("no SuperLink is given", "give `--superlink HOST:PORT`")),
    }
}

/// An error of the node's folder, its key or its SuperLink, with a hint.
fn refused(error: fedeq_flower::Error) -> Failure {
    use fedeq_flower::Error;
    let hint = match &error {
        Error::Untrusted { .. } => {
            "give the root certificate that signed the SuperLink's with `--roots`, and the host name that is in the SuperLink's certificate; \
             `--insecure` is for a SuperLink without TLS"
        }
        Error::UnknownNode { .. } => "check the clock of this machine: the SuperLink accepts a difference of five minutes",
        Error::Refused { call: "activate-node", .. } => {
            "register this node with the SuperLink: `fedeq node key --state DIR` prints the key for `flwr supernode register`"
        }
        _ => "see `fedeq node --help`",
    };
    Failure::request(error.to_string(), hint)
}
