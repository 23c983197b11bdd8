//! Consensus without rounds: updates are applied as they arrive.
use std::collections::BTreeMap;

use fedeq_data::Seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, ServerState, Update};
use crate::error::{Error, Result};
use crate::message::{Reply, Request, Task};
use crate::transport::Transport;

/// Clients of different speeds, each working whenever it can.
///
/// A client receives `theta`, works for its own time, and sends its update; the server applies it at once and hands out the new
/// `theta`. Nobody waits for anybody, except that work may not begin while an older piece of work, begun more than
/// `max_staleness` updates ago, is still under way. Only methods whose server step takes single updates make sense here:
/// [`FedEq`](crate::FedEq) with the [exact consensus step](crate::ServerStep::Consensus).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Asynchronous {
    /// The slowest client takes this many times as long as the fastest; the others lie between, drawn by seed.
    pub slowest: f64,
    /// An update may be based on a `theta` at most this many updates old.
    pub max_staleness: u64,
}

impl Default for Asynchronous {
    fn default() -> Self {
        Self { slowest: 10.0, max_staleness: 100 }
    }
}

/// An update as it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Whose it is.
    pub client: usize,
    /// Simulated time, in units of the fastest client's work.
    pub time: f64,
    /// How many updates were applied between the `theta` it is based on and its arrival.
    pub staleness: u64,
}

/// Work under way.
struct Work {
    update: Update,
    begun: u64,
}

impl Asynchronous {
    /// Applies `updates` updates to the server's state; `watch` sees each after it was applied.
    pub fn run(
        &self,
        algorithm: &dyn Algorithm,
        (transport, clients): (&mut impl Transport, usize),
        server: &mut ServerState,
        updates: u64,
        seed: Seed,
        mut watch: impl FnMut(&ServerState, Arrival),
    ) -> Result<()> {
        self.validate()?;
        let durations = self.durations(clients, seed);
        let mut under_way: BTreeMap<(Time, usize), Work> = BTreeMap::new();
        let mut idle: Vec<(usize, f64)> = (0..clients).map(|client| (client, 0.0)).collect();
        for applied in 0..updates {
            self.begin(&mut idle, &mut under_way, &durations, |client| ask(transport, client, server), applied)?;
            let ((Time(time), client), work) = under_way.pop_first().ok_or_else(stuck)?;
            algorithm.server_update(server, std::slice::from_ref(&work.update))?;
            server.round += 1;
            idle.push((client, time));
            watch(server, Arrival { client, time, staleness: applied - work.begun });
        }
        Ok(())
    }

    /// Hands work to everybody who may begin.
    fn begin(
        &self,
        idle: &mut Vec<(usize, f64)>,
        under_way: &mut BTreeMap<(Time, usize), Work>,
        durations: &[f64],
        mut ask: impl FnMut(usize) -> Result<Update>,
        applied: u64,
    ) -> Result<()> {
        let mut waiting = Vec::new();
        for (client, since) in idle.drain(..) {
            let oldest = under_way.values().map(|work| work.begun).min().unwrap_or(applied);
            // Everything under way, this included, may arrive before the oldest: it would then be that much staler.
            let at_worst = applied - oldest + under_way.len() as u64;
            if at_worst > self.max_staleness {
                waiting.push((client, since));
            } else {
                under_way.insert((Time(since + durations[client]), client), Work { update: ask(client)?, begun: applied });
            }
        }
        *idle = waiting;
        Ok(())
    }

    /// How long each client works, 1 for the fastest.
    fn durations(&self, clients: usize, seed: Seed) -> Vec<f64> {
        let mut rng = seed.derive("speeds", []).rng();
        let mut uniform = || f64::from(rng.next_u32()) / f64::from(u32::MAX);
        (0..clients).map(|_| 1.0 + (self.slowest - 1.0) * uniform()).collect()
    }

    fn validate(&self) -> Result<()> {
        if self.slowest.is_finite() && self.slowest >= 1.0 {
            return Ok(());
        }
        Err(Error::invalid(format!("`asynchronous.slowest` is `{}`", self.slowest), "give a number of at least 1"))
    }
}

fn ask(transport: &mut impl Transport, client: usize, server: &ServerState) -> Result<Update> {
    let ServerState { weights, round, rho, .. } = server.clone();
    let request = Request { task: Task::Train, round, rounds: round + 1, rho, weights };
    match transport.exchange(&[client], &request)?.pop() {
        Some(Reply::Update(update)) => Ok(update),
        _ => Err(Error::message("a client asked to train answered something else")),
    }
}

fn stuck() -> Error {
    Error::invalid("nobody may begin to work", "allow a `max_staleness` of at least 1")
}

/// Simulated time, ordered.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
