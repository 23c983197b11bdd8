//! Who holds what, as a picture.
use fedeq_data::partition::ClientTally;

use super::report::PartitionReport;
use crate::cli::failure::{Failure, Outcome};
use fedeq_report::draw::{BarChart, DataPicture, Heading, HeatMap, HeatMapRow, bars, heat_map};
use fedeq_run::number::{count, counted};

/// More lines than this make no picture a person can look at.
const MOST_CLIENTS: usize = 5_000;

/// A heat map where samples have classes, else bars.
pub(super) fn draw(report: &PartitionReport, name: &str) -> Outcome<DataPicture> {
    let clients = report.clients.clients.len() + report.unseen.clients.len();
    if clients > MOST_CLIENTS {
        let problem = format!("`{}` clients are too many to draw", count(clients));
        return Err(Failure::request(problem, format!("ask for at most {}, or leave out `--out`", count(MOST_CLIENTS))));
    }
    let has_classes = !report.clients.classes.is_empty();
    Ok(if has_classes { heat_map(&labels(report, name)) } else { bars(&sizes(report, name)) })
}

fn labels(report: &PartitionReport, name: &str) -> HeatMap {
    let line = |client: &ClientTally| HeatMapRow { name: client.name.clone(), counts: client.train.by_class.clone() };
    let (trained, unseen) = (&report.clients.clients, &report.unseen.clients);
    HeatMap {
        heading: heading(report, format!("{name}: who holds which labels")),
        unit: "training samples".into(),
        columns: report.clients.classes.clone(),
        lines: trained.iter().chain(unseen).map(line).collect(),
        apart: (!unseen.is_empty()).then(|| (trained.len(), "unseen in training".into())),
    }
}

fn sizes(report: &PartitionReport, name: &str) -> BarChart {
    BarChart {
        heading: heading(report, format!("{name}: who holds how much")),
        unit: "training samples".into(),
        what: "clients that train, the largest first".into(),
        counts: report.clients.clients.iter().map(|client| client.train.samples).collect(),
    }
}

fn heading(report: &PartitionReport, title: String) -> Heading {
    let clients = counted(report.clients.clients.len() + report.unseen.clients.len(), "client");
    Heading { title, subtitle: format!("{clients}, {}, seed {}", report.rule(), report.seed) }
}
