//! How requests reach clients and replies come back.
use std::sync::Mutex;
use std::time::Instant;

use fedeq_data::Seed;
use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::attack::Liars;
use crate::client::{Clients, client_seed, shares_anything};
use crate::engine::{Engine, States};
use crate::error::{Error, Result};
use crate::message::{ClientTask, Reply, Request};
use crate::observer::{ClientObserver, Nobody};
use crate::parallel::lock;
use crate::state::KeptState;
use crate::store::ClientStore;
use crate::training::Training;

/// The way to the clients.
pub trait Transport {
    /// Sends the request to every client of the cohort; replies come in the order of the cohort.
    fn exchange(&mut self, cohort: &[usize], request: &Request) -> Result<Vec<Reply>>;

    /// Sends each client a request of its own; replies come in the same order.
    fn exchange_each(&mut self, envelopes: &[(usize, &Request)]) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(envelopes.len());
        for (client, request) in envelopes {
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
    /// In both directions.
    pub fn total(self) -> u64 {
        self.up + self.down
    }

    /// What was sent since an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self { up: self.up - before.up, down: self.down - before.down }
    }
}

/// All clients in this process, at the hands of an engine. Nothing is encoded: what arrives shares the memory of what was sent, and bytes are counted as if every message had travelled.
pub struct InProcess<'a> {
    algorithm: &'a dyn Algorithm,
    training: &'a Training,
    engine: &'a dyn Engine,
    seed: Seed,
    /// Asked before every client; true means stop.
    interrupted: &'a (dyn Fn() -> bool + Sync),
    observer: &'a dyn ClientObserver,
    liars: Option<&'a Liars>,
    store: &'a mut ClientStore,
    traffic: Traffic,
    seconds: f64,
}

impl<'a> InProcess<'a> {
    /// A federation in one process.
    pub fn new(
        algorithm: &'a dyn Algorithm,
        training: &'a Training,
        engine: &'a dyn Engine,
        store: &'a mut ClientStore,
        seed: Seed,
        interrupted: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let traffic = Traffic::default();
        Self { algorithm, training, engine, seed, interrupted, observer: &Nobody, liars: None, store, traffic, seconds: 0.0 }
    }

    /// Lets somebody look on while clients work.
    pub fn watched_by(mut self, observer: &'a dyn ClientObserver) -> Self {
        self.observer = observer;
        self
    }

    /// Lets some clients lie.
    pub fn attacked_by(mut self, liars: Option<&'a Liars>) -> Self {
        self.liars = liars;
        self
    }

    /// The states of the clients.
    pub fn store(&mut self) -> &mut ClientStore {
        self.store
    }

    /// Continues the count of an earlier process.
    pub fn resume_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }

    /// Requests as they arrive at their clients; one that goes to several in a row is delivered once.
    fn delivered<'r>(&mut self, envelopes: &[(usize, &'r Request)]) -> Result<Vec<Envelope<'r>>> {
        let mut delivered: Vec<Envelope<'r>> = Vec::with_capacity(envelopes.len());
        for &(client, sent) in envelopes {
            let (request, size) = match delivered.last().filter(|last| std::ptr::eq(last.sent, sent)) {
                Some(last) => (last.request.clone(), last.size),
                None => self.timed(|| sent.delivered())?,
            };
            delivered.push(Envelope { client, sent, request, size });
        }
        Ok(delivered)
    }

    /// Tells whoever looks on who is called.
    fn announce(&self, envelopes: &[Envelope<'_>]) {
        if let Some(first) = envelopes.first() {
            let called: Vec<usize> = envelopes.iter().map(|envelope| envelope.client).collect();
            self.observer.called(first.request.task, &called);
        }
    }

    /// The clients' replies, in the order of the requests.
    fn answered(&mut self, envelopes: &[Envelope<'_>]) -> Result<Vec<Reply>> {
        let Self { algorithm, training, engine, seed, interrupted, observer, .. } = *self;
        let states = StoredStates { store: Mutex::new(&mut *self.store), interrupted, observer };
        let clients = Clients { algorithm, training, engine, states: &states, seed_of: &|client| client_seed(seed, client) };
        let requests: Vec<(usize, &Request)> = envelopes.iter().map(|envelope| (envelope.client, &envelope.request)).collect();
        let named = |(reply, (client, _)): (Result<Reply>, &(usize, &Request))| {
            reply.map_err(|error| error.diverged_at(|| format!("client `{}`:", engine.name(*client))))
        };
        clients.handle(&requests).into_iter().zip(&requests).map(named).collect()
    }

    /// A reply as it arrives at the server. Clients of a method that shares nothing need no messages: here they are only told that it is their turn.
    fn receive(&mut self, envelope: &Envelope<'_>, reply: Reply) -> Result<Reply> {
        let reply = match self.liars {
            Some(liars) => liars.falsified(envelope.client, &envelope.request, reply)?,
            None => reply,
        };
        let (reply, size) = self.timed(|| reply.delivered())?;
        if envelope.request.task == ClientTask::Train && shares_anything(self.algorithm) {
            self.traffic.down += envelope.size;
            self.traffic.up += size;
        }
        Ok(reply)
    }

    fn timed<V>(&mut self, work: impl FnOnce() -> Result<V>) -> Result<V> {
        let begun = Instant::now();
        let value = work();
        self.seconds += begun.elapsed().as_secs_f64();
        value
    }
}

/// A request on its way to a client.
struct Envelope<'a> {
    client: usize,
    /// As it was sent, which tells requests apart.
    sent: &'a Request,
    /// As it arrives.
    request: Request,
    /// Bytes on the wire.
    size: u64,
}

/// States in a store, with whoever may stop clients or look on.
struct StoredStates<'a, 's> {
    store: Mutex<&'s mut ClientStore>,
    interrupted: &'a (dyn Fn() -> bool + Sync),
    observer: &'a dyn ClientObserver,
}

impl States for StoredStates<'_, '_> {
    fn begin(&self, client: usize) -> Result<KeptState> {
        if (self.interrupted)() {
            return Err(Error::Interrupted);
        }
        let state = lock(&self.store).get_kept(client)?;
        self.observer.begins(client, &state);
        Ok(state)
    }

    fn end(&self, client: usize, state: KeptState, changed: bool) -> Result<()> {
        self.observer.ends(client, &state);
        if changed { lock(&self.store).put(client, state) } else { Ok(()) }
    }
}

impl Transport for InProcess<'_> {
    fn exchange(&mut self, cohort: &[usize], request: &Request) -> Result<Vec<Reply>> {
        self.exchange_each(&cohort.iter().map(|&client| (client, request)).collect::<Vec<_>>())
    }

    fn exchange_each(&mut self, envelopes: &[(usize, &Request)]) -> Result<Vec<Reply>> {
        let envelopes = self.delivered(envelopes)?;
        self.announce(&envelopes);
        let replies = self.answered(&envelopes)?;
        envelopes.iter().zip(replies).map(|(envelope, reply)| self.receive(envelope, reply)).collect()
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }
}
