//! `fedeq export-logs`.
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fedeq_run::compare::folders;
use fedeq_run::number::counted;
use fedeq_run::tracking::{RunLog, write_mlflow, write_wandb};

use super::completions;
use super::failure::{Failure, Outcome};
use super::output::tell;

/// Exports the logs of runs to MLflow or Weights & Biases.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq export-logs runs/demo --to mlflow --out mlruns       then: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri mlruns
  fedeq export-logs runs/demo --to wandb --out for-wandb     then: python for-wandb/import_wandb.py
  tensorboard --logdir runs                                  reads run folders as they are

Runs may be finished or under way; the same command again adds what came since.")]
pub(super) struct ExportLogsCommand {
    /// Run folders, or folders that hold run folders
    #[arg(value_name = "RUN", required = true, add = completions::runs())]
    runs: Vec<PathBuf>,
    /// The program to export to
    #[arg(long, value_enum)]
    to: Tracker,
    /// The folder to write to, which may already exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What MLflow calls an experiment and Weights & Biases a project
    #[arg(long, value_name = "NAME", default_value = "fedeq")]
    project: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tracker {
    /// MLflow's file store.
    Mlflow,
    /// Files, and a script that hands them to the client of Weights & Biases.
    Wandb,
}

pub(super) fn run(arguments: &ExportLogsCommand) -> Outcome<()> {
    let mut logs = Vec::new();
    for path in &arguments.runs {
        for folder in folders(path).map_err(Failure::refused)? {
            logs.push(RunLog::read(&folder).map_err(Failure::refused)?);
        }
    }
    let ExportLogsCommand { out, project, .. } = arguments;
    match arguments.to {
        Tracker::Mlflow => write_mlflow(&logs, out, project),
        Tracker::Wandb => write_wandb(&logs, out, project),
    }
    .map_err(Failure::during_work)?;
    let next = match arguments.to {
        Tracker::Mlflow => {
            format!("look at them with `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {}`", out.display())
        }
        Tracker::Wandb => format!("hand them over with `python {}`", out.join("import_wandb.py").display()),
    };
    tell(&format!("wrote {} to `{}`; {next}", counted(logs.len(), "run"), out.display()));
    Ok(())
}
