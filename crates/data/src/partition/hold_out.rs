//! Clients kept back, to see how well newcomers are served.
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_splits::ClientSplits;
use crate::error::quoted;
use crate::{Error, Result, Seed};

/// How many clients to keep back.
///
/// ```
/// use fedeq_data::partition::HoldOut;
/// let tenth: HoldOut = serde_json::from_str(r#"{ "fraction": 0.1 }"#)?;
/// assert_eq!(tenth, HoldOut::Fraction(0.1));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HoldOut {
    /// This fraction of the clients, rounded down.
    Fraction(#[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))] f64),
    /// This many clients.
    Count(usize),
}

impl ClientSplits {
    /// Moves whole clients, drawn by seed, from [`ClientSplits::clients`] to [`ClientSplits::unseen`]; both stay in order.
    ///
    /// At least one client must remain, and a fraction above 0 must come to at least one client.
    pub fn hold_out(mut self, amount: HoldOut, seed: Seed) -> Result<Self> {
        let count = amount.of(self.clients.len())?;
        let mut order: Vec<usize> = (0..self.clients.len()).collect();
        order.shuffle(&mut seed.derive("hold out", []).rng());
        let mut is_unseen = vec![false; order.len()];
        order[..count].iter().for_each(|&client| is_unseen[client] = true);

        let mut is_unseen = is_unseen.into_iter();
        self.unseen.extend(self.clients.extract_if(.., |_| is_unseen.next().unwrap_or(false)));
        Ok(self)
    }
}

impl HoldOut {
    fn of(self, clients: usize) -> Result<usize> {
        let count = match self {
            Self::Count(count) => count,
            Self::Fraction(fraction) => part_of(clients, fraction)?,
        };
        if count >= clients {
            let problem = format!("holding out `{count}` of {} leaves no client to train", quoted(clients, "client"));
            return Err(Error::unmeetable(problem, format!("hold out at most {}", clients.saturating_sub(1))));
        }
        Ok(count)
    }
}

fn part_of(clients: usize, fraction: f64) -> Result<usize> {
    if !(0.0..1.0).contains(&fraction) {
        let problem = format!("`{fraction}` is not a fraction of the clients");
        return Err(Error::unmeetable(problem, "set a number from 0 to below 1"));
    }
    // 0.29 * 100 is just below 29 in floating point, and means 29.
    let count = (fraction * clients as f64 + 1e-9).floor() as usize;
    if count == 0 && fraction > 0.0 {
        let problem = format!("the fraction `{fraction}` of {} comes to none", quoted(clients, "client"));
        return Err(Error::unmeetable(problem, "set a larger fraction, or a count"));
    }
    Ok(count)
}
