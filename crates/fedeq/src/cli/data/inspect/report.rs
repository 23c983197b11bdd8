//! What a selection holds, in numbers.
use fedeq_data::source::DatasetSummary;
use fedeq_data::{Dataset, Labels, Samples, Spread};
use serde::Serialize;

use super::selection::Selection;
use crate::cli::table::facts;
use fedeq_run::number::{count, counted};

/// What there is to say, to people and to programs.
#[derive(Serialize)]
pub(super) struct InspectReport {
    name: String,
    client: Option<String>,
    sample: String,
    training: usize,
    test: usize,
    classes: Option<usize>,
    samples_of_class: Vec<ClassCount>,
    clients: Option<usize>,
    samples_per_client: Option<Spread>,
    sequences: Option<SequenceReport>,
}

#[derive(Serialize)]
struct ClassCount {
    class: String,
    samples: usize,
}

/// What only text has.
#[derive(Serialize)]
struct SequenceReport {
    length: usize,
    vocabulary: usize,
    /// All but padding.
    symbols: usize,
}

impl InspectReport {
    pub(super) fn of(dataset: &Dataset, selection: &Selection) -> Self {
        let summary = DatasetSummary::of(dataset);
        let test_start = dataset.test_start.unwrap_or(dataset.len());
        let training = selection.samples.partition_point(|&sample| sample < test_start);
        Self {
            name: summary.name,
            client: selection.client.clone(),
            sample: summary.sample,
            training,
            test: selection.samples.len() - training,
            classes: summary.classes,
            samples_of_class: class_counts(dataset, &selection.samples),
            clients: summary.clients,
            samples_per_client: summary.samples_per_client,
            sequences: sequences(dataset, &selection.samples),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![("samples", self.samples()), ("sample", self.sample.clone())];
        if let Some(sequences) = &self.sequences {
            lines.push(("symbols", format!("{} of {} different ones", count(sequences.symbols), sequences.vocabulary)));
        } else {
            lines.push(("classes", self.classes_in_words()));
        }
        lines.push(("clients", self.clients_in_words()));
        if let (Some(range), None) = (&self.samples_per_client, &self.client) {
            lines.push(("each", samples_each(range)));
        }
        let of = self.client.as_ref().map_or(String::new(), |client| format!(", client {client}"));
        format!("{}{of}\n{}", self.name, facts(&lines))
    }

    fn samples(&self) -> String {
        match self.test {
            0 => format!("{}, not split into training and test", count(self.training)),
            test => format!("{} for training, {} for test", count(self.training), count(test)),
        }
    }

    fn classes_in_words(&self) -> String {
        let Some(classes) = self.classes else { return "none".into() };
        let held = self.samples_of_class.iter().filter(|class| class.samples > 0).count();
        let counts: Vec<usize> = self.samples_of_class.iter().map(|class| class.samples).filter(|&samples| samples > 0).collect();
        let each = Spread::of(counts).map_or(String::new(), |spread| format!(", {} each", samples_each(&spread)));
        match held == classes {
            true => format!("{}{each}", count(classes)),
            false => format!("{} of {}{each}", count(held), count(classes)),
        }
    }

    fn clients_in_words(&self) -> String {
        match (self.clients, &self.client) {
            (None, _) => format!("not named; `fedeq data partition {}` makes some", self.name),
            (Some(clients), None) => count(clients),
            (Some(clients), Some(client)) => format!("`{client}`, one of {}", counted(clients, "client")),
        }
    }
}

/// How many samples each has, in words.
fn samples_each(spread: &Spread) -> String {
    let (least, most) = (spread.minimum as usize, spread.maximum as usize);
    match least == most {
        true => counted(least, "sample"),
        false => format!("{} to {} samples (mean {:.1})", count(least), count(most), spread.mean),
    }
}

fn class_counts(dataset: &Dataset, samples: &[usize]) -> Vec<ClassCount> {
    let Labels::Classes { names, values } = &dataset.labels else { return Vec::new() };
    let mut counts = vec![0; names.len()];
    samples.iter().for_each(|&sample| counts[usize::from(values[sample])] += 1);
    names.iter().zip(counts).map(|(class, samples)| ClassCount { class: class.clone(), samples }).collect()
}

fn sequences(dataset: &Dataset, samples: &[usize]) -> Option<SequenceReport> {
    let Samples::Sequences(sequences) = &dataset.samples else { return None };
    let length = sequences.length;
    let chunk = |sample: usize| &sequences.symbols[sample * length..(sample + 1) * length];
    let symbols = samples.iter().map(|&sample| chunk(sample).iter().filter(|&&symbol| symbol != 0).count()).sum();
    Some(SequenceReport { length, vocabulary: sequences.vocabulary, symbols })
}
