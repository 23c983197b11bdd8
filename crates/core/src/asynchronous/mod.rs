//! Asynchronous consensus: updates are applied as they arrive.
//!
//! # Layout
//! - this file: the settings, and the simulated speeds
//! - `schedule`: who works on what, and until when
//! - `round`: as much asynchronous work as a round has
mod round;
mod schedule;

use fedeq_data::Seed;
use rand_chacha::rand_core::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub(crate) use round::AsyncRound;
pub use schedule::{Arrival, AsyncSchedule};

/// Clients of different speeds, each working whenever it can.
///
/// A client receives `theta`, works for its own time, and sends its update; the server applies it at once and hands out the new
/// `theta`. No client waits for another, except that work may not begin while an older piece of work, begun more than
/// `max_staleness` updates ago, is still under way. Only a method whose server step takes single updates can do so:
/// [`FedEq`](crate::FedEq) with the [exact consensus step](crate::ServerStep::Consensus).
///
/// A round is then as many updates as a synchronous round would have, so that evaluations, checkpoints and curves are
/// comparable; work under way continues from one round into the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Asynchronous {
    /// The slowest client takes this many times as long as the fastest; the others lie between, drawn by seed.
    #[schemars(range(min = 1.0, max = SLOWEST))]
    pub slowest: f64,
    /// An update may be based on a `theta` at most this many updates old.
    pub max_staleness: u64,
}

impl Default for Asynchronous {
    fn default() -> Self {
        Self { slowest: 10.0, max_staleness: 100 }
    }
}

/// Simulated time is counted in whole ticks, so that it is exact wherever it is written down.
const TICKS: f64 = 1000.0;

/// Speeds further apart than this are surely a slip, and would in the end overflow the clock.
const SLOWEST: f64 = 1e6;

impl Asynchronous {
    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<()> {
        if (1.0..=SLOWEST).contains(&self.slowest) {
            return Ok(());
        }
        let problem = format!("`plan.asynchronous.slowest` is `{}`", self.slowest);
        Err(Error::invalid(problem, "give a number from 1 to 1,000,000"))
    }

    /// How many ticks each client works, at least [`TICKS`].
    fn durations(&self, clients: usize, seed: Seed) -> Vec<u64> {
        let mut rng = seed.derive("speeds", []).rng();
        let mut uniform = || f64::from(rng.next_u32()) / f64::from(u32::MAX);
        (0..clients).map(|_| (TICKS * (1.0 + (self.slowest - 1.0) * uniform())) as u64).collect()
    }
}
