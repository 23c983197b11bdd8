//! The clients of a run, and one of them.
use std::collections::{BTreeMap, BTreeSet};

use fedeq_core::{ClientDistance, Evaluation, Result, View};
use fedeq_data::partition::{ClientTally, Counts};
use serde::Serialize;

use super::columns::{ColumnSlice, Columns};
use fedeq_run::run::{Head, Roster, RunFolder};

/// The clients of a run.
#[derive(Serialize)]
pub struct ClientList {
    /// One a client, in their order.
    pub clients: Vec<ClientRow>,
    /// How many classes there are, where samples have one each.
    #[serde(skip)]
    pub classes: usize,
}

/// A client in the list of clients.
#[derive(Serialize)]
pub struct ClientRow {
    client: usize,
    name: String,
    /// Training samples; nothing where only the client knows.
    samples: Option<usize>,
    /// Test samples.
    test: Option<usize>,
    /// Different labels among the training samples, where samples have one class each.
    labels: Option<usize>,
    /// The most frequent labels among all its samples, and how many samples have them.
    holds: Vec<(String, usize)>,
    /// By the model the method is evaluated by, at the last evaluation.
    accuracy: Option<f64>,
    /// By the client's own model.
    local: Option<f64>,
    /// By the shared model, where there is one; else by the only one.
    shared: Option<f64>,
    /// Rounds it took part in.
    rounds: usize,
    /// How far it was from the others, where that is noted.
    apart: Option<Apart>,
    /// Whether it took no part in training.
    unseen: bool,
}

/// How far a client was from the others in its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Apart {
    /// Rounds in which that was noted.
    rounds: usize,
    /// Rounds in which it was an outlier.
    outlier: usize,
    /// The last distance of what it sent to what was made of all.
    distance: f64,
}

/// In how many rounds a client took part, and how far from the others.
#[derive(Clone, Copy, Debug, Default)]
struct TookPart {
    rounds: usize,
    apart: Option<Apart>,
}

/// Some clients of a run, looked at closely.
#[derive(Serialize)]
pub struct ClientViews {
    /// The names of the classes, where samples have one each.
    classes: Vec<String>,
    /// One a client that was asked for.
    pub clients: Vec<ClientView>,
}

/// All that is known of one client.
#[derive(Serialize)]
pub struct ClientView {
    client: usize,
    name: String,
    unseen: bool,
    /// Nothing where only the client knows.
    holds: Option<ClientTally>,
    /// Rounds it took part in.
    rounds: usize,
    /// Its accuracy at every evaluation.
    evaluations: ColumnSlice,
    /// Its head after each round in which it was trained: how large it is, and how far it moved.
    heads: ColumnSlice,
}

/// A client's journals while they are read.
struct ClientJournals {
    evaluations: Columns<3>,
    heads: Columns<3>,
}

/// Labels that are named one by one.
const NAMED: usize = 8;

/// All clients of a run.
pub fn clients(folder: &RunFolder) -> Result<ClientList> {
    let Roster { training, tally } = folder.roster()?;
    let accuracies = LastAccuracies::of(folder)?;
    let rounds = participations(folder, tally.clients.len())?;
    let has_classes = !tally.classes.is_empty();
    let of = |accuracies: &[Option<f64>], client: usize| accuracies.get(client).copied().flatten();
    let row = |(client, holds): (usize, ClientTally)| ClientRow {
        client,
        samples: holds.is_known().then_some(holds.train.samples),
        test: holds.is_known().then_some(holds.test.samples),
        labels: (has_classes && holds.is_known()).then(|| holds.train.distinct()),
        holds: labels(&tally.classes, &holds),
        name: holds.name,
        accuracy: of(accuracies.headline(), client),
        local: of(&accuracies.local, client),
        shared: of(&accuracies.shared, client),
        rounds: rounds[client].rounds,
        apart: rounds[client].apart,
        unseen: client >= training,
    };
    let classes = tally.classes.len();
    Ok(ClientList { classes, clients: tally.clients.into_iter().enumerate().map(row).collect() })
}

/// The most frequent labels of a client.
fn labels(classes: &[String], holds: &ClientTally) -> Vec<(String, usize)> {
    let of = |counts: &Counts, class: usize| counts.by_class.get(class).copied().unwrap_or(0);
    let all = |class: usize| of(&holds.train, class) + of(&holds.validation, class) + of(&holds.test, class);
    let mut counted: Vec<(String, usize)> =
        classes.iter().enumerate().map(|(class, name)| (name.clone(), all(class))).filter(|(_, samples)| *samples > 0).collect();
    counted.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    counted.truncate(NAMED);
    counted
}

impl ClientList {
    /// The numbers of clients, the least accurate first; of whom no accuracy is known comes last.
    pub fn least_accurate(&self) -> Vec<usize> {
        let accuracy = |row: &ClientRow| row.accuracy.unwrap_or(f64::INFINITY);
        let mut rows: Vec<&ClientRow> = self.clients.iter().collect();
        rows.sort_by(|a, b| accuracy(a).total_cmp(&accuracy(b)));
        rows.into_iter().map(|row| row.client).collect()
    }
}

/// The last accuracy of every client; unseen ones come last, once they have been evaluated.
pub(crate) struct LastAccuracies {
    local: Vec<Option<f64>>,
    shared: Vec<Option<f64>>,
    /// By which the method is evaluated.
    pub(crate) view: View,
}

impl LastAccuracies {
    pub(crate) fn of(folder: &RunFolder) -> Result<Self> {
        let view = folder.experiment()?.method.algorithm().default_view();
        let summary = folder.summary()?;
        let mut last = Evaluation::default();
        match &summary {
            Some(summary) => last = summary.evaluation.clone(),
            None => folder.each_evaluation(|evaluation| last = evaluation)?,
        }
        let (mut local, mut shared) = (last.quality(View::Local).clients.clone(), last.quality(View::Shared).clients.clone());
        if let Some(unseen) = summary.and_then(|summary| summary.unseen) {
            shared.extend(unseen.shared.as_ref().unwrap_or(&unseen.local).clients.iter().copied());
            local.extend(unseen.local.clients);
        }
        Ok(Self { local, shared, view })
    }

    /// By the model that the method is evaluated by.
    fn headline(&self) -> &[Option<f64>] {
        self.by(self.view)
    }

    /// By one of clients' models.
    pub(crate) fn by(&self, view: View) -> &[Option<f64>] {
        match view {
            View::Local => &self.local,
            View::Shared => &self.shared,
        }
    }

    /// The least accurate client; nothing where nobody tells.
    pub(crate) fn worst(&self, view: View) -> Option<usize> {
        let known = self.by(view).iter().enumerate().filter_map(|(client, accuracy)| Some((client, (*accuracy)?)));
        known.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(client, _)| client)
    }
}

/// How often each of so many clients took part, and how far from the others it was.
fn participations(folder: &RunFolder, clients: usize) -> Result<Vec<TookPart>> {
    let mut took_part = vec![TookPart::default(); clients];
    folder.each_round(|round| {
        for client in round.cohort {
            took_part.get_mut(client).into_iter().for_each(|client| client.rounds += 1);
        }
        for ClientDistance { client, distance, outlier, .. } in round.distances {
            if let Some(client) = took_part.get_mut(client) {
                let before = client.apart.map_or((0, 0), |apart| (apart.rounds, apart.outlier));
                client.apart = Some(Apart { rounds: before.0 + 1, outlier: before.1 + usize::from(outlier), distance });
            }
        }
    })?;
    Ok(took_part)
}

/// Some clients of a run, those of them that there are, with at most so many points a curve. The journals are read once.
pub fn client_views(folder: &RunFolder, wanted: &[usize], points: usize) -> Result<ClientViews> {
    let Roster { training, tally } = folder.roster()?;
    let rounds = participations(folder, tally.clients.len())?;
    let wanted: BTreeSet<usize> = wanted.iter().copied().filter(|client| *client < tally.clients.len()).collect();
    let journals = journals(folder, &wanted)?;
    let view = |(client, journals): (usize, ClientJournals)| {
        let holds = &tally.clients[client];
        ClientView {
            client,
            name: holds.name.clone(),
            unseen: client >= training,
            holds: holds.is_known().then(|| holds.clone()),
            rounds: rounds[client].rounds,
            evaluations: journals.evaluations.at_most(points),
            heads: journals.heads.at_most(points),
        }
    };
    let clients = journals.into_iter().map(view).collect();
    Ok(ClientViews { classes: tally.classes, clients })
}

fn journals(folder: &RunFolder, wanted: &BTreeSet<usize>) -> Result<BTreeMap<usize, ClientJournals>> {
    let mut journals: BTreeMap<usize, ClientJournals> =
        wanted.iter().map(|client| (*client, ClientJournals::default())).collect();
    folder.each_evaluation(|evaluation| {
        let of = |clients: &[Option<f64>], client: usize| clients.get(client).copied().flatten();
        for (client, journals) in &mut journals {
            let shared = evaluation.shared.as_ref().and_then(|shared| of(&shared.clients, *client));
            journals.evaluations.push([Some(evaluation.round as f64), of(&evaluation.local.clients, *client), shared]);
        }
    })?;
    folder.each_heads(|line| {
        for Head { client, norm, moved, .. } in line.heads {
            if let Some(journals) = journals.get_mut(&client) {
                journals.heads.push([Some(line.round as f64), Some(norm), Some(moved)]);
            }
        }
    })?;
    Ok(journals)
}

impl Default for ClientJournals {
    fn default() -> Self {
        Self { evaluations: Columns::new(["round", "local", "shared"]), heads: Columns::new(["round", "norm", "moved"]) }
    }
}
