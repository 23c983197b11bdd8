//! Sessions brought to the step that a test is about.
#![allow(dead_code, unreachable_pub)]
use std::collections::BTreeMap;

use fedeq_secure::client::{AwaitingRoster, AwaitingShares, AwaitingSurvivors};
use fedeq_secure::server::{CollectingInputs, CollectingKeys, CollectingShares};
use fedeq_secure::{Entropy, Identity, KeyRoster, Registry, RingVector, Session, SessionSettings, ShareDelivery, Trust};

pub const LENGTH: usize = 9;
pub const BITS: u8 = 20;

pub fn settings(clients: u16, trust: Trust) -> SessionSettings {
    SessionSettings {
        nonce: [1; 32],
        clients,
        threshold: SessionSettings::usual_threshold(clients),
        minimum: 3,
        length: LENGTH as u32,
        ring_bits: BITS,
        neighbours: None,
        trust,
    }
}

pub fn plain(clients: u16) -> Session {
    Session::new(settings(clients, Trust::HonestButCurious)).unwrap()
}

pub fn signed(clients: u16) -> Session {
    Session::new(settings(clients, Trust::Registry(registry(clients)))).unwrap()
}

pub fn registry(clients: u16) -> Registry {
    Registry::new((0..clients).map(|client| (client, secret(client).public_key().unwrap())).collect()).unwrap()
}

pub fn secret(client: u16) -> Identity {
    Identity::signed(&[client as u8 + 1; 32])
}

pub fn identity(session: &Session, client: u16) -> Identity {
    match session.settings().trust {
        Trust::HonestButCurious => Identity::Unsigned,
        Trust::Registry(_) => secret(client),
    }
}

pub fn entropy(client: u16) -> Entropy {
    Entropy::fixed([client as u8; 32])
}

pub fn vector(client: u16) -> RingVector {
    RingVector::new(BITS, (0..LENGTH as u32).map(|index| 1000 * u32::from(client) + index).collect()).unwrap()
}

pub fn sum(clients: &[u16]) -> RingVector {
    let mut sum = RingVector::new(BITS, vec![0; LENGTH]).unwrap();
    clients.iter().for_each(|client| sum.add(&vector(*client)).unwrap());
    sum
}

/// A session whose clients wait for a message, which the server has ready.
pub struct At<State, Server, Message> {
    pub states: BTreeMap<u16, State>,
    pub server: Server,
    pub messages: BTreeMap<u16, Message>,
}

pub fn at_rosters(session: &Session) -> At<AwaitingRoster, CollectingShares, KeyRoster> {
    let mut keys = CollectingKeys::open(session);
    let mut states = BTreeMap::new();
    for client in 0..session.settings().clients {
        let (state, message) = AwaitingRoster::begin(session, client, identity(session, client), entropy(client)).unwrap();
        keys.receive(message).unwrap();
        states.insert(client, state);
    }
    let (server, messages) = keys.close().unwrap();
    At { states, server, messages: messages.into_iter().collect() }
}

pub fn at_deliveries(session: &Session) -> At<AwaitingShares, CollectingInputs, ShareDelivery> {
    let At { states, mut server, messages } = at_rosters(session);
    let mut next = BTreeMap::new();
    for (client, state) in states {
        let (state, message) = state.deal(&messages[&client]).unwrap();
        server.receive(message).unwrap();
        next.insert(client, state);
    }
    let (server, messages) = server.close().unwrap();
    At { states: next, server, messages: messages.into_iter().collect() }
}

/// All clients but some sent their vectors.
pub fn at_inputs(session: &Session, dropped: &[u16]) -> (BTreeMap<u16, AwaitingSurvivors>, CollectingInputs) {
    let At { states, mut server, messages } = at_deliveries(session);
    let mut next = BTreeMap::new();
    for (client, state) in states.into_iter().filter(|(client, _)| !dropped.contains(client)) {
        let (state, message) = state.mask(&messages[&client], vector(client)).unwrap();
        server.receive(&message).unwrap();
        next.insert(client, state);
    }
    (next, server)
}
