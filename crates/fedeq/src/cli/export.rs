//! `fedeq export`.
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::tell;
use super::trained::FinishedRunArgs;
use fedeq_run::export::export;
use fedeq_run::number::counted;

/// Writes clients' models as safetensors files.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq export runs/fedeq-digits-0 --out models
  fedeq export runs/fedeq-digits-0 --client client-07 --out models

A file holds a client's whole model, shared and personal part; `export.json` says what belongs to which, and how inputs are scaled.")]
pub(super) struct ExportCommand {
    #[command(flatten)]
    run: FinishedRunArgs,
    /// Only this client
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// The folder to write to, new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(arguments: &ExportCommand) -> Outcome<()> {
    let trained = arguments.run.open()?;
    let clients = match &arguments.client {
        Some(name) => vec![trained.client(name).map_err(Failure::refused)?],
        None => (0..trained.prepared().names().count()).collect(),
    };
    let export = export(&trained, &clients, &arguments.out).map_err(Failure::refused)?;
    if export.neighbours.is_some() {
        tell(
            "the files hold the networks alone; the clients' training samples, which vote along in their predictions, are not in them",
        );
    }
    tell(&format!("wrote {} and `export.json` to `{}`", counted(clients.len(), "model"), arguments.out.display()));
    Ok(())
}
