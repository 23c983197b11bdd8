//! What a server or a client may try, and what comes of it.
mod support;

use std::collections::BTreeMap;

use fedeq_secure::client::AwaitingRoster;
use fedeq_secure::server::CollectingKeys;
use fedeq_secure::{
    Entropy, Error, Identity, Registry, RingVector, Session, SessionSettings, SurvivorList, SurvivorSignatures, Trust,
};
use support::{
    At, LENGTH, at_deliveries, at_inputs, at_rosters, entropy, identity, plain, registry, secret, settings, signed, sum, vector,
};

// A server that lies about who dropped out.

#[test]
fn a_client_never_reveals_both_secrets_of_another() {
    let (mut states, server) = at_inputs(&plain(5), &[4]);
    let (_, lists) = server.close().unwrap();
    let honest = lists[0].1.clone();
    assert_eq!((&honest.survivors[..], &honest.dropped[..]), (&[0, 1, 2, 3][..], &[4][..]));
    // By one list: refused. By a second one: the first answer consumed the state, so that this does not compile.
    let both = SurvivorList { dropped: vec![3, 4], ..honest.clone() };
    assert_eq!(states.remove(&0).unwrap().reveal(&both).err(), Some(Error::BothSecrets(3)));
    let revealed = states.remove(&1).unwrap().reveal(&honest).unwrap();
    let of = |shares: &[(u16, [u8; 32])]| shares.iter().map(|(client, _)| *client).collect::<Vec<_>>();
    assert_eq!((of(&revealed.self_masks), of(&revealed.mask_keys)), (vec![0, 1, 2, 3], vec![4]));
}

#[test]
fn lists_that_are_not_those_of_the_dealers_are_refused() {
    let honest = SurvivorList { session: *plain(5).tag(), cohort: 4, survivors: vec![0, 1, 2, 3], dropped: vec![4] };
    let refusal = |list: SurvivorList| at_inputs(&plain(5), &[4]).0.remove(&0).unwrap().reveal(&list).err().unwrap();
    let list = |survivors: &[u16], dropped: &[u16]| SurvivorList {
        cohort: survivors.len() as u16,
        survivors: survivors.to_vec(),
        dropped: dropped.to_vec(),
        ..honest.clone()
    };
    assert_eq!(refusal(list(&[0, 1, 2, 3], &[])), Error::OtherClients(4), "a client is left out");
    assert_eq!(refusal(list(&[0, 1, 2, 3, 9], &[4])), Error::OtherClients(9), "a client is invented");
    assert_eq!(refusal(list(&[1, 2, 3, 4], &[0])), Error::OtherClients(0), "this client is said to have dropped out");
    assert!(matches!(refusal(list(&[0, 1, 2], &[3, 4])), Error::TooFew { present: 3, needed: 4, .. }), "below the threshold");
    assert!(matches!(refusal(list(&[0, 1, 1, 2, 3], &[4])), Error::Duplicate { client: 1, .. }));
    assert!(matches!(refusal(list(&[0, 2, 1, 3], &[4])), Error::Duplicate { client: 1, .. }));
    assert!(matches!(refusal(SurvivorList { cohort: 9, ..honest.clone() }), Error::WrongSize { .. }));
    assert!(matches!(refusal(SurvivorList { session: [0; 32], ..honest.clone() }), Error::OtherSession(_)));
}

#[test]
fn different_lists_for_different_clients_are_caught_by_their_signatures() {
    let (mut states, server) = at_inputs(&signed(6), &[]);
    assert_eq!(signed(6).settings().threshold, 5);
    let (_, lists) = server.close_signed().unwrap();
    let truth = lists[0].1.clone();
    let lie = SurvivorList { cohort: 5, survivors: vec![0, 1, 2, 3, 4], dropped: vec![5], ..truth.clone() };
    // Half of the clients hear that client 5 is there, and half that it is not: the server would get both of its secrets.
    let told = |client: u16| if client < 3 { lie.clone() } else { truth.clone() };
    let mut waiting = BTreeMap::new();
    let mut signatures = Vec::new();
    for client in 0..5 {
        let (state, message) = states.remove(&client).unwrap().sign(told(client)).unwrap();
        waiting.insert(client, state);
        signatures.push((client, message.signature));
    }
    let session = *signed(6).tag();
    let all = SurvivorSignatures { session, signatures: signatures.clone() };
    let alike = SurvivorSignatures { session, signatures: signatures[..3].to_vec() };
    assert_eq!(waiting.remove(&0).unwrap().reveal(&all).err(), Some(Error::BadSignature(3)), "another list was signed");
    assert!(matches!(waiting.remove(&1).unwrap().reveal(&alike).err(), Some(Error::TooFew { present: 3, needed: 5, .. })));
    let twice = SurvivorSignatures { session, signatures: [signatures[0], signatures[0]].to_vec() };
    assert!(matches!(waiting.remove(&2).unwrap().reveal(&twice).err(), Some(Error::Duplicate { client: 0, .. })));
    let foreign = SurvivorSignatures { session, signatures: vec![(17, signatures[0].1)] };
    assert!(matches!(waiting.remove(&3).unwrap().reveal(&foreign).err(), Some(Error::UnknownClient { client: 17, .. })));
    let moved = SurvivorSignatures { session, signatures: vec![(3, signatures[4].1)] };
    assert_eq!(
        waiting.remove(&4).unwrap().reveal(&moved).err(),
        Some(Error::BadSignature(3)),
        "one client's signature for another"
    );
}

#[test]
fn the_signed_and_the_unsigned_ending_are_not_exchanged() {
    let (mut states, server) = at_inputs(&signed(4), &[]);
    let (_, lists) = server.close_signed().unwrap();
    assert!(matches!(states.remove(&0).unwrap().reveal(&lists[0].1).err(), Some(Error::WrongStep(_))));
    assert!(matches!(at_inputs(&signed(4), &[]).1.close().err(), Some(Error::WrongStep(_))));
    let (mut states, server) = at_inputs(&plain(4), &[]);
    let (_, lists) = server.close().unwrap();
    assert!(matches!(states.remove(&0).unwrap().sign(lists[0].1.clone()).err(), Some(Error::WrongStep(_))));
    assert!(matches!(at_inputs(&plain(4), &[]).1.close_signed().err(), Some(Error::WrongStep(_))));
}

// A server that lies about who takes part.

#[test]
fn with_a_registry_a_server_can_neither_invent_clients_nor_exchange_their_keys() {
    let session = signed(4);
    let attack = |change: &dyn Fn(&mut fedeq_secure::KeyRoster)| {
        let At { mut states, mut messages, .. } = at_rosters(&session);
        let mut roster = messages.remove(&0).unwrap();
        change(&mut roster);
        states.remove(&0).unwrap().deal(&roster).err().unwrap()
    };
    // Keys that the server has the secrets of, in the place of client 2's.
    let other = Session::new(SessionSettings { trust: Trust::HonestButCurious, ..session.settings().clone() }).unwrap();
    let (_, own) = AwaitingRoster::begin(&other, 2, Identity::Unsigned, entropy(99)).unwrap();
    assert_eq!(attack(&|roster| roster.keys[2] = own.keys.clone()), Error::BadSignature(2));
    let keep_signature = |roster: &mut fedeq_secure::KeyRoster| {
        let signature = roster.keys[2].signature;
        roster.keys[2] = fedeq_secure::ClientKeys { signature, ..own.keys.clone() };
    };
    assert_eq!(attack(&keep_signature), Error::BadSignature(2));
    // A client that is in no registry.
    let invented = fedeq_secure::ClientKeys { client: 77, ..own.keys.clone() };
    assert_eq!(attack(&|roster| roster.keys[3] = invented.clone()), Error::BadSignature(77));
    // Keys that a client signed for another session.
    let earlier = Session::new(SessionSettings { nonce: [9; 32], ..session.settings().clone() }).unwrap();
    let (_, old) = AwaitingRoster::begin(&earlier, 2, secret(2), entropy(2)).unwrap();
    assert_eq!(attack(&|roster| roster.keys[2] = old.keys.clone()), Error::BadSignature(2));
}

#[test]
fn a_client_is_given_its_own_keys_and_those_of_distinct_others() {
    let session = plain(4);
    let attack = |change: &dyn Fn(&mut fedeq_secure::KeyRoster)| {
        let At { mut states, mut messages, .. } = at_rosters(&session);
        let mut roster = messages.remove(&0).unwrap();
        change(&mut roster);
        states.remove(&0).unwrap().deal(&roster).err().unwrap()
    };
    assert_eq!(attack(&|roster| roster.keys[0].masking = roster.keys[1].masking), Error::BadKey(0));
    assert_eq!(attack(&|roster| roster.keys[2].masking = roster.keys[1].masking), Error::BadKey(2));
    assert_eq!(attack(&|roster| roster.keys[2].sealing = roster.keys[1].masking), Error::BadKey(2));
    assert_eq!(attack(&|roster| roster.keys[2].sealing = [0; 32]), Error::BadKey(2));
    assert_eq!(attack(&|roster| roster.keys[2].masking = [0; 32]), Error::BadKey(2));
    assert_eq!(attack(&|roster| roster.keys[3].client = u16::MAX), Error::BadKey(u16::MAX));
    assert!(matches!(attack(&|roster| roster.keys[1] = roster.keys[2].clone()), Error::Duplicate { client: 2, .. }));
    assert!(matches!(attack(&|roster| roster.keys.truncate(2)), Error::WrongSize { .. }));
    assert!(matches!(
        attack(&|roster| (roster.keys.truncate(2), roster.cohort = 2).0),
        Error::TooFew { present: 2, needed: 3, .. }
    ));
    assert!(matches!(attack(&|roster| roster.session = [0; 32]), Error::OtherSession(_)));
    let fill = |roster: &mut fedeq_secure::KeyRoster| {
        let mut extra = roster.keys[3].clone();
        extra.client = 9;
        roster.keys.push(extra);
        roster.cohort = 5;
    };
    assert!(matches!(attack(&fill), Error::WrongSize { .. }), "more clients than the session has");
}

#[test]
fn deliveries_hold_boxes_of_known_clients_once_each() {
    let session = plain(5);
    let attack = |change: &dyn Fn(&mut fedeq_secure::ShareDelivery)| {
        let At { mut states, mut messages, .. } = at_deliveries(&session);
        let mut delivery = messages.remove(&0).unwrap();
        change(&mut delivery);
        states.remove(&0).unwrap().mask(&delivery, vector(0)).err().unwrap()
    };
    assert!(matches!(attack(&|delivery| delivery.boxes[3].client = 9), Error::UnknownClient { client: 9, .. }));
    assert!(matches!(attack(&|delivery| delivery.boxes[0].client = 0), Error::UnknownClient { client: 0, .. }), "from itself");
    assert!(matches!(attack(&|delivery| delivery.boxes[1].client = 1), Error::Duplicate { client: 1, .. }));
    assert!(matches!(attack(&|delivery| delivery.boxes[1].sealed.push(0)), Error::WrongSize { what: "sealed shares", .. }));
    assert!(matches!(
        attack(&|delivery| (delivery.boxes.truncate(2), delivery.cohort = 3).0),
        Error::TooFew { present: 3, needed: 4, .. }
    ));
    assert!(matches!(attack(&|delivery| delivery.session = [0; 32]), Error::OtherSession(_)));
}

#[test]
fn a_vector_of_another_ring_or_length_is_not_masked() {
    for bad in [RingVector::new(support::BITS, vec![0; LENGTH + 1]), RingVector::new(support::BITS - 1, vec![0; LENGTH])] {
        let At { mut states, messages, .. } = at_deliveries(&plain(4));
        assert!(matches!(states.remove(&0).unwrap().mask(&messages[&0], bad.unwrap()).err(), Some(Error::WrongSize { .. })));
    }
}

// Tampering.

#[test]
fn damaged_boxes_are_noticed_and_named_and_the_sum_is_right_all_the_same() {
    let session = plain(5);
    let At { states, mut server, mut messages } = at_deliveries(&session);
    messages.get_mut(&0).unwrap().boxes[3].sealed[40] ^= 1;
    // Client 2 gets the box that client 1 sealed for client 3.
    let foreign = messages[&3].boxes[1].clone();
    assert_eq!(foreign.client, 1);
    messages.get_mut(&2).unwrap().boxes[1] = foreign;
    let mut waiting = BTreeMap::new();
    for (client, state) in states {
        let (state, message) = state.mask(&messages[&client], vector(client)).unwrap();
        server.receive(&message).unwrap();
        waiting.insert(client, state);
    }
    assert_eq!(server.unreadable().collect::<Vec<_>>(), [(0, 4), (2, 1)]);
    let (mut server, lists) = server.close().unwrap();
    for (client, list) in lists {
        server.receive(&waiting.remove(&client).unwrap().reveal(&list).unwrap()).unwrap();
    }
    assert_eq!(server.close().unwrap().sum, sum(&[0, 1, 2, 3, 4]));
}

/// Reveals of all survivors of a session of six (threshold five), changed.
fn reveals(change: impl Fn(u16, &mut fedeq_secure::RevealedShares)) -> fedeq_secure::Result<fedeq_secure::server::SecureSum> {
    let (mut states, server) = at_inputs(&plain(6), &[]);
    let (mut server, lists) = server.close().unwrap();
    for (client, list) in lists {
        let mut message = states.remove(&client).unwrap().reveal(&list).unwrap();
        change(client, &mut message);
        server.receive(&message)?;
    }
    server.close()
}

#[test]
fn tampered_shares_are_left_out_and_named_until_too_few_are_left() {
    let one = reveals(|client, message| {
        if client == 2 {
            message.self_masks[4].1[0] ^= 1;
            message.self_masks[5].1 = [0xff; 32];
        }
    });
    let one = one.unwrap();
    assert_eq!(one.sum, sum(&[0, 1, 2, 3, 4, 5]));
    assert_eq!(one.unsound, [(2, 4), (2, 5)]);
    let two = reveals(|client, message| {
        if client == 2 || client == 3 {
            message.self_masks[4].1[0] ^= 1;
        }
    });
    assert_eq!(two, Err(Error::Unrecoverable { client: 4, good: 4, needed: 5 }));
}

#[test]
fn shares_that_were_not_asked_for_are_refused() {
    let share = [1; 32];
    let unknown = |client| Err(Error::UnknownClient { kind: "revealed shares", client });
    assert_eq!(reveals(|_, message| message.mask_keys.push((3, share))), unknown(3), "a survivor's masking key");
    assert_eq!(reveals(|_, message| message.self_masks.push((9, share))), unknown(9));
    assert_eq!(reveals(|_, message| message.client = 9), unknown(9));
    assert_eq!(reveals(|_, message| message.client = 0), Err(Error::Duplicate { kind: "revealed shares", client: 0 }));
    assert_eq!(
        reveals(|_, message| message.self_masks.push((5, share))),
        Err(Error::Duplicate { kind: "revealed shares", client: 5 })
    );
    assert_eq!(reveals(|_, message| message.session = [0; 32]), Err(Error::OtherSession("revealed shares")));
}

#[test]
fn dealt_shares_are_for_all_neighbours_and_fit_the_threshold() {
    let session = plain(4);
    let refusal = |change: &dyn Fn(&mut fedeq_secure::DealtShares)| {
        let At { mut states, mut server, messages } = at_rosters(&session);
        let (_, mut message) = states.remove(&1).unwrap().deal(&messages[&1]).unwrap();
        change(&mut message);
        server.receive(message).err().unwrap()
    };
    assert!(matches!(refusal(&|message| drop(message.boxes.pop())), Error::WrongSize { found: 2, expected: 3, .. }));
    assert!(matches!(refusal(&|message| message.boxes[2].client = 9), Error::UnknownClient { client: 9, .. }));
    assert!(matches!(refusal(&|message| message.boxes[1].client = 0), Error::Duplicate { client: 0, .. }));
    assert!(matches!(refusal(&|message| message.boxes[1].sealed.truncate(79)), Error::WrongSize { what: "sealed shares", .. }));
    assert!(matches!(refusal(&|message| message.mask_key.truncate(2)), Error::WrongSize { what: "commitment", .. }));
    assert!(matches!(refusal(&|message| message.self_mask[1] = [0xff; 32]), Error::BadKey(1)));
    assert!(matches!(refusal(&|message| message.client = 9), Error::UnknownClient { client: 9, .. }));
    assert!(matches!(refusal(&|message| message.session = [0; 32]), Error::OtherSession(_)));
}

// Replays.

#[test]
fn what_was_sealed_in_another_session_cannot_be_read_in_this_one() {
    let session = plain(4);
    let other = Session::new(SessionSettings { nonce: [2; 32], ..settings(4, Trust::HonestButCurious) }).unwrap();
    let old = at_deliveries(&other).messages.remove(&0).unwrap();
    let At { mut states, messages, .. } = at_deliveries(&session);
    assert!(matches!(states.remove(&0).unwrap().mask(&old, vector(0)).err(), Some(Error::OtherSession(_))));
    // Also under this session's name.
    let mut renamed = old;
    renamed.session = *session.tag();
    let At { mut states, .. } = at_deliveries(&session);
    assert_eq!(states.remove(&0).unwrap().mask(&renamed, vector(0)).unwrap().1.unreadable, [1, 2, 3]);
    assert_ne!(messages[&0], renamed);
}

#[test]
fn no_client_answers_twice_and_none_from_outside_answers() {
    let session = plain(4);
    let mut keys = CollectingKeys::open(&session);
    let (_, message) = AwaitingRoster::begin(&session, 0, Identity::Unsigned, entropy(0)).unwrap();
    keys.receive(message.clone()).unwrap();
    assert!(matches!(keys.receive(message.clone()), Err(Error::Duplicate { client: 0, .. })));
    let mut copied = message.clone();
    copied.keys.client = 1;
    assert_eq!(keys.receive(copied), Err(Error::BadKey(1)), "another client's keys");
    let mut weak = AwaitingRoster::begin(&session, 1, Identity::Unsigned, entropy(1)).unwrap().1;
    weak.keys.sealing = [0; 32];
    assert_eq!(keys.receive(weak), Err(Error::BadKey(1)));
    for client in 1..4 {
        keys.receive(AwaitingRoster::begin(&session, client, Identity::Unsigned, entropy(client)).unwrap().1).unwrap();
    }
    let fifth = AwaitingRoster::begin(&session, 4, Identity::Unsigned, entropy(4)).unwrap().1;
    assert!(matches!(keys.receive(fifth), Err(Error::UnknownClient { client: 4, .. })));

    let At { mut states, mut server, messages } = at_deliveries(&session);
    let (_, input) = states.remove(&0).unwrap().mask(&messages[&0], vector(0)).unwrap();
    server.receive(&input).unwrap();
    assert!(matches!(server.receive(&input), Err(Error::Duplicate { client: 0, .. })));
    let outside = fedeq_secure::MaskedInput { client: 9, ..input.clone() };
    assert!(matches!(server.receive(&outside), Err(Error::UnknownClient { client: 9, .. })));
    let mut short = fedeq_secure::MaskedInput { client: 1, ..input };
    short.vector.pop();
    assert!(matches!(server.receive(&short), Err(Error::WrongSize { what: "packed vector", .. })));
    assert_eq!(server.received().collect::<Vec<_>>(), [0]);
}

// Settings.

#[test]
fn sessions_that_would_protect_nothing_are_refused() {
    let good = settings(10, Trust::HonestButCurious);
    let refused = |change: &dyn Fn(&mut SessionSettings)| {
        let mut settings = good.clone();
        change(&mut settings);
        match Session::new(settings).err().unwrap() {
            Error::Setting { setting, .. } => setting,
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(&|settings| settings.clients = 2), "clients");
    assert_eq!(refused(&|settings| settings.minimum = 2), "minimum");
    assert_eq!(refused(&|settings| settings.minimum = 11), "minimum");
    assert_eq!(refused(&|settings| settings.threshold = 5), "threshold", "two halves could open both secrets of one client");
    assert_eq!(refused(&|settings| settings.threshold = 11), "threshold");
    assert_eq!(refused(&|settings| settings.length = 0), "length");
    assert_eq!(refused(&|settings| settings.length = u32::MAX), "length");
    assert_eq!(refused(&|settings| settings.ring_bits = 1), "ring_bits");
    assert_eq!(refused(&|settings| settings.ring_bits = 33), "ring_bits");
    assert_eq!(refused(&|settings| settings.neighbours = Some(3)), "neighbours");
    assert_eq!(refused(&|settings| settings.neighbours = Some(10)), "neighbours");
    assert_eq!(refused(&|settings| (settings.neighbours, settings.threshold) = (Some(4), 2)), "threshold");
    let registered = |settings: &mut SessionSettings| {
        settings.trust = Trust::Registry(registry(10));
        (settings.neighbours, settings.threshold) = (Some(4), 3);
    };
    assert_eq!(refused(&registered), "neighbours");
    assert_eq!(refused(&|settings| settings.trust = Trust::Registry(registry(2))), "trust");
}

#[test]
fn two_clients_are_never_summed() {
    let session = plain(3);
    assert_eq!(session.settings().threshold, 3);
    let mut keys = CollectingKeys::open(&session);
    for client in 0..2 {
        keys.receive(AwaitingRoster::begin(&session, client, Identity::Unsigned, entropy(client)).unwrap().1).unwrap();
    }
    assert!(matches!(keys.close().err(), Some(Error::TooFew { present: 2, needed: 3, .. })));
}

#[test]
fn an_identity_must_be_the_one_the_session_asks_for() {
    let begin =
        |session: &Session, client, identity| AwaitingRoster::begin(session, client, identity, Entropy::fixed([0; 32])).err();
    assert_eq!(begin(&signed(4), 0, Identity::Unsigned), Some(Error::WrongIdentity(0)));
    assert_eq!(begin(&signed(4), 0, secret(1)), Some(Error::WrongIdentity(0)));
    assert_eq!(begin(&signed(4), 9, secret(9)), Some(Error::WrongIdentity(9)));
    assert_eq!(begin(&plain(4), 0, secret(0)), Some(Error::WrongIdentity(0)));
    assert_eq!(begin(&plain(4), 0, identity(&plain(4), 0)), None);
    assert!(begin(&plain(4), u16::MAX, Identity::Unsigned).is_some());

    let key = secret(0).public_key().unwrap();
    assert!(Registry::new(BTreeMap::from([(0, key), (1, key)])).is_err(), "one key for two clients");
    let mut identity_point = [0; 32];
    identity_point[0] = 1;
    assert_eq!(Registry::new(BTreeMap::from([(5, identity_point)])).err(), Some(Error::BadKey(5)), "a weak key");
}
