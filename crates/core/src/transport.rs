//! How requests reach clients and replies come back.
use std::sync::Arc;
use std::time::Instant;

use fedeq_data::Seed;
use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::client::Client;
use crate::crew::side_by_side;
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

    /// Sends each client a request of its own; replies come in the same order.
    fn exchange_each(&mut self, letters: &[(usize, &Request)]) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(letters.len());
        for (client, request) in letters {
            replies.extend(self.exchange(&[*client], request)?);
        }
        Ok(replies)
    }

    /// Bytes sent so far.
    fn traffic(&self) -> Traffic;

    /// Seconds that writing, sending and reading messages took so far, summed over clients.
    fn seconds(&self) -> f64 {
        0.0
    }
}

/// Bytes of encoded messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// From clients to the server.
    pub up: u64,
    /// From the server to clients.
    pub down: u64,
}

impl Traffic {
    /// What was sent since an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self { up: self.up - before.up, down: self.down - before.down }
    }
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
    seconds: f64,
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
        Self { algorithm, training, sites, store, seed, traffic: Traffic::default(), seconds: 0.0, interrupted }
    }

    /// The states of the clients.
    pub fn store(&mut self) -> &mut ClientStore {
        self.store
    }

    /// Continues the count of an earlier process.
    pub fn resume_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }

    fn serve(&self, client: usize, state: &mut ClientState, request: &[u8]) -> Result<Served> {
        if (self.interrupted)() {
            return Err(Error::Interrupted);
        }
        let (request, reading) = timed(|| Request::decode(request))?;
        let site = self.sites.site(client)?;
        let seed = self.seed.derive("client", [client as u64]);
        let mut client = Client { algorithm: self.algorithm, training: self.training, site: site.as_ref(), state, seed };
        let reply = client.handle(&request)?;
        let (reply, writing) = timed(|| reply.encode())?;
        Ok(Served { reply, seconds: reading + writing })
    }

    /// Serves a few clients side by side.
    fn serve_some(&mut self, letters: &[Letter<'_>]) -> Result<Vec<Reply>> {
        let states = letters.iter().map(|letter| self.store.get(letter.client)).collect::<Result<Vec<_>>>()?;
        let this = &*self;
        let served = side_by_side(states.into_iter().zip(letters).collect(), |(mut state, letter): (ClientState, &Letter)| {
            this.serve(letter.client, &mut state, &letter.bytes).map(|served| (state, served))
        });
        let served = served.into_iter().collect::<Result<Vec<_>>>()?;
        letters.iter().zip(served).map(|(letter, (state, served))| self.receive(letter, state, &served)).collect()
    }

    fn receive(&mut self, letter: &Letter<'_>, state: ClientState, served: &Served) -> Result<Reply> {
        let task = letter.request.task;
        if matches!(task, Task::Train | Task::Finish | Task::Adopt) {
            self.store.put(letter.client, state)?;
        }
        if task == Task::Train {
            self.traffic.down += letter.bytes.len() as u64;
            self.traffic.up += served.reply.len() as u64;
        }
        let (reply, reading) = timed(|| Reply::decode(&served.reply))?;
        self.seconds += served.seconds + reading;
        Ok(reply)
    }

    /// Writes requests; one that goes to several clients in a row is written once.
    fn written<'r>(&mut self, letters: &[(usize, &'r Request)]) -> Result<Vec<Letter<'r>>> {
        let mut written: Vec<Letter<'r>> = Vec::with_capacity(letters.len());
        for &(client, request) in letters {
            let bytes = match written.last().filter(|last| std::ptr::eq(last.request, request)) {
                Some(last) => Arc::clone(&last.bytes),
                None => {
                    let (bytes, seconds) = timed(|| request.encode())?;
                    self.seconds += seconds;
                    bytes.into()
                }
            };
            written.push(Letter { client, request, bytes });
        }
        Ok(written)
    }
}

/// A request on its way to a client.
struct Letter<'a> {
    client: usize,
    request: &'a Request,
    bytes: Arc<[u8]>,
}

/// A reply on its way to the server, and the seconds its client spent on messages.
struct Served {
    reply: Vec<u8>,
    seconds: f64,
}

fn timed<V>(work: impl FnOnce() -> Result<V>) -> Result<(V, f64)> {
    let begun = Instant::now();
    work().map(|value| (value, begun.elapsed().as_secs_f64()))
}

impl Transport for InProcess<'_> {
    fn exchange(&mut self, cohort: &[usize], request: &Request) -> Result<Vec<Reply>> {
        self.exchange_each(&cohort.iter().map(|&client| (client, request)).collect::<Vec<_>>())
    }

    fn exchange_each(&mut self, letters: &[(usize, &Request)]) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(letters.len());
        let letters = self.written(letters)?;
        // A few clients at a time: only their states are in memory beside the store.
        for some in letters.chunks(8 * rayon::current_num_threads()) {
            replies.extend(self.serve_some(some)?);
        }
        Ok(replies)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }
}
