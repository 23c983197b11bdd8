//! A round of asynchronous work.
use std::collections::BTreeMap;
use std::time::Instant;

use fedeq_data::Seed;

use super::Asynchronous;
use super::schedule::{AsyncSchedule, PendingUpdate};
use crate::acceptance::{Acceptance, Replies};
use crate::aggregation::{Aggregation, Received};
use crate::algorithm::{Algorithm, Update};
use crate::error::Result;
use crate::message::{ClientTask, Request};
use crate::metrics::RoundResult;
use crate::observer::Observer;
use crate::server::{exchange, update_of};
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
    pub(crate) fn run<T: Transport>(
        &self,
        server: &mut ServerState,
        transport: &mut T,
        observers: &mut [&mut dyn Observer<T>],
    ) -> Result<RoundResult> {
        let durations = self.settings.durations(server.clients, self.seed);
        let shortest = durations.iter().copied().min().unwrap_or_default();
        let mut schedule = server.schedule.take().unwrap_or_else(|| AsyncSchedule::new(server.clients));
        schedule.begin(&server.weights, &durations, self.settings.max_staleness);
        let mut result = RoundResult::default();
        while result.updates.len() < self.updates {
            let certain = schedule.certain(shortest, self.updates - result.updates.len());
            let replies = self.carry_out(&certain, &schedule, server, transport, observers)?;
            let received = Instant::now();
            let mut updates: BTreeMap<usize, Update> = replies.counted.into_iter().filter_map(update_of).collect();
            result.dropped.extend(replies.dropped);
            for work in certain {
                let Some(update) = updates.remove(&work.client) else {
                    schedule.give_up(work);
                    schedule.begin(&server.weights, &durations, self.settings.max_staleness);
                    continue;
                };
                self.apply(&update, schedule.applied(), server, &mut result)?;
                result.arrivals.push(schedule.arrive(work));
                result.cohort.push(work.client);
                result.updates.push(update);
                schedule.begin(&server.weights, &durations, self.settings.max_staleness);
            }
            result.server_seconds += received.elapsed().as_secs_f64();
            self.require_progress(server.round, &result, transport.acceptance())?;
        }
        server.schedule = Some(schedule);
        Ok(result)
    }

    /// Every client works on the `theta` it was handed.
    fn carry_out<T: Transport>(
        &self,
        certain: &[PendingUpdate],
        schedule: &AsyncSchedule,
        server: &ServerState,
        transport: &mut T,
        observers: &mut [&mut dyn Observer<T>],
    ) -> Result<Replies> {
        let request = |begun: u64| {
            let weights = schedule.handed_out[&begun].clone();
            Request { task: ClientTask::Train, round: begun, rounds: self.total, rho: server.rho, weights }
        };
        let requests: BTreeMap<u64, Request> = certain.iter().map(|work| (work.begun, request(work.begun))).collect();
        let envelopes: Vec<(usize, &Request)> = certain.iter().map(|work| (work.client, &requests[&work.begun])).collect();
        exchange(&envelopes, self.algorithm, server.round, transport, observers)
    }

    /// Fails where so many replies are dropped that a round would never end, or not be the work of enough clients.
    fn require_progress(&self, round: u64, result: &RoundResult, acceptance: Acceptance) -> Result<()> {
        if result.dropped.len() <= acceptance.droppable(self.updates) {
            return Ok(());
        }
        let what = format!("replied when asked to train in round {}", round + 1);
        Acceptance { quorum: 1.0, ..acceptance }.require_quorum(&what, result.updates.len(), &result.dropped)
    }

    /// Applies one update, and notes what became of it.
    fn apply(&self, update: &Update, applied: u64, server: &mut ServerState, result: &mut RoundResult) -> Result<()> {
        let before = server.weights.statistics.clone();
        let received = Received::new(std::slice::from_ref(update), self.aggregation, self.algorithm);
        self.algorithm.server_update(server, &received)?;
        // One client's normalisation statistics must not stand for those of all: they enter a running mean over about a round.
        let share = 1.0 / (applied + 1).min(self.updates as u64) as f32;
        server.weights.statistics = before.plus(share, &server.weights.statistics.minus(&before));
        result.handled.extend(received.handled());
        result.bound = received.bound();
        Ok(())
    }
}
