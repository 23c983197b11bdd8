//! Confusion matrices: a client's model predicts all samples that the client is evaluated by.
use std::collections::{BTreeMap, BTreeSet};

use fedeq_core::{Error, Result, View};
use fedeq_data::{Dataset, Labels};
use fedeq_run::predict::{PredictionInputs, name_of, predict};
use fedeq_run::run::{RunFolder, Trained};
use serde::Serialize;

use super::client::LastAccuracies;

/// A confusion matrix: how often a model predicts what, on a client's test samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// The classes among the samples and among what was predicted, in their order: the rows and the columns.
    pub classes: Vec<String>,
    /// For each true class how often each class was predicted.
    pub counts: Vec<Vec<usize>>,
}

/// The confusion matrix of one client of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientConfusion {
    /// The client's number.
    pub client: usize,
    /// Its name.
    pub name: String,
    /// By which of its models.
    pub view: View,
    /// The model's accuracy at the end of the run.
    pub accuracy: Option<f64>,
    /// How it confuses classes.
    #[serde(flatten)]
    pub matrix: Confusion,
}

/// The confusion matrix of a client of a finished run, or of the least accurate one; by the model that the method is evaluated by if nobody says by which. The run's
/// data must be where it was.
pub fn client_confusion(folder: &RunFolder, client: Option<usize>, view: Option<View>) -> Result<ClientConfusion> {
    // Models may have been discarded to save room.
    if folder.summary()?.is_some() && !folder.checkpoints().is_dir() {
        return Err(Error::invalid("the models of this run were not kept", "run it again and keep its models"));
    }
    let accuracies = LastAccuracies::of(folder)?;
    let found = || accuracies.worst(view.unwrap_or(accuracies.view));
    let client = client.or_else(found).ok_or_else(|| Error::invalid("no client was evaluated", "choose a client"))?;
    let trained = Trained::open(folder, |_| ())?;
    if trained.prepared().names().nth(client).is_none() {
        return Err(Error::invalid(format!("there is no client `{client}`"), "choose one from the list of clients"));
    }
    // An unseen client is evaluated by what it has made of the shared part.
    let is_unseen = client >= trained.prepared().splits.clients.len();
    let view = view.unwrap_or(if is_unseen { View::Local } else { accuracies.view });
    ClientConfusion::of(&trained, client, view, accuracies.by(view).get(client).copied().flatten())
}

impl ClientConfusion {
    /// Has a client's model predict all samples it is evaluated by.
    pub fn of(trained: &Trained, client: usize, view: View, accuracy: Option<f64>) -> Result<Self> {
        let prepared = trained.prepared();
        let samples = PredictionInputs::test_samples(prepared, client)?;
        let model = trained.model_in(client, view)?;
        let predictions = predict(prepared, &model, &samples)?;
        let pairs: Vec<(String, String)> =
            predictions.into_iter().filter_map(|found| Some((found.expected?, found.class))).collect();
        Ok(Self { client, name: model.name, view, accuracy, matrix: Confusion::counted(&pairs, &order(&prepared.dataset)) })
    }
}

impl Confusion {
    /// Counts pairs of what is and what was said, over the classes that occur.
    fn counted(pairs: &[(String, String)], order: &[String]) -> Self {
        let occurring: BTreeSet<&String> = pairs.iter().flat_map(|(is, said)| [is, said]).collect();
        let classes: Vec<String> = order.iter().filter(|class| occurring.contains(class)).cloned().collect();
        let places: BTreeMap<&String, usize> = classes.iter().enumerate().map(|(place, class)| (class, place)).collect();
        let mut counts = vec![vec![0; classes.len()]; classes.len()];
        for (is, said) in pairs {
            if let (Some(row), Some(column)) = (places.get(is), places.get(said)) {
                counts[*row][*column] += 1;
            }
        }
        Self { classes, counts }
    }
}

/// All classes in their order.
fn order(dataset: &Dataset) -> Vec<String> {
    let classes = match &dataset.labels {
        Labels::Classes { names, .. } => names.len(),
        Labels::NextSymbols(_) => usize::from(u8::MAX) + 1,
    };
    let mut names: Vec<String> = (0..classes).map(|class| name_of(dataset, class)).collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_classes_that_occur_are_counted() {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let pairs = [("a", "a"), ("a", "c"), ("a", "c"), ("b", "b")].map(|(is, said)| (is.to_owned(), said.to_owned()));
        let Confusion { classes, counts } = Confusion::counted(&pairs, &names(&["a", "b", "c", "d"]));
        assert_eq!(classes, names(&["a", "b", "c"]));
        assert_eq!(counts, [[1, 0, 2], [0, 1, 0], [0, 0, 0]]);
    }
}
