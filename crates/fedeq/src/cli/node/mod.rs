//! `fedeq node ...`.
//!
//! # Layout
//! - `join`: `fedeq node --superlink ...`
//! - `predict`, `key`: what can be done with a node's folder without a SuperLink
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
  fedeq node --superlink 127.0.0.1:8000 --insecure --client 7 --state node-7
  fedeq node --superlink fl.example.org:8000 --roots ca.pem --client 7 --data data --state /var/lib/fedeq
  fedeq node key --state node-7 > node-7.pub
  fedeq node predict --state node-7 --input seven.png

The node keeps its key, its model and its dual in the state folder and goes on from there after a restart or a power cut. Ctrl-C
stops it after the work at hand.
A node trusts its server: the server chooses the experiment, and can recover samples from what the node shares. What the node refuses it refuses with
a fixed sentence; why is said here and nowhere else."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    join: Option<join::Join>,
    /// The folder that data sets are kept in, or the path of your own data
    #[arg(long, value_name = "DIR", env = "FEDEQ_DATA", default_value = "data", global = true)]
    data: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask the node's current model about new inputs; no connection is needed.
    Predict(predict::Arguments),
    /// Write the node's public key as one line, for `flwr supernode register`.
    Key(key::Arguments),
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let Arguments { join, data, command } = arguments;
    match (command, join) {
        (Some(Command::Predict(arguments)), _) => predict::run(arguments, data),
        (Some(Command::Key(arguments)), _) => key::run(arguments),
        (None, Some(arguments)) => join::run(arguments, data),
        (None, None) => Err(Failure::request("there is no SuperLink to join", "give `--superlink HOST:PORT`")),
    }
}

/// Something about the node's folder, its key or its SuperLink.
fn refused(error: fedeq_flower::Error) -> Failure {
    use fedeq_flower::Error;
    let hint = match &error {
        Error::Untrusted { .. } => {
            "give the certificate of who vouches for the SuperLink with `--roots`, and the host name that its certificate is for; \
             `--insecure` is for a SuperLink without TLS"
        }
        Error::Stranger { .. } => "check the clock of this machine: the SuperLink accepts five minutes",
        Error::Refused { call: "activate-node", .. } => {
            "register this node where the SuperLink is: `fedeq node key --state DIR` writes the key that `flwr supernode register` wants"
        }
        _ => "see `fedeq node --help`",
    };
    Failure::request(error.to_string(), hint)
}
