//! `fedeq node predict`.
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_flower::vault::Learned;

use super::refused;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::predict::{Asked, INPUTS};
use crate::node::recall;

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
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments, data: &Path) -> Outcome<()> {
    let Arguments { state, federation, asked } = arguments;
    let learned = Learned::read(state, federation.as_deref()).map_err(refused)?;
    let learned = learned.ok_or_else(|| {
        let problem = format!("`{}` holds no model yet", state.display());
        Failure::request(problem, "let the node train first: `fedeq node --superlink HOST:PORT --client N --state DIR`")
    })?;
    let (prepared, model) = recall(&learned, data).map_err(Failure::refused)?;
    asked.answer(&prepared, &model)
}
