//! What there is to say about a run before it begins.
use fedeq_core::{LocalProblems, PrivacySummary, View};

use crate::experiment::Prepared;

/// What a run is about to do.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// What it is, in a line.
    pub title: String,
    /// Rounds that are over.
    pub round: u64,
    /// Rounds in all.
    pub rounds: u64,
    /// By which of a client's models the method is evaluated.
    pub headline: View,
    /// How much disk it will take.
    pub disk: Disk,
    /// The most bytes that the fixed points remembered for warm starts take, a client at work.
    pub warm_bytes: Option<u64>,
    /// What it will promise to clients at its end, where the server's models are private.
    pub privacy: Option<PrivacySummary>,
}

/// About how many bytes a run folder will take, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// While it is carried out: the last two checkpoints, and states that do not fit in memory.
    pub working: u64,
    /// When it is finished: the last one.
    pub finished: u64,
    /// Its last checkpoint alone.
    pub checkpoint: u64,
}

/// A line of every journal, for a round.
const ROUND: u64 = 2_000;

/// What the journal of rounds says about the distance of each client of a cohort.
const DISTANCE: u64 = 130;

/// What the journals say about each client, for an evaluation.
const JUDGED: u64 = 50;

impl Disk {
    /// What a run will take: nearly all of it are the states of the clients that take part.
    pub(crate) fn of(prepared: &Prepared) -> Self {
        let plan = &prepared.experiment.plan;
        let clients = prepared.splits.clients.len() as u64;
        let cohort = prepared.cohort().map_or(clients, |cohort| cohort as u64);
        let taking_part = clients.min(cohort.saturating_mul(plan.rounds));
        let all = states(prepared);
        let states = all / (clients + prepared.unseen().len() as u64).max(1) * (taking_part + prepared.unseen().len() as u64);
        let checkpoint = states + 4 * prepared.server().weights.params.count() as u64;
        let evaluations = plan.rounds.checked_div(plan.evaluate_every).unwrap_or(0) + 1;
        let round = if prepared.plan.aggregation.notes_distances() { ROUND + cohort * DISTANCE } else { ROUND };
        let journals = plan.rounds.saturating_mul(round).saturating_add(evaluations.saturating_mul(clients * JUDGED));
        // States that do not fit in memory are on disk also between checkpoints.
        let fits = states / 1_000_000 <= prepared.experiment.engine.client_memory_mb as u64;
        let working = if fits { 2 } else { 3 } * checkpoint;
        Self { working: journals.saturating_add(working), finished: journals.saturating_add(checkpoint), checkpoint }
    }
}

/// The states of all clients, once every client has taken part.
fn states(prepared: &Prepared) -> u64 {
    let fresh = prepared.fresh_state(0);
    let models = if prepared.experiment.method.algorithm().keeps_second_model() { 2 } else { 1 };
    let own = 4 * (fresh.own.params.count() + fresh.own.statistics.count()) as u64;
    let fixed = models * own + 4 * fresh.dual.count() as u64;
    (0..LocalProblems::clients(prepared)).map(|client| fixed + prepared.lasting_warm_bytes(client)).sum()
}
