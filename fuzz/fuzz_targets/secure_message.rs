#![no_main]
#[path = "../../crates/secure/tests/support/mod.rs"]
mod support;

use fedeq_secure::client::AwaitingRoster;
use fedeq_secure::server::CollectingKeys;
use fedeq_secure::{
    DealtShares, Identity, KeyRoster, MaskedInput, PublicKeys, RevealedShares, Session, ShareDelivery, SurvivorList, SurvivorSignature,
    SurvivorSignatures, WireMessage,
};
use libfuzzer_sys::fuzz_target;
use support::{At, at_deliveries, at_inputs, at_rosters, entropy, plain, signed, vector};

/// The bytes under the session's name, so that they are read at all.
fn read<Message: WireMessage>(session: &Session, bytes: &[u8]) -> Option<Message> {
    Message::decode(&[&[Message::KIND as u8], session.tag().as_slice(), bytes].concat(), session).ok()
}

// The first byte says which message the others are; whoever waits for it takes or refuses it.
fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let (plain, signed) = (plain(3), signed(3));
    match kind % 9 {
        0 => {
            let _ = read::<PublicKeys>(&plain, bytes).map(|message| CollectingKeys::open(&plain).receive(message));
            let _ = read::<PublicKeys>(&signed, bytes).map(|message| CollectingKeys::open(&signed).receive(message));
        }
        1 => {
            let Some(roster) = read::<KeyRoster>(&plain, bytes) else { return };
            let (state, _) = AwaitingRoster::begin(&plain, 1, Identity::Unsigned, entropy(1)).expect("a client");
            let _ = state.deal(&roster);
        }
        2 => {
            let Some(dealt) = read::<DealtShares>(&plain, bytes) else { return };
            let _ = at_rosters(&plain).server.receive(dealt);
        }
        3 => {
            let Some(delivery) = read::<ShareDelivery>(&plain, bytes) else { return };
            let At { mut states, .. } = at_deliveries(&plain);
            let _ = states.remove(&1).expect("a client").mask(&delivery, vector(1));
        }
        4 => {
            let Some(input) = read::<MaskedInput>(&plain, bytes) else { return };
            let _ = at_deliveries(&plain).server.receive(&input);
        }
        5 => {
            let Some(list) = read::<SurvivorList>(&plain, bytes) else { return };
            let _ = at_inputs(&plain, &[]).0.remove(&1).expect("a client").reveal(&list);
        }
        6 => {
            let Some(signature) = read::<SurvivorSignature>(&signed, bytes) else { return };
            let (mut server, _) = at_inputs(&signed, &[]).1.close_signed().expect("all are there");
            assert!(server.receive(&signature).is_err(), "signed without the key");
        }
        7 => {
            let Some(signatures) = read::<SurvivorSignatures>(&signed, bytes) else { return };
            let (mut states, server) = at_inputs(&signed, &[]);
            let (_, mut lists) = server.close_signed().expect("all are there");
            let (client, list) = lists.remove(0);
            let (state, _) = states.remove(&client).expect("a client").sign(list).expect("a true list");
            assert!(state.reveal(&signatures).is_err(), "revealed without signatures");
        }
        _ => {
            let Some(shares) = read::<RevealedShares>(&plain, bytes) else { return };
            let (mut states, server) = at_inputs(&plain, &[]);
            let (mut server, lists) = server.close().expect("all are there");
            let _ = server.receive(&shares);
            for (client, list) in lists {
                let _ = server.receive(&states.remove(&client).expect("a client").reveal(&list).expect("a true list"));
            }
            let _ = server.close();
        }
    }
});
