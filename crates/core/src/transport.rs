//! How requests reach clients and replies come back.
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use fedeq_data::Seed;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::acceptance::{Acceptance, Dropped};
use crate::algorithm::{Algorithm, Update};
use crate::attack::Liars;
use crate::client::{Clients, client_seed, shared_part, shares_anything};
use crate::codec::Codec;
use crate::compression::{Compression, CompressionState, KnownModel, decode_request, encode_request, sending_seed};
use crate::engine::{Engine, States};
use crate::error::{Error, Result};
use crate::message::{ClientTask, Reply, Request};
use crate::observer::{ClientObserver, Unobserved};
use crate::parallel::lock;
use crate::secure::{SecureMean, SecureRounds};
use crate::state::KeptState;
use crate::store::ClientStore;
use crate::training::Training;

/// The way to the clients.
pub trait Transport {
    /// Sends each client a request of its own; replies come in the same order. A client that does not reply, or not in a way that can be read, is [`Dropped`] with
    /// the reason; an error means that the federation cannot continue at all.
    fn exchange(&mut self, requests: &[(usize, &Request)]) -> Result<Vec<std::result::Result<Reply, Dropped>>>;

    /// What the server demands of those it reaches like this.
    fn acceptance(&self) -> Acceptance {
        Acceptance::default()
    }

    /// Randomness that no client knows, where clients are elsewhere and know the seed of the experiment: noise and cohorts that protect clients from each other come from it.
    fn secret(&self) -> Option<Seed> {
        None
    }

    /// The mean of what some clients trained in reply to a request, where they are elsewhere and their updates came without weights; nothing where the weights came. A
    /// mean of no client means that the round is left out.
    fn secure_mean(&mut self, _request: &Request, _clients: &[usize]) -> Result<Option<SecureMean>> {
        Ok(None)
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

/// All clients in this process, at the hands of an engine. Nothing is encoded: what arrives shares the memory of what was sent, and bytes are counted as if every message had travelled. What is compressed is
/// encoded and decoded all the same, since other numbers arrive than were sent.
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
    compression: Option<&'a Compression>,
    secure: Option<SecureRounds>,
    /// Whether the server gets single changes with noise in them, which are measured from what each client received.
    noise_in_clear: bool,
    /// The bytes of a session of secure aggregation, by clients, parameters and running statistics, where they do not depend on who the clients are.
    sessions: BTreeMap<[usize; 3], Traffic>,
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
        let (liars, compression, secure, sessions) = (None, None, None, BTreeMap::new());
        Self {
            algorithm,
            training,
            engine,
            seed,
            interrupted,
            observer: &Unobserved,
            liars,
            store,
            compression,
            secure,
            noise_in_clear: false,
            sessions,
            traffic,
            seconds: 0.0,
        }
    }

    /// Lets an observer see clients at work.
    pub fn watched_by(mut self, observer: &'a dyn ClientObserver) -> Self {
        self.observer = observer;
        self
    }

    /// Compresses messages of training.
    pub fn compressing(mut self, compression: Option<&'a Compression>) -> Self {
        self.compression = compression;
        self
    }

    /// Counts updates as they are sent where the server learns only their sum.
    pub fn securing(mut self, secure: Option<SecureRounds>) -> Self {
        self.secure = secure;
        self
    }

    /// Takes updates for changes of what each client received, as clients do that add noise to them.
    pub fn noisy(mut self, noise_in_clear: bool) -> Self {
        self.noise_in_clear = noise_in_clear;
        self
    }

    /// Makes some clients malicious.
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
    fn delivered<'r>(&mut self, requests: &[(usize, &'r Request)]) -> Result<Vec<DeliveredRequest<'r>>> {
        let down = self.compression.and_then(|compression| Some((compression, compression.down?)));
        if let Some((compression, codec)) = down.filter(|_| shares_anything(self.algorithm))
            && requests.iter().all(|(_, sent)| sent.task == ClientTask::Train)
        {
            return self.compressed(compression, codec, requests);
        }
        let mut delivered: Vec<DeliveredRequest<'r>> = Vec::with_capacity(requests.len());
        for &(client, sent) in requests {
            let (request, size) = match delivered.last().filter(|last| std::ptr::eq(last.sent, sent)) {
                Some(last) => (last.request.clone(), last.size),
                None => self.timed(|| sent.delivered())?,
            };
            delivered.push(DeliveredRequest { client, sent, request, size });
        }
        Ok(delivered)
    }

    /// Requests as they arrive, each as a difference to what its client has.
    fn compressed<'r>(
        &mut self,
        compression: &Compression,
        codec: Codec,
        requests: &[(usize, &'r Request)],
    ) -> Result<Vec<DeliveredRequest<'r>>> {
        let begun = Instant::now();
        let known =
            requests.iter().map(|(client, sent)| self.known(compression, *client, sent.round)).collect::<Result<Vec<_>>>()?;
        let deliver = |(&(client, sent), known): (&(usize, &'r Request), KnownModel)| {
            let seed = sending_seed(client_seed(self.seed, client), sent.round);
            let bytes = encode_request(sent, codec, &known, seed)?;
            let request = decode_request(&bytes, codec, &known, &sent.weights)?;
            Ok(DeliveredRequest { client, sent, request, size: bytes.len() as u64 })
        };
        let delivered: Vec<Result<DeliveredRequest<'r>>> = requests.par_iter().zip(known).map(deliver).collect();
        self.seconds += begun.elapsed().as_secs_f64();
        delivered.into_iter().collect()
    }

    /// What a client has. The server of a federation keeps it; here it is in the client's state, where both sides have the same.
    fn known(&mut self, compression: &Compression, client: usize, round: u64) -> Result<KnownModel> {
        let state = self.store.get_kept(client)?;
        Ok(KnownModel::of(compression, state.compression(), round, || shared_part(self.algorithm, &self.store.fresh(client).own)))
    }

    /// Tells observers which client is called.
    fn announce(&self, requests: &[DeliveredRequest<'_>]) {
        if let Some(first) = requests.first() {
            let called: Vec<usize> = requests.iter().map(|delivered| delivered.client).collect();
            self.observer.called(first.request.task, &called);
        }
    }

    /// The clients' replies, in the order of the requests.
    fn replies_to(&mut self, requests: &[DeliveredRequest<'_>]) -> Result<Vec<Reply>> {
        let Self { algorithm, training, engine, seed, interrupted, observer, compression, .. } = *self;
        let states = StoredStates { store: Mutex::new(&mut *self.store), interrupted, observer };
        let seed_of = |client| client_seed(seed, client);
        let clients = Clients { algorithm, training, engine, states: &states, seed_of: &seed_of, compression };
        let requests: Vec<(usize, &Request)> = requests.iter().map(|delivered| (delivered.client, &delivered.request)).collect();
        let named = |(reply, (client, _)): (Result<Reply>, &(usize, &Request))| {
            reply.map_err(|error| error.diverged_at(|| format!("client `{}`:", engine.name(*client))))
        };
        clients.handle(&requests).into_iter().zip(&requests).map(named).collect()
    }

    /// A reply as it arrives at the server. Clients of a method that shares nothing need no messages: here they are only told that it is their turn.
    fn receive(&mut self, delivered: &DeliveredRequest<'_>, reply: Reply) -> Result<Reply> {
        let (reply, size) = self.timed(|| reply.delivered())?;
        let reply = self.decompressed(delivered, reply)?;
        let reply = self.since(delivered, reply)?;
        // Whoever lies may send what no codec would have made of an honest update.
        let reply = match self.liars {
            Some(liars) => liars.falsified(delivered.client, delivered.sent, reply)?,
            None => reply,
        };
        if delivered.request.task == ClientTask::Train && shares_anything(self.algorithm) {
            self.traffic.down += delivered.size;
            self.traffic.up += if self.secure.is_some() { reply.len_without_weights()? } else { size };
        }
        Ok(reply)
    }

    /// The messages by which all updates of a cohort are summed in secret.
    fn count_session(&mut self, clients: &[usize], replies: &[Reply]) -> Result<()> {
        let numbers = |reply: &Reply| match reply {
            Reply::Update(Update { weights, .. }) => Some([weights.like().params.count(), weights.like().statistics.count()]),
            Reply::Scores(_) | Reply::Done(_) | Reply::Aggregation(_) => None,
        };
        let (Some(secure), Some([parameters, statistics])) = (&self.secure, replies.first().and_then(numbers)) else {
            return Ok(());
        };
        let session = [replies.len(), parameters, statistics];
        let counted = match self.sessions.get(&session).filter(|_| !secure.is_signed()) {
            Some(counted) => *counted,
            None => secure.traffic(clients, parameters, statistics)?,
        };
        self.sessions.insert(session, counted);
        self.traffic.up += counted.up;
        self.traffic.down += counted.down;
        Ok(())
    }

    /// An update as numbers again: what arrived belongs to what the server sent.
    fn decompressed(&mut self, delivered: &DeliveredRequest<'_>, reply: Reply) -> Result<Reply> {
        let (Some(compression), Some(bytes)) = (self.compression, reply.compressed()) else { return Ok(reply) };
        let algorithm = self.algorithm;
        let weights = self.timed(|| compression.decompress(algorithm, bytes, &delivered.sent.weights))?;
        Ok(reply.with_weights(weights))
    }

    /// What is summed in secret, or with noise by clients, is how far a client came from what it received, which is not quite what the server has where a codec wrote it.
    fn since(&self, delivered: &DeliveredRequest<'_>, reply: Reply) -> Result<Reply> {
        let is_other = self.compression.is_some_and(|compression| compression.down.is_some());
        match reply {
            Reply::Update(update) if is_other && self.secure.is_some() && !self.algorithm.sends_changes() => {
                let weights = update.weights.moved_from(delivered.request.weights.params.clone())?;
                Ok(Reply::Update(Update { weights, ..update }))
            }
            reply if is_other && self.noise_in_clear => {
                reply.rebased(self.algorithm, &delivered.request.weights.params, &delivered.sent.weights.params)
            }
            other => Ok(other),
        }
    }

    fn timed<V>(&mut self, work: impl FnOnce() -> Result<V>) -> Result<V> {
        let begun = Instant::now();
        let value = work();
        self.seconds += begun.elapsed().as_secs_f64();
        value
    }
}

/// A request on its way to a client.
struct DeliveredRequest<'a> {
    client: usize,
    /// As it was sent, which tells requests apart.
    sent: &'a Request,
    /// As it arrives.
    request: Request,
    /// Bytes on the wire.
    size: u64,
}

/// States in a store, with observers of clients, which may also stop them.
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

    fn compression(&self, client: usize) -> Result<CompressionState> {
        Ok(lock(&self.store).get_kept(client)?.compression().clone())
    }

    fn end(&self, client: usize, state: KeptState, changed: bool) -> Result<()> {
        self.observer.ends(client, &state);
        if changed { lock(&self.store).put(client, state) } else { Ok(()) }
    }
}

impl Transport for InProcess<'_> {
    fn exchange(&mut self, requests: &[(usize, &Request)]) -> Result<Vec<std::result::Result<Reply, Dropped>>> {
        let requests = self.delivered(requests)?;
        self.announce(&requests);
        let replies = self.replies_to(&requests)?;
        let received = requests.iter().zip(replies).map(|(delivered, reply)| self.receive(delivered, reply));
        let received = received.collect::<Result<Vec<Reply>>>()?;
        let clients: Vec<usize> = requests.iter().map(|delivered| delivered.client).collect();
        self.count_session(&clients, &received)?;
        Ok(received.into_iter().map(Ok).collect())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }
}
