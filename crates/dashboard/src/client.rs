//! The clients of a run, and one of them.
use fedeq_core::{Evaluation, Result};
use fedeq_data::partition::ClientTally;
use serde::Serialize;

use super::refusal::RequestRefusal;
use super::thinned::Thinned;
use fedeq_run::run::{Head, Roster, RunFolder, headline};

/// A client in the list of clients.
#[derive(Serialize)]
pub(super) struct ClientRow {
    client: usize,
    name: String,
    /// Training samples; nothing where only the client knows.
    samples: Option<usize>,
    /// Different labels among them, where samples have one class each.
    labels: Option<usize>,
    /// By the model the method is evaluated by, at the last evaluation.
    accuracy: Option<f64>,
    /// Rounds it took part in.
    rounds: usize,
    /// Whether it took no part in training.
    unseen: bool,
}

/// All that is known of one client.
#[derive(Serialize)]
pub(super) struct ClientView {
    client: usize,
    name: String,
    unseen: bool,
    classes: Vec<String>,
    /// Nothing where only the client knows.
    holds: Option<ClientTally>,
    /// Rounds it took part in.
    rounds: usize,
    evaluations: Thinned<Judged>,
    /// Its head after each round in which it was trained.
    heads: Thinned<Moved>,
}

/// A client's accuracy at an evaluation.
#[derive(Serialize)]
struct Judged {
    round: u64,
    local: Option<f64>,
    shared: Option<f64>,
}

/// What a round did to a client's head.
#[derive(Serialize)]
struct Moved {
    round: u64,
    norm: f64,
    moved: f64,
}

/// All clients of a run.
pub(super) fn rows(folder: &RunFolder) -> Result<Vec<ClientRow>> {
    let Roster { training, tally } = folder.roster()?;
    let (accuracies, rounds) = (last_accuracies(folder)?, participations(folder, tally.clients.len())?);
    let has_classes = !tally.classes.is_empty();
    let row = |(client, holds): (usize, ClientTally)| ClientRow {
        client,
        samples: holds.is_known().then_some(holds.train.samples),
        labels: (has_classes && holds.is_known()).then(|| holds.train.distinct()),
        name: holds.name,
        accuracy: accuracies.get(client).copied().flatten(),
        rounds: rounds[client],
        unseen: client >= training,
    };
    Ok(tally.clients.into_iter().enumerate().map(row).collect())
}

/// The last accuracy of every client; unseen ones come last, once they have been evaluated.
fn last_accuracies(folder: &RunFolder) -> Result<Vec<Option<f64>>> {
    let view = folder.experiment()?.method.algorithm().default_view();
    let mut last = Evaluation::default();
    folder.each_evaluation(|evaluation| last = evaluation)?;
    let mut accuracies = headline(view, &last).clients.clone();
    let unseen = folder.summary()?.and_then(|summary| summary.unseen);
    accuracies.extend(unseen.into_iter().flat_map(|unseen| unseen.local.clients));
    Ok(accuracies)
}

/// How often each of so many clients took part.
fn participations(folder: &RunFolder, clients: usize) -> Result<Vec<usize>> {
    let mut rounds = vec![0; clients];
    folder.each_round(|round| {
        for client in round.cohort {
            rounds.get_mut(client).into_iter().for_each(|rounds| *rounds += 1);
        }
    })?;
    Ok(rounds)
}

/// One client of a run.
pub(super) fn client_view(folder: &RunFolder, client: usize) -> std::result::Result<ClientView, RequestRefusal> {
    let Roster { training, tally } = folder.roster()?;
    let everybody = tally.clients.len();
    let holds = tally.clients.into_iter().nth(client).ok_or_else(|| RequestRefusal::unknown_client(client))?;
    Ok(ClientView {
        client,
        unseen: client >= training,
        classes: tally.classes,
        name: holds.name.clone(),
        holds: holds.is_known().then_some(holds),
        rounds: participations(folder, everybody)?[client],
        evaluations: judgements(folder, client)?,
        heads: head_history(folder, client)?,
    })
}

fn judgements(folder: &RunFolder, client: usize) -> Result<Thinned<Judged>> {
    let mut judged = Thinned::default();
    folder.each_evaluation(|evaluation| {
        judged.push(Judged::of(&evaluation, client));
    })?;
    Ok(judged)
}

fn head_history(folder: &RunFolder, client: usize) -> Result<Thinned<Moved>> {
    let mut moved = Thinned::default();
    folder.each_heads(|line| {
        for Head { norm, moved: by, .. } in line.heads.into_iter().filter(|head| head.client == client) {
            moved.push(Moved { round: line.round, norm, moved: by });
        }
    })?;
    Ok(moved)
}

impl Judged {
    fn of(evaluation: &Evaluation, client: usize) -> Self {
        let of = |clients: &[Option<f64>]| clients.get(client).copied().flatten();
        let shared = evaluation.shared.as_ref().and_then(|shared| of(&shared.clients));
        Self { round: evaluation.round, local: of(&evaluation.local.clients), shared }
    }
}
