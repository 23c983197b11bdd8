//! Bytes from outside: read, or refused within their memory.
mod support;

use fedeq_secure::client::AwaitingRoster;
use fedeq_secure::server::CollectingKeys;
use fedeq_secure::{
    DealtShares, Error, Identity, KeyRoster, MaskedInput, PublicKeys, RevealedShares, Session, ShareDelivery, SurvivorList,
    SurvivorSignature, SurvivorSignatures, WireMessage,
};
use proptest::prelude::*;
use support::{At, at_deliveries, at_inputs, at_rosters, entropy, plain, signed, vector};

/// One message of each kind, as a session of four sends it.
fn messages(session: &Session) -> Vec<Vec<u8>> {
    let keys = AwaitingRoster::begin(session, 1, support::identity(session, 1), entropy(1)).unwrap().1.encode();
    let At { mut states, messages: rosters, .. } = at_rosters(session);
    let dealt = states.remove(&1).unwrap().deal(&rosters[&1]).unwrap().1.encode();
    let At { mut states, messages: deliveries, .. } = at_deliveries(session);
    let input = states.remove(&1).unwrap().mask(&deliveries[&1], vector(1)).unwrap().1.encode();
    let mut all = vec![keys, rosters[&1].encode(), dealt, deliveries[&1].encode(), input];
    let (mut states, server) = at_inputs(session, &[0]);
    if session.settings().trust == fedeq_secure::Trust::HonestButCurious {
        let (_, lists) = server.close().unwrap();
        all.push(lists[0].1.encode());
        all.push(states.remove(&1).unwrap().reveal(&lists[0].1).unwrap().encode());
        return all;
    }
    let (mut server, lists) = server.close_signed().unwrap();
    all.push(lists[0].1.encode());
    let mut waiting = None;
    for (client, list) in lists {
        let (state, message) = states.remove(&client).unwrap().sign(list).unwrap();
        server.receive(&message).unwrap();
        all.push(message.encode());
        waiting = Some(state);
    }
    let (_, proofs) = server.close().unwrap();
    all.push(proofs[0].1.encode());
    all.push(waiting.unwrap().reveal(&proofs[0].1).unwrap().encode());
    all
}

/// Decodes bytes as every kind of message; whatever is read is written again as it was meant.
fn read_all(bytes: &[u8], session: &Session) -> usize {
    fn read<Message: WireMessage + PartialEq + std::fmt::Debug>(bytes: &[u8], session: &Session) -> usize {
        let Ok(message) = Message::decode(bytes, session) else { return 0 };
        assert_eq!(Message::decode(&message.encode(), session).as_ref(), Ok(&message));
        1
    }
    read::<PublicKeys>(bytes, session)
        + read::<KeyRoster>(bytes, session)
        + read::<DealtShares>(bytes, session)
        + read::<ShareDelivery>(bytes, session)
        + read::<MaskedInput>(bytes, session)
        + read::<SurvivorList>(bytes, session)
        + read::<SurvivorSignature>(bytes, session)
        + read::<SurvivorSignatures>(bytes, session)
        + read::<RevealedShares>(bytes, session)
}

#[test]
fn every_message_is_read_as_its_kind_and_no_other_and_not_in_another_session() {
    for session in [plain(4), signed(4)] {
        for bytes in messages(&session) {
            assert_eq!(read_all(&bytes, &session), 1);
            assert_eq!(read_all(&bytes, &plain(5)), 0);
            for cut in 0..bytes.len() {
                assert_eq!(read_all(&bytes[..cut], &session), 0, "{cut} of {} bytes", bytes.len());
            }
            assert_eq!(read_all(&[bytes.as_slice(), &[0]].concat(), &session), 0, "a byte too many");
        }
    }
}

#[test]
fn long_messages_are_refused_before_they_are_read() {
    let session = plain(4);
    let bytes = vec![0; 1 << 20];
    assert!(matches!(PublicKeys::decode(&bytes, &session), Err(Error::TooLong { bytes: 1_048_576, .. })));
    let mut claim = vec![4];
    claim.extend_from_slice(session.tag());
    // Client 0, nothing unreadable, and a vector of 2^32 - 1 bytes that is not there.
    claim.extend_from_slice(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(MaskedInput::decode(&claim, &session), Err(Error::Malformed("masked input")));
    let mut claim = vec![1];
    claim.extend_from_slice(session.tag());
    claim.extend_from_slice(&[4, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(KeyRoster::decode(&claim, &session), Err(Error::Malformed("roster of keys")));
}

proptest! {
    #[test]
    fn random_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..9) {
        let session = plain(4);
        read_all(&bytes, &session);
        read_all(&[&[kind], session.tag().as_slice(), &bytes].concat(), &session);
    }

    #[test]
    fn a_server_takes_or_refuses_damaged_keys(place in 33usize..99, bit in 0u8..8) {
        let session = plain(4);
        let mut bytes = AwaitingRoster::begin(&session, 1, Identity::Unsigned, entropy(1)).unwrap().1.encode();
        bytes[place] ^= 1 << bit;
        if let Ok(message) = PublicKeys::decode(&bytes, &session) {
            let _ = CollectingKeys::open(&session).receive(message);
        }
    }
}
