//! A rule made ready for one data set: dealt to the training and to the test samples alike.
use super::classes::Classes;
use super::dirichlet::Shares;
use super::iid;
use super::label_table::LabelTable;
use super::natural::Chosen;
use super::own::Own;
use super::quantity::Sizes;
use crate::error::{counted, quoted};
use crate::{Error, Result, Seed};

/// How the samples of a pool find their clients.
pub(super) enum Plan<'a> {
    /// By owner.
    Natural(Chosen<'a>),
    /// By the labels each client draws.
    Labels(LabelTable, Classes<'a>),
    /// By each client's share of every class.
    Shares(Shares, Classes<'a>),
    /// By each client's share of everything.
    Sizes(Sizes),
    /// By the data set's own order, evenly among so many clients.
    InOrder(usize),
    /// By chance, evenly among so many clients.
    Even(usize),
    /// All to the one who is here.
    Own(Own),
}

impl Plan<'_> {
    /// The samples of `pool` that each client receives, in ascending order.
    pub(super) fn deal(&self, pool: &[u32], seed: Seed) -> Vec<Vec<u32>> {
        let mut hands = match self {
            Self::Natural(chosen) => chosen.deal(pool),
            Self::Labels(table, classes) => table.deal(&classes.strata(pool), seed),
            Self::Shares(shares, classes) => shares.deal(classes.strata(pool), seed),
            Self::Sizes(sizes) => sizes.deal(pool, seed),
            Self::InOrder(clients) => iid::cut(pool, *clients),
            Self::Even(clients) => iid::deal(pool, *clients, seed),
            Self::Own(own) => own.deal(pool),
        };
        hands.iter_mut().for_each(|hand| hand.sort_unstable());
        hands
    }

    /// The clients' names: the owners', or `client-07`.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Natural(chosen) => chosen.names(),
            Self::Labels(table, _) => numbered(table.clients()),
            Self::Shares(shares, _) => numbered(shares.clients()),
            Self::Sizes(sizes) => numbered(sizes.clients()),
            Self::Even(clients) | Self::InOrder(clients) => numbered(*clients),
            Self::Own(own) => numbered(own.clients()),
        }
    }
}

/// Names of one length, so that they sort as they count.
fn numbered(clients: usize) -> Vec<String> {
    let width = clients.saturating_sub(1).to_string().len();
    (0..clients).map(|client| format!("client-{client:0width$}")).collect()
}

/// More clients than this are a slip, and a list of them would fill the memory.
pub(super) const MOST_CLIENTS: usize = 1_000_000;

/// Refuses no clients at all, and more clients than there are samples to train on.
pub(super) fn check_clients(clients: usize, samples: usize) -> Result<()> {
    if clients == 0 {
        return Err(Error::unmeetable("a federation of `0` clients holds nothing", "ask for at least one client"));
    }
    if clients > MOST_CLIENTS && samples > MOST_CLIENTS {
        let problem = format!("`{clients}` clients are more than a federation can have");
        return Err(Error::unmeetable(problem, format!("ask for at most {}", counted(MOST_CLIENTS, "client"))));
    }
    if clients > samples {
        let samples_there = quoted(samples, "training sample");
        let problem = format!("`{clients}` clients cannot share {samples_there}: some would have none");
        let remedy = format!("ask for at most {}, or use a larger data set", counted(samples, "client"));
        return Err(Error::unmeetable(problem, remedy));
    }
    Ok(())
}

/// Refuses a minimum that would let a client have nothing to train on.
pub(super) fn check_minimum(minimum: usize) -> Result<()> {
    if minimum == 0 {
        return Err(Error::unmeetable("a minimum of `0` samples would allow clients without data", "set `minimum` to 1 or more"));
    }
    Ok(())
}
