//! `fedeq node predict`.
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_flower::store::TrainedModel;

use super::refused;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::predict::{INPUTS, PredictArgs};
use crate::node::{describe, load_model};

#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  fedeq node predict --state node-7
  fedeq node predict --state node-7 --input seven.png --json
  fedeq node predict --state node-7 --samples 0..10 --csv

Works offline, and also while the node is running. {INPUTS}"))]
pub(super) struct NodePredictCommand {
    /// The folder of the node
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The federation whose model to use, if the node has taken part in several
    #[arg(long, value_name = "NAME")]
    federation: Option<String>,
    #[command(flatten)]
    asked: PredictArgs,
}

pub(super) fn run(arguments: &NodePredictCommand, data: &Path) -> Outcome<()> {
    let NodePredictCommand { state, federation, asked } = arguments;
    let name = choose(state, federation.as_deref())?;
    let trained = TrainedModel::read(state, &name).map_err(refused)?.ok_or_else(|| no_model(state))?;
    let (prepared, model) = load_model(&trained, data).map_err(Failure::refused)?;
    asked.answer(&prepared, &model)
}

/// The federation of the given name, or the only one.
fn choose(state: &Path, name: Option<&str>) -> Outcome<String> {
    let mut names = TrainedModel::federations(state).map_err(refused)?;
    let problem = match name {
        Some(name) if names.iter().any(|known| known == name) => return Ok(name.into()),
        Some(name) if !names.is_empty() => format!("`{}` has no model of a federation `{name}`", state.display()),
        None if names.len() > 1 => format!("`{}` has the models of several federations", state.display()),
        _ => return names.pop().ok_or_else(|| no_model(state)),
    };
    let lines = names.iter().map(|name| choice(state, name)).collect::<Outcome<Vec<_>>>()?;
    Err(Failure::request(problem, format!("choose one of\n{}", lines.join("\n"))))
}

/// An option to type, with what was trained in that federation: its name alone says little.
fn choice(state: &Path, name: &str) -> Outcome<String> {
    let trained = TrainedModel::read(state, name).map_err(refused)?;
    let description = trained.map_or_else(|| Ok("not trained yet".into()), |trained| describe(&trained));
    Ok(format!("  --federation {name}    {}", description.map_err(Failure::refused)?))
}

fn no_model(state: &Path) -> Failure {
    let problem = format!("`{}` has no model yet", state.display());
    Failure::request(
        problem,
        "let the node train first: `fedeq node --superlink HOST:PORT --client N --state DIR --accept FINGERPRINT`",
    )
}
