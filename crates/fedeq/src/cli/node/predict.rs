//! `fedeq node predict`.
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_flower::vault::Learned;

use super::refused;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::predict::{INPUTS, PredictArgs};
use crate::node::{describe, recall};

#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  fedeq node predict --state node-7
  fedeq node predict --state node-7 --input seven.png --json
  fedeq node predict --state node-7 --samples 0..10 --csv

The node may be at work meanwhile, or not. {INPUTS}"))]
pub(super) struct Arguments {
    /// The folder of the node
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Which federation's model, where the node has taken part in several
    #[arg(long, value_name = "NAME")]
    federation: Option<String>,
    #[command(flatten)]
    asked: PredictArgs,
}

pub(super) fn run(arguments: &Arguments, data: &Path) -> Outcome<()> {
    let Arguments { state, federation, asked } = arguments;
    if federation.is_none() {
        require_only_one(state)?;
    }
    let learned = Learned::read(state, federation.as_deref()).map_err(refused)?;
    let learned = learned.ok_or_else(|| {
        let problem = format!("`{}` holds no model yet", state.display());
        Failure::request(problem, "let the node train first: `fedeq node --superlink HOST:PORT --client N --state DIR`")
    })?;
    let (prepared, model) = recall(&learned, data).map_err(Failure::refused)?;
    asked.answer(&prepared, &model)
}

/// Among several federations one must be chosen; their names say little, so what was learned in each is told.
fn require_only_one(state: &Path) -> Outcome<()> {
    let names = Learned::federations(state).map_err(refused)?;
    if names.len() < 2 {
        return Ok(());
    }
    let line = |name: &String| -> Outcome<String> {
        let learned = Learned::read(state, Some(name)).map_err(refused)?;
        let words = learned.map_or_else(|| Ok("nothing yet".into()), |learned| describe(&learned)).map_err(Failure::refused)?;
        Ok(format!("  --federation {name}    {words}"))
    };
    let lines = names.iter().map(line).collect::<Outcome<Vec<_>>>()?;
    let problem = format!("`{}` holds the models of several federations", state.display());
    Err(Failure::request(problem, format!("choose one of\n{}", lines.join("\n"))))
}
