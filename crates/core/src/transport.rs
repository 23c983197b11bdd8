//! How requests reach clients and replies come back.
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fedeq_data::Seed;
use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::client::{Client, sends};
use crate::crew::{lock, side_by_side};
use crate::error::{Error, Result};
use crate::message::{Reply, Request, Task};
use crate::site::Site;
use crate::state::ClientState;
use crate::store::ClientStore;
use crate::training::Training;
use crate::witness::{Nobody, Witness};

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
    /// In both directions.
    pub fn total(self) -> u64 {
        self.up + self.down
    }

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

    /// What people call a client.
    fn name(&self, client: usize) -> String {
        client.to_string()
    }

    /// How many samples a client trains on, which tells how long it will take. Asked before every round: it should not make a site.
    fn samples(&self, client: usize) -> usize {
        self.site(client).map_or(0, |site| site.samples())
    }
}

/// All clients in this process, several at a time. Every message is encoded and decoded as if it had travelled; what arrives then
/// shares the memory of what was sent, which another process would not have held.
pub struct InProcess<'a> {
    clients: Clients<'a>,
    store: &'a mut ClientStore,
    traffic: Traffic,
    seconds: f64,
}

impl<'a> InProcess<'a> {
    /// A federation in one process. As many clients work at a time as the current rayon pool has threads.
    pub fn new(
        algorithm: &'a dyn Algorithm,
        training: &'a Training,
        sites: &'a dyn Sites,
        store: &'a mut ClientStore,
        seed: Seed,
        interrupted: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let clients = Clients { algorithm, training, sites, seed, interrupted, witness: &Nobody };
        Self { clients, store, traffic: Traffic::default(), seconds: 0.0 }
    }

    /// Lets somebody look on while clients work.
    pub fn watched_by(mut self, witness: &'a dyn Witness) -> Self {
        self.clients.witness = witness;
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

    /// Takes note of what an exchange took. Clients of a method that shares nothing need no messages: here they are only told that it is their turn.
    fn note(&mut self, letter: &Letter<'_>, served: &Served) {
        if letter.request.task == Task::Train && sends(self.clients.algorithm) {
            self.traffic.down += letter.bytes.len() as u64;
            self.traffic.up += served.size;
        }
        self.seconds += served.seconds;
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

/// A reply that has arrived, the bytes it took, and the seconds spent on the messages.
struct Served {
    reply: Reply,
    size: u64,
    seconds: f64,
}

/// What clients are made of, beside their states.
struct Clients<'a> {
    algorithm: &'a dyn Algorithm,
    training: &'a Training,
    sites: &'a dyn Sites,
    seed: Seed,
    /// Asked before every client; true means stop.
    interrupted: &'a (dyn Fn() -> bool + Sync),
    witness: &'a dyn Witness,
}

impl Clients<'_> {
    /// In which order letters are attended to. Whoever has most to do comes first, so that nobody begins long work when all others are
    /// about to finish; where nobody trains, the order does not matter.
    fn longest_first(&self, letters: &[Letter<'_>]) -> Vec<usize> {
        let work = |letter: &Letter<'_>| match letter.request.task {
            Task::Train => self.sites.samples(letter.client),
            _ => 0,
        };
        let work: Vec<usize> = letters.iter().map(work).collect();
        let mut order: Vec<usize> = (0..letters.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(work[at]));
        order
    }

    /// Tells whoever looks on who is called.
    fn announce(&self, letters: &[Letter<'_>]) {
        if let Some(first) = letters.first() {
            let called: Vec<usize> = letters.iter().map(|letter| letter.client).collect();
            self.witness.called(first.request.task, &called);
        }
    }

    /// A letter's whole way: only clients at work hold a copy of their state.
    fn attend(&self, letter: &Letter<'_>, store: &Mutex<&mut ClientStore>) -> Result<Served> {
        if (self.interrupted)() {
            return Err(Error::Interrupted);
        }
        let mut state = lock(store).get(letter.client)?;
        self.witness.begins(letter.client, &state);
        // Most methods have nothing left to do when training is over: what did not change need not be kept anew.
        let before = (letter.request.task == Task::Finish).then(|| state.clone());
        let name = || format!("client `{}`:", self.sites.name(letter.client));
        let served = self.serve(letter, &mut state).map_err(|error| error.diverged_at(name))?;
        self.witness.ends(letter.client, &state);
        if letter.request.task.changes_state() && before.is_none_or(|before| before != state) {
            lock(store).put(letter.client, state)?;
        }
        Ok(served)
    }

    fn serve(&self, letter: &Letter<'_>, state: &mut ClientState) -> Result<Served> {
        let (mut request, reading) = timed(|| Request::decode(&letter.bytes))?;
        request.weights.share(&letter.request.weights);
        let site = self.sites.site(letter.client)?;
        let seed = client_seed(self.seed, letter.client);
        let mut client = Client { algorithm: self.algorithm, training: self.training, site: site.as_ref(), state, seed };
        let sent = client.handle(&request)?;
        let (bytes, writing) = timed(|| sent.encode())?;
        let (mut reply, arriving) = timed(|| Reply::decode(&bytes))?;
        reply.share(&sent);
        Ok(Served { reply, size: bytes.len() as u64, seconds: reading + writing + arriving })
    }
}

/// What was done in some order of places, by place.
fn in_place<V>(order: &[usize], done: Vec<V>) -> Vec<V> {
    let mut pairs: Vec<(usize, V)> = order.iter().copied().zip(done).collect();
    pairs.sort_by_key(|(place, _)| *place);
    pairs.into_iter().map(|(_, value)| value).collect()
}

/// A client's own randomness, from that of all clients.
pub fn client_seed(clients: Seed, client: usize) -> Seed {
    clients.derive("client", [client as u64])
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
        let letters = self.written(letters)?;
        let (clients, store) = (&self.clients, Mutex::new(&mut *self.store));
        clients.announce(&letters);
        let order = clients.longest_first(&letters);
        let served = side_by_side(order.iter().map(|&at| &letters[at]).collect(), |letter| clients.attend(letter, &store));
        let served = in_place(&order, served).into_iter().collect::<Result<Vec<_>>>()?;
        letters.iter().zip(&served).for_each(|(letter, served)| self.note(letter, served));
        Ok(served.into_iter().map(|served| served.reply).collect())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }
}
