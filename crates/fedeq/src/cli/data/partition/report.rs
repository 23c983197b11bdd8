//! Who holds what, as a table and as JSON.
use fedeq_data::Dataset;
use fedeq_data::Spread;
use fedeq_data::partition::{ClientSplits, ClientTally, Counts, Partition, PartitionSummary, Tally};
use serde::Serialize;

use crate::cli::table::{Align, Table, facts};
use fedeq_run::number::{count, counted};

/// A partition and what came of it.
#[derive(Serialize)]
pub(super) struct PartitionReport {
    pub(super) dataset: String,
    pub(super) partition: Partition,
    pub(super) seed: u64,
    /// The clients that train.
    pub(super) clients: Tally,
    /// The unseen clients.
    pub(super) unseen: Tally,
    pub(super) summary: Option<PartitionSummary>,
}

/// A client with more labels than this has them counted, not listed.
const MOST_LISTED: usize = 10;

impl PartitionReport {
    pub(super) fn of(dataset: &Dataset, partition: Partition, seed: u64, splits: &ClientSplits) -> Self {
        let clients = Tally::of(dataset, &splits.clients);
        let unseen = Tally::of(dataset, &splits.unseen);
        let summary = clients.summary();
        Self { dataset: dataset.name.clone(), partition, seed, clients, unseen, summary }
    }

    /// A line a client, then the whole in a few numbers.
    pub(super) fn text(&self) -> String {
        format!("{}\n{}\n{}", self.table().text(), self.heading(), facts(&self.facts()))
    }

    /// The rule in words.
    pub(super) fn rule(&self) -> String {
        match &self.partition {
            Partition::Natural { .. } => "by owner".into(),
            Partition::LabelShards { shards, .. } => format!("label shards, at most {} each", counted(*shards, "label")),
            Partition::DistinctLabels { labels, .. } => format!("{} each", counted(*labels, "distinct label")),
            Partition::Dirichlet { alpha, .. } => format!("Dirichlet, alpha {alpha}"),
            Partition::QuantitySkew { alpha, .. } => format!("quantity skew, alpha {alpha}"),
            Partition::Temporal { .. } => "stretches in order".into(),
            Partition::Iid { .. } => "evenly, by chance".into(),
            Partition::Own { .. } => "every client's own".into(),
        }
    }

    fn heading(&self) -> String {
        format!("{}: {}, seed {}", self.dataset, self.rule(), self.seed)
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let (trained, unseen) = (self.clients.clients.len(), self.unseen.clients.len());
        let mut facts = vec![("clients", format!("{} to train, {} unseen", count(trained), count(unseen)))];
        if let Some(summary) = &self.summary {
            facts.push(("training", in_words(&summary.train_samples, "samples each")));
            facts.push(("test", in_words(&summary.test_samples, "samples each")));
            facts.extend(summary.distinct_labels.map(|labels| ("labels", in_words(&labels, "different ones each"))));
        }
        facts
    }

    fn table(&self) -> Table {
        let mut columns = vec![("client", Align::Left), ("training", Align::Right), ("test", Align::Right)];
        if !self.unseen.clients.is_empty() {
            columns.insert(1, ("", Align::Left));
        }
        if !self.clients.classes.is_empty() {
            columns.push(("labels (training samples)", Align::Left));
        }
        let mut table = Table::new(&columns);
        for (client, note) in self.everyone() {
            let name = [client.name.clone()].into_iter().chain(note.map(str::to_owned));
            let numbers = [count(client.train.samples), count(client.test.samples)];
            table.row(name.chain(numbers).chain(self.labels(&client.train)));
        }
        table
    }

    /// Every client, and what is said beside its name where anything is said of some.
    fn everyone(&self) -> impl Iterator<Item = (&ClientTally, Option<&'static str>)> {
        let note = if self.unseen.clients.is_empty() { None } else { Some("") };
        let trained = self.clients.clients.iter().map(move |client| (client, note));
        trained.chain(self.unseen.clients.iter().map(|client| (client, Some("unseen"))))
    }

    /// `cat (250), dog (250)`, or how many where there are many.
    fn labels(&self, counts: &Counts) -> Option<String> {
        let classes = &self.clients.classes;
        if classes.is_empty() {
            return None;
        }
        if counts.distinct() > MOST_LISTED {
            return Some(format!("{} of {}", counts.distinct(), classes.len()));
        }
        let held = classes.iter().zip(&counts.by_class).filter(|&(_, &samples)| samples > 0);
        Some(held.map(|(class, &samples)| format!("{class} ({})", count(samples))).collect::<Vec<_>>().join(", "))
    }
}

fn in_words(spread: &Spread, unit: &str) -> String {
    let whole = |number: f64| count(number as usize);
    if spread.minimum == spread.maximum {
        return format!("{} {unit}", whole(spread.minimum));
    }
    let (from, to) = (whole(spread.minimum), whole(spread.maximum));
    format!("{from} to {to} {unit} (mean {:.1}, deviation {:.1})", spread.mean, spread.deviation)
}
