//! `fedeq node inspect`.
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_flower::store::NodeStore;
use fedeq_run::agreement::Agreement;

use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::print;
use crate::cli::table::facts;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq node inspect agreement.toml
  fedeq node inspect app --fingerprint
  fedeq node inspect --state node-7

Shows what an experiment would do with your data and what would leave the device, and the fingerprint that `fedeq node --accept` takes. \
Two experiments have the same fingerprint only if a node would do the same in both.")]
pub(super) struct NodeInspectCommand {
    /// The `agreement.toml` that `fedeq init-federation` wrote, or the app's folder
    #[arg(value_name = "PATH", required_unless_present = "state", conflicts_with = "state")]
    path: Option<PathBuf>,
    /// The folder of a node: shows the experiments that servers have asked for and the node has refused
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print nothing but the fingerprint
    #[arg(long)]
    fingerprint: bool,
}

pub(super) fn run(arguments: &NodeInspectCommand) -> Outcome<()> {
    let agreements = match (&arguments.path, &arguments.state) {
        (Some(path), _) => vec![Agreement::read(path).map_err(Failure::refused)?],
        (None, state) => refused_by(state.as_deref().unwrap_or(Path::new("")))?,
    };
    let show = |agreement: &Agreement| if arguments.fingerprint { fingerprint(agreement) } else { words(agreement) };
    print(&agreements.iter().map(show).collect::<Outcome<Vec<_>>>()?.join(if arguments.fingerprint { "" } else { "\n\n" }))
}

/// The experiments that a node was asked for and refused.
fn refused_by(state: &Path) -> Outcome<Vec<Agreement>> {
    let proposals = NodeStore::proposals(state);
    if proposals.is_empty() {
        let problem = format!("`{}` has no experiment that was asked for and refused", state.display());
        return Err(Failure::request(problem, "start the node with `--accept none` to see what a server asks for"));
    }
    proposals.iter().map(|proposal| Agreement::from_toml(&proposal.text).map_err(Failure::refused)).collect()
}

fn fingerprint(agreement: &Agreement) -> Outcome<String> {
    Ok(format!("{}\n", agreement.fingerprint().map_err(Failure::refused)?))
}

fn words(agreement: &Agreement) -> Outcome<String> {
    let mut text = format!("fingerprint {}", fingerprint(agreement)?);
    for section in agreement.describe() {
        text.push_str(&format!("\n{}\n{}", section.title, facts(&section.lines)));
    }
    Ok(text)
}
