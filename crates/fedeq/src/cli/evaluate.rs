//! `fedeq evaluate`.
use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::settings::device_of;
use super::table::facts;
use super::trained::FinishedRunArgs;
use fedeq_run::number::{counted, percent};
use fedeq_run::run::{Reevaluation, Trained, headline};

/// Re-evaluates the models of a finished run.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq evaluate runs/fedeq-digits-0
  fedeq evaluate runs/fedeq-digits-0 --json
  fedeq evaluate runs/fedeq-digits-0 --device cpu      elsewhere than it was trained

The numbers are those of the run's last evaluation, if data, program and device are the same.")]
pub(super) struct EvaluateCommand {
    #[command(flatten)]
    run: FinishedRunArgs,
    /// What to compute on: `cpu`, `cuda` or `cuda:1` [default: what the run was computed on]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Write it all as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &EvaluateCommand) -> Outcome<()> {
    let trained = arguments.run.open_on(device_of(arguments.device.as_deref())?)?;
    let found = trained.evaluate().map_err(Failure::during_work)?;
    if !found.agrees {
        let reason =
            if trained.is_moved() { "another device rounds differently" } else { "its data or the program has changed since" };
        tell(&format!("these numbers differ from those of the run itself: {reason}"));
    }
    if arguments.json { print_json(&found) } else { print(&text_of(&trained, &found)) }
}

fn text_of(trained: &Trained, found: &Reevaluation) -> String {
    let summary = trained.summary();
    let evaluation = &found.evaluation;
    let quality = headline(summary.headline, evaluation);
    let mut lines = vec![
        (
            "accuracy",
            format!(
                "{} (mean over {}, {})",
                percent(quality.mean),
                counted(quality.clients.len(), "client"),
                summary.headline.name()
            ),
        ),
        ("by samples", percent(quality.weighted)),
        ("worst tenth", percent(quality.worst_decile)),
        ("local", format!("{} (each client's own model)", percent(evaluation.local.mean))),
    ];
    let told = |mean: f64| format!("{} (the server's model with each client's head)", percent(mean));
    lines.extend(evaluation.shared.as_ref().map(|shared| ("shared", told(shared.mean))));
    lines.extend(found.unseen.as_ref().map(|unseen| ("unseen", percent(unseen.local.mean))));
    let agreement = if found.agrees { "the same numbers" } else { "other numbers" };
    lines.push(("at its end", agreement.into()));
    format!("{} on {} with {}\n{}", summary.method, summary.data, summary.model, facts(&lines))
}
