//! `fedeq node`.
use std::fs;
use std::path::PathBuf;

use clap::Args;
use fedeq_flower::fleet::{Address, Fleet, Trust};
use fedeq_flower::key::Key;
use fedeq_flower::node::{Node, Notice};
use fedeq_flower::vault::Vault;

use super::failure::{Failure, Outcome};
use super::output::tell;
use super::settings::{is_interrupted, listen_for_interrupts};
use crate::node::Member;

/// Joins a Flower federation as a client.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq node --superlink 127.0.0.1:8000 --insecure --client 7 --state node-7
  fedeq node --superlink fl.example.org:8000 --roots ca.pem --client 7 --data data --state /var/lib/fedeq

The node keeps its key, its model and its dual in the state folder and goes on from there after a restart or a power cut. Ctrl-C
stops it after the work at hand.")]
pub(super) struct Arguments {
    /// The Fleet API of a SuperLink
    #[arg(long, value_name = "HOST:PORT")]
    superlink: String,
    /// Speak plain HTTP, on a machine or a network that you trust
    #[arg(long, conflicts_with = "roots")]
    insecure: bool,
    /// Root certificates, as PEM, that vouch for the SuperLink [default: those of the system]
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
    /// Which client of the federation this is, from 0
    #[arg(long, value_name = "N")]
    client: usize,
    /// The folder for key, model and dual
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The folder that data sets are kept in, or the path of your own data
    #[arg(long, value_name = "DIR", env = "FEDEQ_DATA", default_value = "data")]
    data: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let vault = Vault::open(&arguments.state).map_err(refused)?;
    let key = Key::open_or_create(&vault.key_file()).map_err(refused)?;
    let fleet = Fleet::new(&arguments.address()?, key).map_err(refused)?;
    let mut member = Member::new(arguments.client, arguments.data.clone());
    listen_for_interrupts("the work at hand");
    let mut say = |notice| tell(&words(&notice));
    let mut node = Node { fleet: &fleet, vault: &vault, worker: &mut member, tell: &mut say, stopped: &is_interrupted };
    node.serve().map_err(refused)
}

impl Arguments {
    fn address(&self) -> Outcome<Address> {
        let host = self.superlink.clone();
        let trust = match (&self.roots, self.insecure) {
            (_, true) => None,
            (Some(path), _) => Some(Trust::Certificates(fs::read(path).map_err(Failure::io(path, "read it"))?)),
            (None, _) => Some(Trust::System),
        };
        Ok(Address { host, trust })
    }
}

fn refused(error: fedeq_flower::Error) -> Failure {
    Failure::request(error.to_string(), "see `fedeq node --help`")
}

fn words(notice: &Notice) -> String {
    match notice {
        Notice::Joined(id) => format!("joined as node {id}"),
        Notice::Away(problem, seconds) => format!("{problem}; trying again in {seconds:.1} s"),
        Notice::Answered { round, seconds, .. } if *seconds == 0.0 => format!("round {}: answered as before", round + 1),
        Notice::Answered { round, seconds, .. } => format!("round {}: answered in {seconds:.1} s", round + 1),
        Notice::Refused(problem) => format!("refused a message: {problem}"),
    }
}
