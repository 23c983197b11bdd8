//! What `fuzz/` starts its search from: messages of a real session, one of each kind.
#[path = "../../../fuzz/read/secure.rs"]
mod secure;
mod support;

use std::path::Path;

use fedeq_secure::client::AwaitingRoster;
use fedeq_secure::{Identity, Session, WireMessage};
use secure::{CLIENTS, is_taken};
use support::{At, at_deliveries, at_inputs, at_rosters, entropy, plain, signed, vector};

/// Kind and contents: the session's tag between the two is the target's to give.
fn seed<Message: WireMessage>(message: &Message, session: &Session) -> Vec<u8> {
    let bytes = message.encode();
    let (kind, contents) = bytes.split_at(1);
    [kind, contents.strip_prefix(session.tag().as_slice()).expect("the tag comes first")].concat()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let (session, signing) = (plain(CLIENTS), signed(CLIENTS));
    let keys = AwaitingRoster::begin(&session, 1, Identity::Unsigned, entropy(1)).unwrap().1;
    let At { mut states, messages: rosters, .. } = at_rosters(&session);
    let dealt = states.remove(&1).unwrap().deal(&rosters[&1]).unwrap().1;
    let At { mut states, messages: deliveries, .. } = at_deliveries(&session);
    let input = states.remove(&1).unwrap().mask(&deliveries[&1], vector(1)).unwrap().1;
    let (mut states, server) = at_inputs(&session, &[]);
    let lists = server.close().unwrap().1;
    let shares = states.remove(&1).unwrap().reveal(&lists[1].1).unwrap();
    let (mut states, server) = at_inputs(&signing, &[]);
    let (mut server, signed_lists) = server.close_signed().unwrap();
    let mut signatures = Vec::new();
    for (client, list) in signed_lists {
        signatures.push(states.remove(&client).unwrap().sign(list).unwrap().1);
        server.receive(signatures.last().unwrap()).unwrap();
    }
    let proofs = server.close().unwrap().1;
    vec![
        ("public_keys", seed(&keys, &session)),
        ("key_roster", seed(&rosters[&1], &session)),
        ("dealt_shares", seed(&dealt, &session)),
        ("share_delivery", seed(&deliveries[&1], &session)),
        ("masked_input", seed(&input, &session)),
        ("survivor_list", seed(&lists[1].1, &session)),
        ("survivor_signature", seed(&signatures[0], &signing)),
        ("survivor_signatures", seed(&proofs[0].1, &signing)),
        ("revealed_shares", seed(&shares, &session)),
    ]
}

#[test]
fn what_fuzzing_starts_from_is_a_message_of_each_kind_that_is_taken() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/secure_message");
    for (name, bytes) in seeds() {
        assert!(is_taken(&bytes), "{name}");
        let file = folder.join(name);
        if std::env::var_os("UPDATE_FUZZ_SEEDS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "`{name}` is another message now: UPDATE_FUZZ_SEEDS=1 writes it");
    }
}
