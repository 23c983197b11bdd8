//! A whole session in one process, every message encoded and decoded: for tests, and to measure what it costs.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::client::{AwaitingRoster, AwaitingShares, AwaitingSignatures, AwaitingSurvivors};
use crate::count::MessageCounts;
use crate::error::Result;
use crate::message::WireMessage;
use crate::registry::Identity;
use crate::ring::RingVector;
use crate::secrets::Entropy;
use crate::server::{Addressed, CollectingKeys, SecureSum};
use crate::session::Session;

/// Before which of its messages a client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DropOut {
    /// Its keys.
    BeforeKeys,
    /// Its shares.
    BeforeShares,
    /// Its masked vector.
    BeforeInput,
    /// Its signature of the survivors, where there is a registry.
    BeforeSignature,
    /// The shares that remove masks.
    BeforeReveal,
    /// None.
    #[default]
    Never,
}

/// One client of a session.
pub struct SessionClient {
    /// Its number.
    pub client: u16,
    /// Who it is to the others.
    pub identity: Identity,
    /// Its randomness.
    pub entropy: Entropy,
    /// What it adds to the sum.
    pub vector: RingVector,
    /// When it leaves.
    pub leaves: DropOut,
}

/// What came of a session, and what it cost.
#[derive(Debug, Clone)]
pub struct SessionOutcome {
    /// The sum.
    pub sum: SecureSum,
    /// All messages of all clients.
    pub counts: MessageCounts,
    /// The time that all clients took together.
    pub clients_time: Duration,
    /// The time that the server took.
    pub server_time: Duration,
}

/// What a session costs while it runs.
struct Costs<'a> {
    session: &'a Session,
    counts: MessageCounts,
    clients: Duration,
    server: Duration,
}

impl Costs<'_> {
    fn carry<Message: WireMessage>(&mut self, message: &Message) -> Result<Message> {
        let bytes = message.encode();
        self.counts.add(Message::KIND, bytes.len());
        Message::decode(&bytes, self.session)
    }

    fn by_client<Value>(&mut self, step: impl FnOnce() -> Result<Value>) -> Result<Value> {
        let start = Instant::now();
        let value = step();
        self.clients += start.elapsed();
        value
    }

    fn by_server<Value>(&mut self, step: impl FnOnce() -> Result<Value>) -> Result<Value> {
        let start = Instant::now();
        let value = step();
        self.server += start.elapsed();
        value
    }

    /// Lets every client that is still there reply to a message of the server, and the server take the reply.
    fn exchange<Request: WireMessage, Reply: WireMessage, Before, After>(
        &mut self,
        asked: Addressed<Request>,
        mut states: BTreeMap<u16, Before>,
        mut reply: impl FnMut(u16, Before, Request) -> Result<(After, Reply)>,
        mut take: impl FnMut(Reply) -> Result<()>,
    ) -> Result<BTreeMap<u16, After>> {
        let mut after = BTreeMap::new();
        for (client, request) in asked {
            let Some(state) = states.remove(&client) else { continue };
            let request = self.carry(&request)?;
            let (next, message) = self.by_client(|| reply(client, state, request))?;
            let message = self.carry(&message)?;
            self.by_server(|| take(message))?;
            after.insert(client, next);
        }
        Ok(after)
    }
}

/// Runs a session to its end. The first step that refuses ends it.
pub fn run(session: &Session, clients: Vec<SessionClient>) -> Result<SessionOutcome> {
    let mut costs = Costs { session, counts: MessageCounts::default(), clients: Duration::ZERO, server: Duration::ZERO };
    let leaves: BTreeMap<u16, DropOut> = clients.iter().map(|client| (client.client, client.leaves)).collect();
    let mut vectors: BTreeMap<u16, RingVector> = BTreeMap::new();
    let mut waiting: BTreeMap<u16, AwaitingRoster> = BTreeMap::new();
    let mut keys = CollectingKeys::open(session);
    for SessionClient { client, identity, entropy, vector, leaves } in clients {
        if leaves == DropOut::BeforeKeys {
            continue;
        }
        let (state, message) = costs.by_client(|| AwaitingRoster::begin(session, client, identity, entropy))?;
        let message = costs.carry(&message)?;
        costs.by_server(|| keys.receive(message))?;
        waiting.insert(client, state);
        vectors.insert(client, vector);
    }

    let (mut shares, rosters) = costs.by_server(|| keys.close())?;
    let dealing = stay(waiting, &leaves, DropOut::BeforeShares);
    let dealt: BTreeMap<u16, AwaitingShares> =
        costs.exchange(rosters, dealing, |_, state, roster| state.deal(&roster), |message| shares.receive(message))?;

    let (mut inputs, deliveries) = costs.by_server(|| shares.close())?;
    let mut mask = |client: u16, state: AwaitingShares, delivery| {
        let vector = vectors.remove(&client).expect("each client masks once");
        state.mask(&delivery, vector)
    };
    let masking = stay(dealt, &leaves, DropOut::BeforeInput);
    let masked = costs.exchange(deliveries, masking, &mut mask, |message| inputs.receive(&message))?;

    if session.registry().is_none() {
        let (mut reveals, lists) = costs.by_server(|| inputs.close())?;
        let revealing = stay(masked, &leaves, DropOut::BeforeReveal);
        let reveal = |_, state: AwaitingSurvivors, list| Ok(((), state.reveal(&list)?));
        costs.exchange(lists, revealing, reveal, |message| reveals.receive(&message))?;
        let sum = costs.by_server(|| reveals.close())?;
        return Ok(costs.outcome(sum));
    }
    let (mut signatures, lists) = costs.by_server(|| inputs.close_signed())?;
    let signing = stay(masked, &leaves, DropOut::BeforeSignature);
    let sign = |_, state: AwaitingSurvivors, list| state.sign(list);
    let signed = costs.exchange(lists, signing, sign, |message| signatures.receive(&message))?;

    let (mut reveals, proofs) = costs.by_server(|| signatures.close())?;
    let revealing = stay(signed, &leaves, DropOut::BeforeReveal);
    let reveal = |_, state: AwaitingSignatures, proof| Ok(((), state.reveal(&proof)?));
    costs.exchange(proofs, revealing, reveal, |message| reveals.receive(&message))?;
    let sum = costs.by_server(|| reveals.close())?;
    Ok(costs.outcome(sum))
}

/// Those who do not leave here, or left before.
fn stay<State>(states: BTreeMap<u16, State>, leaves: &BTreeMap<u16, DropOut>, before: DropOut) -> BTreeMap<u16, State> {
    states.into_iter().filter(|(client, _)| leaves.get(client).is_none_or(|leaves| *leaves > before)).collect()
}

impl Costs<'_> {
    fn outcome(self, sum: SecureSum) -> SessionOutcome {
        SessionOutcome { sum, counts: self.counts, clients_time: self.clients, server_time: self.server }
    }
}
