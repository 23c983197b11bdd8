//! Single clients: the least accurate, what they hold, and their confusion matrices.
use std::collections::BTreeMap;

use fedeq_core::{Result, View};
use fedeq_data::partition::ClientIndices;
use fedeq_data::{Dataset, Labels};
use serde::Serialize;

use super::ReportOptions;
use super::record::RunRecord;
use fedeq_run::experiment::{Experiment, Prepared};
use fedeq_run::predict::name_of;
use fedeq_run::run::{RunFolder, Trained};
use fedeq_viewer::{ClientConfusion, Confusion};

/// Single clients of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientDetail {
    /// The run's folder.
    pub run: String,
    /// With which of their models clients are evaluated.
    pub view: View,
    /// The least accurate, the worst first.
    pub worst: Vec<WorstClient>,
    /// The client whose confusion matrix is shown.
    pub chosen: Option<WorstClient>,
    /// How its model confuses classes.
    pub confusion: Availability<Confusion>,
    /// The same of the chosen client and of the least accurate ones, for their pages.
    #[serde(skip)]
    pub(super) confusions: Vec<ClientConfusion>,
}

/// Something that may not be available.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Availability<T> {
    /// It is.
    Available(T),
    /// It is not, and why.
    Missing(String),
}

impl<T> Availability<T> {
    /// What is available.
    pub fn available(&self) -> Option<&T> {
        match self {
            Self::Available(value) => Some(value),
            Self::Missing(_) => None,
        }
    }
}

/// A client, its accuracy and what it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstClient {
    /// Its name.
    pub name: String,
    /// Its accuracy; nothing without samples to evaluate on.
    pub accuracy: Option<f64>,
    /// Samples it learns from.
    pub train: usize,
    /// Samples it is evaluated by.
    pub test: usize,
    /// What it holds, the most frequent first.
    pub labels: Vec<Label>,
}

/// A label and how many samples have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// As people call it.
    pub name: String,
    /// Samples, those to be evaluated on included.
    pub samples: usize,
}

/// How many of the worst clients are named.
const WORST: usize = 5;

impl ClientDetail {
    /// Looks at a run. Its data must be where it was, or where the options say.
    pub(super) fn of(run: &RunRecord, options: &ReportOptions<'_>, view: View) -> Result<Self> {
        let folder = RunFolder::open(&run.path)?;
        let adapt = |experiment: &mut Experiment| {
            if let Some(data) = options.data {
                experiment.data.folder = data.to_owned();
            }
        };
        // Models may have been thrown away to save room; what was measured remains.
        if run.is_finished() && folder.checkpoints().is_dir() {
            let trained = Trained::open(&folder, adapt)?;
            return Self::by_data(run, trained.prepared(), options, view).with_confusions(&trained);
        }
        let mut experiment = run.experiment.clone();
        adapt(&mut experiment);
        Ok(Self::by_data(run, &folder.prepare(&experiment)?, options, view))
    }

    fn by_data(run: &RunRecord, prepared: &Prepared, options: &ReportOptions<'_>, view: View) -> Self {
        let accuracies = run.last().map(|evaluation| evaluation.quality(view).clients.clone()).unwrap_or_default();
        let clients = &prepared.splits.clients;
        let look =
            |client: usize| WorstClient::of(&clients[client], accuracies.get(client).copied().flatten(), &prepared.dataset);
        let mut order: Vec<usize> =
            (0..clients.len()).filter(|client| accuracies.get(*client).is_some_and(Option::is_some)).collect();
        order.sort_by(|a, b| accuracies[*a].unwrap_or(1.0).total_cmp(&accuracies[*b].unwrap_or(1.0)));
        let worst: Vec<WorstClient> = order.into_iter().take(WORST).map(look).collect();
        let chosen = match options.client {
            Some(wish) => named(wish, clients).map(look),
            None => worst.first().cloned(),
        };
        let reason = match (&chosen, run.is_finished()) {
            (None, _) => "there is no client of that name",
            (_, true) => "its models were not kept",
            (_, false) => "the run is not finished",
        };
        Self { run: run.name(), view, worst, chosen, confusion: Availability::Missing(reason.into()), confusions: Vec::new() }
    }

    /// Adds confusion matrices: the chosen client's first.
    fn with_confusions(mut self, trained: &Trained) -> Result<Self> {
        if trained.prepared().is_external() {
            self.confusion = Availability::Missing("its network is computed outside of fedeq".into());
            return Ok(self);
        }
        for client in self.chosen.iter().chain(&self.worst) {
            let is_new = self.confusions.iter().all(|known| known.name != client.name);
            let number = trained.prepared().names().position(|name| name == client.name);
            if let Some(number) = number.filter(|_| is_new) {
                self.confusions.push(ClientConfusion::of(trained, number, self.view, client.accuracy)?);
            }
        }
        if let (Some(_), Some(first)) = (&self.chosen, self.confusions.first()) {
            self.confusion = Availability::Available(first.matrix.clone());
        }
        Ok(self)
    }
}

impl WorstClient {
    fn of(client: &ClientIndices, accuracy: Option<f64>, dataset: &Dataset) -> Self {
        let ClientIndices { name, train, validation, test } = client;
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        if let Labels::Classes { values, .. } = &dataset.labels {
            for index in train.iter().chain(validation).chain(test) {
                *counts.entry(values[*index as usize].into()).or_default() += 1;
            }
        }
        let mut labels: Vec<Label> =
            counts.into_iter().map(|(class, samples)| Label { name: name_of(dataset, class), samples }).collect();
        labels.sort_by_key(|label| std::cmp::Reverse(label.samples));
        Self { name: name.clone(), accuracy, train: train.len(), test: test.len(), labels }
    }

    /// What it holds, in a few words.
    pub(super) fn holds(&self) -> String {
        const MOST: usize = 6;
        if self.labels.is_empty() {
            return "text".into();
        }
        let shown = self.labels.iter().take(MOST).map(|label| format!("{} ({})", label.name, label.samples));
        let more = self.labels.len().saturating_sub(MOST);
        let rest = (more > 0).then(|| format!("{more} more"));
        shown.chain(rest).collect::<Vec<_>>().join(", ")
    }
}

/// A client by its name or, where none has that name, by its number.
fn named(wish: &str, clients: &[ClientIndices]) -> Option<usize> {
    let by_name = clients.iter().position(|client| client.name == wish);
    by_name.or_else(|| wish.parse().ok().filter(|number| *number < clients.len()))
}
