//! A round of asynchronous work.
use std::collections::BTreeMap;
use std::time::Instant;

use fedeq_data::Seed;

use super::Asynchronous;
use super::schedule::{AsyncSchedule, Work};
use crate::aggregation::{Aggregation, Handled, Received};
use crate::algorithm::{Algorithm, Update};
use crate::error::Result;
use crate::message::{ClientTask, Request};
use crate::metrics::RoundResult;
use crate::server::update_of;
use crate::server_state::ServerState;
use crate::transport::Transport;

/// What a round of asynchronous work needs to know: it is as many updates long as a synchronous round has.
pub(crate) struct AsyncRound<'a> {
    pub(crate) settings: &'a Asynchronous,
    pub(crate) algorithm: &'a dyn Algorithm,
    pub(crate) aggregation: &'a Aggregation,
    /// How many updates it is long.
    pub(crate) updates: usize,
    /// How many there will be in the whole run.
    pub(crate) total: u64,
    pub(crate) seed: Seed,
}

impl AsyncRound<'_> {
    /// Applies updates as they arrive.
    pub(crate) fn run(&self, server: &mut ServerState, transport: &mut impl Transport) -> Result<RoundResult> {
        let durations = self.settings.durations(server.clients, self.seed);
        let shortest = durations.iter().copied().min().unwrap_or_default();
        let mut schedule = server.schedule.take().unwrap_or_else(|| AsyncSchedule::new(server.clients));
        schedule.begin(&server.weights, &durations, self.settings.max_staleness);
        let mut result = RoundResult::default();
        while result.updates.len() < self.updates {
            let certain = schedule.certain(shortest, self.updates - result.updates.len());
            let updates = self.carry_out(&certain, &schedule, server, transport)?;
            let received = Instant::now();
            for (work, update) in certain.into_iter().zip(updates) {
                result.handled.extend(self.apply(&update, schedule.applied(), server)?);
                result.arrivals.push(schedule.arrive(work));
                result.cohort.push(work.client);
                result.updates.push(update);
                schedule.begin(&server.weights, &durations, self.settings.max_staleness);
            }
            result.server_seconds += received.elapsed().as_secs_f64();
        }
        server.schedule = Some(schedule);
        Ok(result)
    }

    /// Every client works on the `theta` it was handed.
    fn carry_out(
        &self,
        certain: &[Work],
        schedule: &AsyncSchedule,
        server: &ServerState,
        transport: &mut impl Transport,
    ) -> Result<Vec<Update>> {
        let request = |begun: u64| {
            let weights = schedule.handed_out[&begun].clone();
            Request { task: ClientTask::Train, round: begun, rounds: self.total, rho: server.rho, weights }
        };
        let requests: BTreeMap<u64, Request> = certain.iter().map(|work| (work.begun, request(work.begun))).collect();
        let envelopes: Vec<(usize, &Request)> = certain.iter().map(|work| (work.client, &requests[&work.begun])).collect();
        transport.exchange_each(&envelopes)?.into_iter().map(update_of).collect()
    }

    /// Applies one update; says what became of it where that is noted.
    fn apply(&self, update: &Update, applied: u64, server: &mut ServerState) -> Result<Vec<Handled>> {
        update.weights.ensure_like(&server.weights)?;
        let before = server.weights.statistics.clone();
        let received = Received::new(std::slice::from_ref(update), self.aggregation, self.algorithm);
        self.algorithm.server_update(server, &received)?;
        // One client's normalisation statistics must not stand for those of all: they enter a running mean over about a round.
        let share = 1.0 / (applied + 1).min(self.updates as u64) as f32;
        server.weights.statistics = before.plus(share, &server.weights.statistics.minus(&before));
        Ok(received.handled().to_vec())
    }
}
