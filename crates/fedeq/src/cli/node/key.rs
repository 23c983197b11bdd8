//! `fedeq node key`.
use std::path::PathBuf;

use clap::Args;
use fedeq_core::key_to_hex;
use fedeq_flower::store::NodeStore;
use fedeq_run::agreement::SigningKeys;

use super::refused;
use crate::cli::failure::Outcome;
use crate::cli::output::print;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq node key --state node-7 > node-7.pub
  flwr supernode register node-7.pub
  fedeq node key --signing --client 7 --state node-7 >> clients.toml

The first key is the one by which the SuperLink knows the node. With `--signing` it is the one by which the other clients of a secure aggregation know it: collect the lines of all \
clients in a file, from their owners and not from the server, for `fedeq init-federation --signing-keys` and `fedeq node --signing-keys`.")]
pub(super) struct NodeKeyCommand {
    /// The folder of the node; it is created, with a new key, if it does not exist
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The key to sign with in secure aggregation, instead of the one for the SuperLink
    #[arg(long)]
    signing: bool,
    /// Print it as the line of this client in a list of keys
    #[arg(long, value_name = "N", requires = "signing")]
    client: Option<usize>,
}

pub(super) fn run(arguments: &NodeKeyCommand) -> Outcome<()> {
    if arguments.signing {
        let key = NodeStore::signing_key_in(&arguments.state).map_err(refused)?.public_key();
        return print(&arguments.client.map_or_else(|| key_to_hex(&key) + "\n", |client| SigningKeys::line(client, &key)));
    }
    let key = NodeStore::key_in(&arguments.state).map_err(refused)?;
    print(&(key.public_line() + "\n"))
}
