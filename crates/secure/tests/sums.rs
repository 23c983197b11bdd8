//! The sum of the survivors is exact, whoever drops out when.
mod support;

use std::collections::BTreeSet;

use fedeq_secure::in_memory::{DropOut, SessionClient, SessionOutcome, run};
use fedeq_secure::{Entropy, Error, Identity, MessageCounts, MessageKind, RingVector, Session, SessionSettings, Trust};
use proptest::prelude::*;
use support::{BITS, LENGTH, entropy, identity, plain, registry, settings, signed, sum, vector};

fn play(session: &Session, leaves: &[DropOut]) -> fedeq_secure::Result<SessionOutcome> {
    let client = |(client, leaves): (usize, &DropOut)| {
        let client = client as u16;
        SessionClient {
            client,
            identity: identity(session, client),
            entropy: entropy(client),
            vector: vector(client),
            leaves: *leaves,
        }
    };
    run(session, leaves.iter().enumerate().map(client).collect())
}

/// Checks a session against what its drop-outs allow.
fn assert_sum_or_refusal(session: &Session, leaves: &[DropOut]) {
    let left = |after: DropOut| -> Vec<u16> {
        (0u16..).zip(leaves).filter(|(_, leaves)| **leaves > after).map(|(client, _)| client).collect()
    };
    let (survivors, answering) = (left(DropOut::BeforeInput), left(DropOut::BeforeReveal));
    let needed = usize::from(session.settings().threshold.max(session.settings().minimum));
    match play(session, leaves) {
        Ok(outcome) => {
            assert!(answering.len() >= needed);
            assert_eq!(outcome.sum.survivors, survivors);
            assert_eq!(outcome.sum.sum, sum(&survivors));
            let dealt = left(DropOut::BeforeShares);
            assert_eq!(outcome.sum.dropped, dealt.into_iter().filter(|client| !survivors.contains(client)).collect::<Vec<_>>());
        }
        Err(Error::TooFew { needed: asked, .. }) => assert!(asked == needed && answering.len() < needed),
        Err(other) => panic!("{other}"),
    }
}

fn drop_outs(clients: usize) -> impl Strategy<Value = Vec<DropOut>> {
    use DropOut::*;
    let one = prop_oneof![
        6 => Just(Never), 1 => Just(BeforeKeys), 1 => Just(BeforeShares), 1 => Just(BeforeInput), 1 => Just(BeforeSignature),
        1 => Just(BeforeReveal),
    ];
    prop::collection::vec(one, clients)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_sum_of_survivors_is_exact_or_refused(leaves in drop_outs(9)) {
        // Without a registry no client is asked for a signature.
        let leaves: Vec<_> = leaves.into_iter().map(|leaves| if leaves == DropOut::BeforeSignature { DropOut::BeforeReveal } else { leaves }).collect();
        assert_sum_or_refusal(&plain(9), &leaves);
    }

    #[test]
    fn the_signed_sum_of_survivors_is_exact_or_refused(leaves in drop_outs(7)) {
        assert_sum_or_refusal(&signed(7), &leaves);
    }

    #[test]
    fn neighbourhoods_give_the_same_sum(dropped in prop::collection::btree_set(0u16..16, 0..3)) {
        let session = sparse(16, 8, 5);
        let leaves: Vec<_> =
            (0..16).map(|client| if dropped.contains(&client) { DropOut::BeforeInput } else { DropOut::Never }).collect();
        let outcome = play(&session, &leaves).unwrap();
        let survivors: Vec<u16> = (0..16).filter(|client| !dropped.contains(client)).collect();
        prop_assert_eq!(outcome.sum.sum, sum(&survivors));
    }

    #[test]
    fn rings_of_every_size_give_exact_sums(bits in 2u8..=32, words in prop::collection::vec(any::<[u32; 3]>(), 3)) {
        let session = Session::new(SessionSettings { length: 3, ring_bits: bits, ..settings(3, Trust::HonestButCurious) }).unwrap();
        let ring = |words: &[u32; 3]| RingVector::new(bits, words.iter().map(|word| word >> (32 - bits)).collect()).unwrap();
        let client = |(client, words): (u16, &[u32; 3])| SessionClient {
            client, identity: Identity::Unsigned, entropy: entropy(client), vector: ring(words), leaves: DropOut::Never,
        };
        let outcome = run(&session, (0u16..).zip(&words).map(client).collect()).unwrap();
        for (index, value) in outcome.sum.sum.values().enumerate() {
            let expected = words.iter().map(|words| u64::from(words[index] >> (32 - bits))).sum::<u64>() % (1 << bits);
            prop_assert_eq!(u64::from(value), expected);
        }
    }
}

fn sparse(clients: u16, neighbours: u16, threshold: u16) -> Session {
    Session::new(SessionSettings { neighbours: Some(neighbours), threshold, ..settings(clients, Trust::HonestButCurious) })
        .unwrap()
}

#[test]
fn each_moment_to_drop_out_is_borne_or_refused_as_the_threshold_says() {
    use DropOut::*;
    for session in [plain(5), signed(5)] {
        for leaves in [BeforeKeys, BeforeShares, BeforeInput, BeforeReveal] {
            assert_eq!(session.settings().threshold, 4);
            assert_sum_or_refusal(&session, &[leaves, Never, Never, Never, Never]);
            assert!(matches!(
                play(&session, &[leaves, Never, leaves, Never, Never]),
                Err(Error::TooFew { present: 3, needed: 4, .. })
            ));
        }
    }
}

#[test]
fn survivors_whose_neighbourhoods_fall_apart_are_refused() {
    let session = sparse(12, 2, 2);
    let refused = (0u16..12).flat_map(|one| (0..one).map(move |two| (one, two))).filter(|(one, two)| {
        let leaves: Vec<_> =
            (0..12).map(|client| if client == *one || client == *two { DropOut::BeforeInput } else { DropOut::Never }).collect();
        // Where one piece is left, it is too small a neighbourhood for the shares of those who are gone.
        match play(&session, &leaves).unwrap_err() {
            Error::Disconnected => true,
            Error::Unrecoverable { good: 1, needed: 2, .. } => false,
            other => panic!("{other}"),
        }
    });
    // On a circle two gaps leave one piece only where they are side by side.
    assert_eq!(refused.count(), 12 * 11 / 2 - 12);
}

#[test]
fn bytes_are_known_without_running_the_protocol() {
    for session in [plain(6), signed(6), sparse(12, 4, 3)] {
        let clients = session.settings().clients;
        let outcome = play(&session, &vec![DropOut::Never; clients.into()]).unwrap();
        let expected = MessageCounts::without_drop_outs(&session, &(0..clients).collect::<BTreeSet<_>>());
        for (kind, count) in outcome.counts.kinds() {
            let of_kind = expected.values().flat_map(MessageCounts::kinds).filter(|(other, _)| *other == kind);
            let (messages, bytes) =
                of_kind.fold((0, 0), |(messages, bytes), (_, count)| (messages + count.messages, bytes + count.bytes));
            assert_eq!((count.messages, count.bytes), (messages, bytes), "{kind:?}");
        }
        let kinds = outcome.counts.kinds().count();
        assert_eq!(kinds, if matches!(session.settings().trust, Trust::Registry(_)) { 9 } else { 7 });
        let masked = outcome.counts.kinds().find(|(kind, _)| *kind == MessageKind::MaskedInput).unwrap().1;
        assert!(masked.bytes > u64::from(clients) * RingVector::packed_len(BITS, LENGTH) as u64);
    }
}

/// The bytes of masked vectors of all-zero inputs, for one client and many sessions.
fn masked(nonces: impl Iterator<Item = u8>) -> Vec<Vec<u8>> {
    let masked = |nonce| {
        let settings =
            SessionSettings { nonce: [nonce; 32], length: 20_000, ring_bits: 32, ..settings(3, Trust::HonestButCurious) };
        let session = Session::new(settings).unwrap();
        let support::At { mut states, messages, .. } = support::at_deliveries(&session);
        let zero = RingVector::new(32, vec![0; 20_000]).unwrap();
        states.remove(&1).unwrap().mask(&messages[&1], zero).unwrap().1.vector
    };
    nonces.map(masked).collect()
}

/// Chi-squared with 255 degrees of freedom has mean 255 and deviation 22.6: seven deviations are never reached by chance.
#[test]
fn masked_vectors_look_uniform_and_differ_between_sessions() {
    let sessions = masked(0..3);
    let chi_squared = |bytes: &[u8]| {
        let mut counts = [0u32; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        let expected = bytes.len() as f64 / 256.0;
        counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum::<f64>()
    };
    for bytes in &sessions {
        assert!((chi_squared(bytes) - 255.0).abs() < 7.0 * 22.6, "{}", chi_squared(bytes));
    }
    // The same client, with the same randomness and the same vector: what two sessions have in common is chance, too.
    for (one, two) in [(0, 1), (0, 2), (1, 2)] {
        let difference: Vec<u8> = sessions[one].iter().zip(&sessions[two]).map(|(one, two)| one.wrapping_sub(*two)).collect();
        assert!((chi_squared(&difference) - 255.0).abs() < 7.0 * 22.6);
    }
}

#[test]
fn no_two_clients_have_the_same_randomness() {
    let begin = || {
        fedeq_secure::client::AwaitingRoster::begin(&plain(3), 0, Identity::Unsigned, Entropy::from_system().unwrap()).unwrap().1
    };
    assert_ne!(begin().keys.masking, begin().keys.masking);
    assert_eq!(registry(3).len(), 3);
}
