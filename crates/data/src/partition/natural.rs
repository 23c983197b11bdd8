//! The clients that the data came from.
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::check_minimum;
use crate::error::quoted;
use crate::{Dataset, Error, Owners, Result, Seed};

/// Which of the owners who qualify become clients, where fewer are asked for than there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// The first, in the source's order.
    #[default]
    First,
    /// A draw by seed; those drawn stay in the source's order.
    Random,
}

/// The owners who become clients.
pub(super) struct Chosen<'a> {
    owners: &'a Owners,
    /// Indices into `owners.names`, ascending.
    chosen: Vec<usize>,
}

impl<'a> Chosen<'a> {
    /// Chooses among the owners with at least `minimum` samples in `pool`.
    pub(super) fn of(
        dataset: &'a Dataset,
        pool: &[u32],
        clients: Option<usize>,
        pick: Pick,
        minimum: usize,
        seed: Seed,
    ) -> Result<Self> {
        check_minimum(minimum)?;
        let owners = dataset.owners.as_ref().ok_or_else(|| no_owners(dataset))?;
        let mut chosen = qualified(owners, pool, minimum);
        let clients = clients.unwrap_or(chosen.len());
        check_supply(clients, chosen.len(), minimum)?;
        if pick == Pick::Random {
            chosen.shuffle(&mut seed.rng());
        }
        chosen.truncate(clients);
        chosen.sort_unstable();
        Ok(Self { owners, chosen })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.chosen.iter().map(|&owner| self.owners.names[owner].clone()).collect()
    }

    /// Gives each chosen owner its own samples.
    pub(super) fn deal(&self, pool: &[u32]) -> Vec<Vec<u32>> {
        let mut by_owner = vec![Vec::new(); self.owners.names.len()];
        for &sample in pool {
            by_owner[self.owners.of[sample as usize] as usize].push(sample);
        }
        self.chosen.iter().map(|&owner| std::mem::take(&mut by_owner[owner])).collect()
    }
}

fn qualified(owners: &Owners, pool: &[u32], minimum: usize) -> Vec<usize> {
    let mut samples = vec![0; owners.names.len()];
    for &sample in pool {
        samples[owners.of[sample as usize] as usize] += 1;
    }
    (0..samples.len()).filter(|&owner| samples[owner] >= minimum).collect()
}

fn no_owners(dataset: &Dataset) -> Error {
    let problem = format!("the rule `natural` needs to know whose each sample is, and `{}` does not say", dataset.name);
    Error::unmeetable(problem, "use `label-shards`, `distinct-labels`, `dirichlet` or `iid`")
}

fn check_supply(clients: usize, qualified: usize, minimum: usize) -> Result<()> {
    if (1..=qualified).contains(&clients) {
        return Ok(());
    }
    let problem = match qualified {
        0 => format!("no owner has at least {}", quoted(minimum, "training sample")),
        _ => {
            let verb = if clients == 1 { "was" } else { "were" };
            let (asked, samples) = (quoted(clients, "client"), quoted(minimum, "training sample"));
            let have = if qualified == 1 { "has" } else { "have" };
            format!("{asked} {verb} asked for, and {} {have} at least {samples}", quoted(qualified, "owner"))
        }
    };
    let remedy = match qualified {
        0 => "lower `minimum`".to_owned(),
        1 => "ask for 1 client, or lower `minimum`".to_owned(),
        _ => format!("ask for 1 to {qualified} clients, or lower `minimum`"),
    };
    Err(Error::unmeetable(problem, remedy))
}
