//! The clients of a run, and one of them.
use std::collections::BTreeMap;

use fedeq_core::{Evaluation, Result};
use fedeq_data::partition::ClientTally;
use serde::Serialize;

use super::refusal::Refusal;
use crate::run::{Head, Roster, RunFolder, headline};

/// A client in the list of clients.
#[derive(Serialize)]
pub(super) struct ClientRow {
    client: usize,
    name: String,
    /// Training samples; nothing where only the client knows.
    samples: Option<usize>,
    /// Different labels among them, where samples have one class each.
    labels: Option<usize>,
    /// By the model the method is judged by, at the last evaluation.
    accuracy: Option<f64>,
    /// Rounds it took part in.
    rounds: usize,
    /// Whether it was met only after training.
    unseen: bool,
}

/// All that is known of one client.
#[derive(Serialize)]
pub(super) struct Portrait {
    client: usize,
    name: String,
    unseen: bool,
    classes: Vec<String>,
    /// Nothing where only the client knows.
    holds: Option<ClientTally>,
    /// Rounds it took part in.
    rounds: usize,
    evaluations: Vec<Judged>,
    /// Its head after each round in which it was trained.
    heads: Vec<Moved>,
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
    let (accuracies, rounds) = (last_accuracies(folder)?, participations(folder)?);
    let has_classes = !tally.classes.is_empty();
    let row = |(client, holds): (usize, ClientTally)| ClientRow {
        client,
        samples: holds.is_known().then_some(holds.train.samples),
        labels: (has_classes && holds.is_known()).then(|| holds.train.distinct()),
        name: holds.name,
        accuracy: accuracies.get(client).copied().flatten(),
        rounds: rounds.get(&client).copied().unwrap_or_default(),
        unseen: client >= training,
    };
    Ok(tally.clients.into_iter().enumerate().map(row).collect())
}

/// The last accuracy of every client; those met only after training come last, once they have been judged.
fn last_accuracies(folder: &RunFolder) -> Result<Vec<Option<f64>>> {
    let view = folder.experiment()?.method.algorithm().headline();
    let last = evaluations(folder)?.pop().unwrap_or_default();
    let mut accuracies = headline(view, &last).clients.clone();
    let unseen = folder.summary()?.and_then(|summary| summary.unseen);
    accuracies.extend(unseen.into_iter().flat_map(|unseen| unseen.local.clients));
    Ok(accuracies)
}

fn participations(folder: &RunFolder) -> Result<BTreeMap<usize, usize>> {
    let mut rounds = BTreeMap::new();
    for round in if_there(folder.rounds())? {
        round.cohort.iter().for_each(|&client| *rounds.entry(client).or_default() += 1);
    }
    Ok(rounds)
}

/// One client of a run.
pub(super) fn portrait(folder: &RunFolder, client: usize) -> std::result::Result<Portrait, Refusal> {
    let Roster { training, tally } = folder.roster()?;
    let holds = tally.clients.into_iter().nth(client).ok_or_else(|| Refusal::unknown_client(client))?;
    Ok(Portrait {
        client,
        unseen: client >= training,
        classes: tally.classes,
        name: holds.name.clone(),
        holds: holds.is_known().then_some(holds),
        rounds: participations(folder)?.get(&client).copied().unwrap_or_default(),
        evaluations: evaluations(folder)?.iter().map(|evaluation| Judged::of(evaluation, client)).collect(),
        heads: head_history(folder, client)?,
    })
}

fn head_history(folder: &RunFolder, client: usize) -> Result<Vec<Moved>> {
    let of_client = |head: &Head| head.client == client;
    let moved = |round: u64, head: Head| Moved { round, norm: head.norm, moved: head.moved };
    let lines = if_there(folder.heads())?.into_iter();
    Ok(lines.flat_map(|line| line.heads.into_iter().filter(of_client).map(move |head| moved(line.round, head))).collect())
}

impl Judged {
    fn of(evaluation: &Evaluation, client: usize) -> Self {
        let of = |clients: &[Option<f64>]| clients.get(client).copied().flatten();
        let shared = evaluation.shared.as_ref().and_then(|shared| of(&shared.clients));
        Self { round: evaluation.round, local: of(&evaluation.local.clients), shared }
    }
}

fn evaluations(folder: &RunFolder) -> Result<Vec<Evaluation>> {
    if_there(folder.evaluations())
}

/// A journal that is not there yet has no lines.
fn if_there<V>(lines: Result<Vec<V>>) -> Result<Vec<V>> {
    match lines {
        Err(fedeq_core::Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}
