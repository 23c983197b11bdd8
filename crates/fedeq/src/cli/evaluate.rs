//! `fedeq evaluate`.
use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::table::facts;
use super::trained::Chosen;
use fedeq_run::number::{counted, percent};
use fedeq_run::run::{Judgement, Trained, headline};

/// Judges the models of a finished run anew.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq evaluate runs/fedeq-digits-0
  fedeq evaluate runs/fedeq-digits-0 --json

The numbers are those of the run's last evaluation, if data and program are the same.")]
pub(super) struct Arguments {
    #[command(flatten)]
    run: Chosen,
    /// Write it all as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let trained = arguments.run.open()?;
    let judgement = trained.evaluate().map_err(Failure::during_work)?;
    if !judgement.agrees {
        tell("these are not the numbers that the run itself found: its data or the program has changed since");
    }
    if arguments.json { print_json(&judgement) } else { print(&text_of(&trained, &judgement)) }
}

fn text_of(trained: &Trained, judgement: &Judgement) -> String {
    let summary = trained.summary();
    let evaluation = &judgement.evaluation;
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
    lines.extend(judgement.unseen.as_ref().map(|unseen| ("unseen", percent(unseen.local.mean))));
    let agreement = if judgement.agrees { "the same numbers" } else { "other numbers" };
    lines.push(("at its end", agreement.into()));
    format!("{} on {} with {}\n{}", summary.method, summary.data, summary.model, facts(&lines))
}
