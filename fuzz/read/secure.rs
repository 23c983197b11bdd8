//! A message of a secure aggregation, given to whoever waits for it.
#![allow(dead_code, unreachable_pub, reason = "a target and a test each use a part")]
use fedeq_secure::client::AwaitingRoster;
use fedeq_secure::server::CollectingKeys;
use fedeq_secure::{
    DealtShares, Identity, KeyRoster, MaskedInput, PublicKeys, RevealedShares, Session, ShareDelivery, SurvivorList,
    SurvivorSignature, SurvivorSignatures, WireMessage,
};

use crate::support::{At, at_deliveries, at_inputs, at_rosters, entropy, plain, signed, vector};

/// So many clients take part.
pub const CLIENTS: u16 = 3;

/// The bytes under the session's name, so that they are read at all.
fn read<Message: WireMessage>(session: &Session, bytes: &[u8]) -> Option<Message> {
    Message::decode(&[&[Message::KIND as u8], session.tag().as_slice(), bytes].concat(), session).ok()
}

/// Whether a message is read and taken. The first byte says which message the others are.
pub fn is_taken(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else { return false };
    let (plain, signed) = (plain(CLIENTS), signed(CLIENTS));
    match kind % 9 {
        0 => {
            let taken = |session: &Session| {
                read::<PublicKeys>(session, bytes).is_some_and(|message| CollectingKeys::open(session).receive(message).is_ok())
            };
            taken(&plain) | taken(&signed)
        }
        1 => {
            let Some(roster) = read::<KeyRoster>(&plain, bytes) else { return false };
            let (state, _) = AwaitingRoster::begin(&plain, 1, Identity::Unsigned, entropy(1)).expect("a client");
            state.deal(&roster).is_ok()
        }
        2 => read::<DealtShares>(&plain, bytes).is_some_and(|dealt| at_rosters(&plain).server.receive(dealt).is_ok()),
        3 => {
            let Some(delivery) = read::<ShareDelivery>(&plain, bytes) else { return false };
            let At { mut states, .. } = at_deliveries(&plain);
            states.remove(&1).expect("a client").mask(&delivery, vector(1)).is_ok()
        }
        4 => read::<MaskedInput>(&plain, bytes).is_some_and(|input| at_deliveries(&plain).server.receive(&input).is_ok()),
        5 => {
            let Some(list) = read::<SurvivorList>(&plain, bytes) else { return false };
            at_inputs(&plain, &[]).0.remove(&1).expect("a client").reveal(&list).is_ok()
        }
        6 => {
            let Some(signature) = read::<SurvivorSignature>(&signed, bytes) else { return false };
            let (mut states, server) = at_inputs(&signed, &[]);
            let (mut server, lists) = server.close_signed().expect("all are there");
            let is_taken = server.receive(&signature).is_ok();
            if is_taken {
                let (_, list) = lists.into_iter().find(|(client, _)| *client == signature.client).expect("a client");
                let (_, own) = states.remove(&signature.client).expect("a client").sign(list).expect("a true list");
                assert_eq!(signature, own, "signed without the key");
            }
            is_taken
        }
        7 => {
            let Some(signatures) = read::<SurvivorSignatures>(&signed, bytes) else { return false };
            let (mut states, server) = at_inputs(&signed, &[]);
            let (_, lists) = server.close_signed().expect("all are there");
            let signs = |(client, list): (u16, _)| states.remove(&client).expect("a client").sign(list).expect("a true list");
            let (waiting, own): (Vec<_>, Vec<_>) = lists.into_iter().map(signs).unzip();
            let is_taken = waiting.into_iter().next().expect("the first").reveal(&signatures).is_ok();
            let own: Vec<_> = own.into_iter().map(|message| (message.client, message.signature)).collect();
            assert!(!is_taken || signatures.signatures == own, "revealed without signatures");
            is_taken
        }
        _ => {
            let Some(shares) = read::<RevealedShares>(&plain, bytes) else { return false };
            let (mut states, server) = at_inputs(&plain, &[]);
            let (mut server, lists) = server.close().expect("all are there");
            let is_taken = server.receive(&shares).is_ok();
            for (client, list) in lists {
                let _ = server.receive(&states.remove(&client).expect("a client").reveal(&list).expect("a true list"));
            }
            if let Ok(sum) = server.close() {
                assert_eq!(sum.sum, crate::support::sum(&[0, 1, 2]), "a sum that is had is the sum");
            }
            is_taken
        }
    }
}
