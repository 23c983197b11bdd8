//! How requests reach clients and replies come back.
use fedeq_data::Seed;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::message::{Reply, Request, Task};
use crate::site::Site;
use crate::state::ClientState;
use crate::store::ClientStore;
use crate::training::Training;

/// The way to the clients.
pub trait Transport {
    /// Sends the request to every client of the cohort; replies come in the order of the cohort.
    fn exchange(&mut self, cohort: &[usize], request: &Request) -> Result<Vec<Reply>>;

    /// Bytes sent so far.
    fn traffic(&self) -> Traffic;
}

/// Bytes of encoded messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// From clients to the server.
    pub up: u64,
    /// From the server to clients.
    pub down: u64,
}

/// Gives the site of a client, whenever it is that client's turn.
pub trait Sites: Sync {
    /// How many clients there are.
    fn clients(&self) -> usize;

    /// A client's site, for as long as it works.
    fn site(&self, client: usize) -> Result<Box<dyn Site>>;
}

/// All clients in this process, several at a time. Every message is encoded and decoded as if it had travelled.
pub struct InProcess<'a> {
    algorithm: &'a dyn Algorithm,
    training: &'a Training,
    sites: &'a dyn Sites,
    store: &'a mut ClientStore,
    seed: Seed,
    traffic: Traffic,
    /// Asked before every client; true means stop.
    interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> InProcess<'a> {
    /// A federation in one process. Clients run on the current rayon pool.
    pub fn new(
        algorithm: &'a dyn Algorithm,
        training: &'a Training,
        sites: &'a dyn Sites,
        store: &'a mut ClientStore,
        seed: Seed,
        interrupted: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self { algorithm, training, sites, store, seed, traffic: Traffic::default(), interrupted }
    }

    /// The states of the clients.
    pub fn store(&mut self) -> &mut ClientStore {
        self.store
    }

    /// Continues the count of an earlier process.
    pub fn resume_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }

    fn serve(&self, client: usize, state: &mut ClientState, request: &[u8]) -> Result<Vec<u8>> {
        if (self.interrupted)() {
            return Err(Error::Interrupted);
        }
        let site = self.sites.site(client)?;
        let seed = self.seed.derive("client", [client as u64]);
        let mut client = Client { algorithm: self.algorithm, training: self.training, site: site.as_ref(), state, seed };
        client.handle(&Request::decode(request)?)?.encode()
    }
}

impl Transport for InProcess<'_> {
    fn exchange(&mut self, cohort: &[usize], request: &Request) -> Result<Vec<Reply>> {
        let bytes = request.encode()?;
        let mut replies = Vec::with_capacity(cohort.len());
        // A few clients at a time: only their states are in memory beside the store.
        for clients in cohort.chunks(4 * rayon::current_num_threads()) {
            let states = clients.iter().map(|&client| Ok((client, self.store.get(client)?))).collect::<Result<Vec<_>>>()?;
            let served: Vec<Result<(usize, ClientState, Vec<u8>)>> = states
                .into_par_iter()
                .map(|(client, mut state)| self.serve(client, &mut state, &bytes).map(|reply| (client, state, reply)))
                .collect();
            for (client, state, reply) in served.into_iter().collect::<Result<Vec<_>>>()? {
                if matches!(request.task, Task::Train | Task::Finish | Task::Adopt) {
                    self.store.put(client, state)?;
                }
                if request.task == Task::Train {
                    self.traffic.down += bytes.len() as u64;
                    self.traffic.up += reply.len() as u64;
                }
                replies.push(Reply::decode(&reply)?);
            }
        }
        Ok(replies)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}
