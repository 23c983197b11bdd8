//! A stretch of asynchronous work, as long as a round.
use std::collections::BTreeMap;
use std::time::Instant;

use fedeq_data::Seed;

use super::Asynchronous;
use super::agenda::{Agenda, Work};
use crate::algorithm::{Algorithm, Update};
use crate::error::Result;
use crate::message::{Request, Task};
use crate::metrics::Harvest;
use crate::server::update_of;
use crate::server_state::ServerState;
use crate::transport::Transport;

/// What a stretch of asynchronous work needs to know.
pub(crate) struct Stretch<'a> {
    pub(crate) settings: &'a Asynchronous,
    pub(crate) algorithm: &'a dyn Algorithm,
    /// How many updates it is long.
    pub(crate) updates: usize,
    /// How many there will be in the whole run.
    pub(crate) total: u64,
    pub(crate) seed: Seed,
}

impl Stretch<'_> {
    /// Applies updates as they arrive.
    pub(crate) fn run(&self, server: &mut ServerState, transport: &mut impl Transport) -> Result<Harvest> {
        let durations = self.settings.durations(server.clients, self.seed);
        let shortest = durations.iter().copied().min().unwrap_or_default();
        let mut agenda = server.agenda.take().unwrap_or_else(|| Agenda::new(server.clients));
        agenda.begin(&server.weights, &durations, self.settings.max_staleness);
        let mut harvest = Harvest::default();
        while harvest.updates.len() < self.updates {
            let certain = agenda.certain(shortest, self.updates - harvest.updates.len());
            let updates = self.carry_out(&certain, &agenda, server, transport)?;
            let received = Instant::now();
            for (work, update) in certain.into_iter().zip(updates) {
                self.apply(&update, agenda.applied(), server)?;
                harvest.arrivals.push(agenda.arrive(work));
                harvest.cohort.push(work.client);
                harvest.updates.push(update);
                agenda.begin(&server.weights, &durations, self.settings.max_staleness);
            }
            harvest.server_seconds += received.elapsed().as_secs_f64();
        }
        server.agenda = Some(agenda);
        Ok(harvest)
    }

    /// Every client works on the `theta` it was handed.
    fn carry_out(
        &self,
        certain: &[Work],
        agenda: &Agenda,
        server: &ServerState,
        transport: &mut impl Transport,
    ) -> Result<Vec<Update>> {
        let request = |begun: u64| {
            let weights = agenda.handed_out[&begun].clone();
            Request { task: Task::Train, round: begun, rounds: self.total, rho: server.rho, weights }
        };
        let requests: BTreeMap<u64, Request> = certain.iter().map(|work| (work.begun, request(work.begun))).collect();
        let letters: Vec<(usize, &Request)> = certain.iter().map(|work| (work.client, &requests[&work.begun])).collect();
        transport.exchange_each(&letters)?.into_iter().map(update_of).collect()
    }

    fn apply(&self, update: &Update, applied: u64, server: &mut ServerState) -> Result<()> {
        update.weights.ensure_like(&server.weights)?;
        let before = server.weights.statistics.clone();
        self.algorithm.server_update(server, std::slice::from_ref(update))?;
        // One client's normalisation statistics must not stand for everybody's: they enter a running mean over about a round.
        let share = 1.0 / (applied + 1).min(self.updates as u64) as f32;
        server.weights.statistics = before.plus(share, &server.weights.statistics.minus(&before));
        Ok(())
    }
}
