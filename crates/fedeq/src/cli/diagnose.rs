//! `fedeq diagnose`.
use clap::Args;
use fedeq_core::{FixedPoints, Search};
use serde::Serialize;

use super::failure::{Failure, Outcome};
use super::output::{print, print_json};
use super::table::{Align, Table};
use super::trained::FinishedRunArgs;
use fedeq_run::experiment::equilibrium_models;
use fedeq_run::number::{count, counted};
use fedeq_run::run::{Diagnosis, Trained};

/// Tests whether the equilibrium models of a finished run have several fixed points.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq diagnose runs/fedeq-digits-0
  fedeq diagnose runs/fedeq-digits-0 --client client-07 --samples 50 --starts 10
  fedeq diagnose runs/fedeq-digits-0 --json

Every sample is solved for several times, to a tolerance of 1e-5: once from the model's own start and otherwise from random states. Solves that end more than 1 % apart \
have found different fixed points. Below 1 the spectral radius of the cell's Jacobian says that a fixed point is stable. A run that is to watch this while it trains \
has `--set training.watch_fixed_points.samples=5`.")]
pub(super) struct DiagnoseCommand {
    #[command(flatten)]
    run: FinishedRunArgs,
    /// Only this client [default: all]
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Test samples a client
    #[arg(long, value_name = "N", default_value_t = Search::default().samples)]
    samples: usize,
    /// Solves a sample
    #[arg(long, value_name = "N", default_value_t = 5)]
    starts: usize,
    /// Write it all as JSON, sample by sample
    #[arg(long)]
    json: bool,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Finding {
    /// Solves a sample.
    starts: usize,
    /// Over all clients.
    found: FixedPoints,
    /// One by one.
    clients: Vec<Diagnosis>,
}

pub(super) fn run(arguments: &DiagnoseCommand) -> Outcome<()> {
    let search = Search { samples: arguments.samples, starts: arguments.starts };
    search.validate("--").map_err(Failure::refused)?;
    let trained = arguments.run.open()?;
    let clients = match &arguments.client {
        Some(name) => vec![trained.client(name).map_err(Failure::refused)?],
        None => (0..trained.prepared().names().count()).collect(),
    };
    let clients = trained.diagnose(&clients, &search).map_err(Failure::during_work)?.ok_or_else(|| explicit(&trained))?;
    let found = clients.iter().fold(FixedPoints::default(), |sum, client| sum.plus(&client.found));
    let finding = Finding { starts: search.starts, found, clients };
    if arguments.json { print_json(&finding) } else { print(&text_of(&finding)) }
}

fn explicit(trained: &Trained) -> Failure {
    let model = &trained.summary().model;
    Failure::request(format!("`{model}` solves for no fixed point"), format!("diagnose a run of {}", equilibrium_models()))
}

fn text_of(finding: &Finding) -> String {
    let columns = ["samples", "several", "answers differ", "unsettled", "unstable", "distance", "radius", "largest radius"];
    let mut heading = vec![("client", Align::Left)];
    heading.extend(columns.map(|name| (name, Align::Right)));
    let mut table = Table::new(&heading);
    for client in &finding.clients {
        table.row(cells(&client.client, &client.found));
    }
    format!("{}\n{}", table.text(), sentence(finding))
}

fn cells(name: &str, found: &FixedPoints) -> Vec<String> {
    let FixedPoints { samples, several, answers_differ, unsettled, unstable, distance, largest_radius, .. } = found;
    let counts = [samples, several, answers_differ, unsettled, unstable].map(|number| count(*number as usize));
    let radii = [found.mean_radius().unwrap_or_default(), *largest_radius].map(|radius| format!("{radius:.3}"));
    [vec![name.to_owned()], counts.to_vec(), vec![format!("{distance:.3}")], radii.to_vec()].concat()
}

fn sentence(finding: &Finding) -> String {
    let FixedPoints { samples, several, answers_differ, unsettled, unstable, largest_radius, .. } = &finding.found;
    let mean = finding.found.mean_radius().unwrap_or_default();
    format!(
        "{several} of {} with more than one fixed point, from {} each; for {answers_differ} the answer depends on the start\n\
         {unsettled} without a fixed point from the model's own start, {unstable} with one that is not stable\n\
         spectral radius {mean:.3} on average, {largest_radius:.3} at most\n",
        counted(*samples as usize, "sample"),
        counted(finding.starts, "start"),
    )
}
