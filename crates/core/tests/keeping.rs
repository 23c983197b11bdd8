//! What is kept comes back as it was, from memory and from disk; what is damaged is named.
mod common;

use common::{Problem, weights};
use fedeq_core::{Array, ClientState, ClientStore, ClientTask, Error, Params, Reply, Request, ServerState, Weights};
use fedeq_equilibrium::{StoredPrecision, WarmStart};
use proptest::prelude::*;

fn fresh() -> ClientState {
    let dual = Problem::start().theta();
    ClientState::fresh(
        Problem::start(),
        dual,
        WarmStart::BySample { capacity: Some(64), precision: StoredPrecision::Half, lasting: true },
    )
}

/// A state that tells its client and version.
fn state(client: usize, version: u64) -> ClientState {
    let mut state = fresh();
    let mark = client as f64 + 100.0 * version as f64;
    state.own = weights(&[mark, 1.0, 2.0, 3.0], &[mark, 5.0]);
    state.dual = state.own.theta();
    state.participations = version;
    state.last_round = Some(version);
    state.memory.restore(7, &[0.5, 1.5]);
    state.memory.restore(3, &[2.5, f32::from(client as u16)]);
    state
}

#[test]
fn a_state_comes_back_from_its_bytes_and_gives_the_same_bytes_again() {
    let mut with_second = state(4, 2);
    with_second.second = Some(weights(&[9.0; 4], &[8.0; 2]));
    for state in [fresh(), state(1, 1), with_second] {
        let bytes = state.to_bytes().expect("writable");
        let back = ClientState::from_bytes(&bytes, &fresh()).expect("readable");
        assert_eq!(back, state);
        assert_eq!(back.to_bytes().expect("writable"), bytes);
    }
}

/// Arrays of one number each.
fn named(names: &[&str]) -> Params {
    let arrays = names.iter().enumerate().map(|(index, name)| (name.to_string(), Array::new(vec![1], vec![index as f32])));
    arrays.collect()
}

#[test]
fn states_of_an_older_version_are_read_under_the_names_of_today() {
    let shared = |dense: &str| named(&["c.weight", dense]);
    let state = |dense: &str, head: &str| {
        let own = Weights { params: named(&["c.weight", dense, head]), statistics: named(&[&format!("{dense}.mean")]) };
        let mut state = ClientState::fresh(own.clone(), shared(dense), WarmStart::Off);
        state.second = Some(own);
        state
    };
    let (old, today) = (state("head.weight", "player.weight"), state("dense.weight", "head.weight"));
    assert_eq!(ClientState::from_bytes(&old.to_bytes().expect("writable"), &today).expect("an old state"), today);
    // What the server keeps has no head by which its age could be told.
    let server = |dense: &str| ServerState::new(Weights { params: shared(dense), statistics: Params::default() }, 3, None);
    let bytes = server("head.weight").to_bytes().expect("writable");
    assert_eq!(
        ServerState::from_bytes(&bytes, 0, &server("dense.weight")).expect("an old state").weights,
        server("dense.weight").weights
    );
}

#[test]
fn a_store_beyond_its_capacity_keeps_states_on_disk_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let capacity = 3 * state(0, 1).size();
    let mut store = ClientStore::new(folder.path().join("clients"), capacity, |_| fresh());
    for version in 1..4 {
        for client in 0..20 {
            store.put(client, state(client, version)).expect("room");
            assert!(store.bytes() <= capacity);
        }
    }
    for client in (0..20).rev() {
        assert_eq!(store.get(client).expect("kept"), state(client, 3));
    }
    assert_eq!(store.get(99).expect("never seen"), fresh());
}

#[test]
fn a_store_goes_back_to_what_was_flushed_and_removes_what_is_not_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = ClientStore::new(folder.path().join("clients"), usize::MAX, |_| fresh());
    store.put(1, state(1, 1)).expect("room");
    let first = store.flush().expect("writable");
    store.put(1, state(1, 2)).expect("room");
    store.put(2, state(2, 1)).expect("room");
    let second = store.flush().expect("writable");
    store.restore(first.clone());
    assert_eq!(store.get(1).expect("kept"), state(1, 1));
    assert_eq!(store.get(2).expect("not trained yet"), fresh());
    store.restore(second.clone());
    assert_eq!(store.get(1).expect("kept"), state(1, 2));
    store.remove_all_but(&second.values().cloned().collect()).expect("removable");
    store.restore(first);
    assert!(matches!(store.get(1), Err(Error::Io { .. })));
}

#[test]
fn a_store_rolls_back_to_its_last_settled_moment_wherever_states_are_kept() {
    for capacity in [usize::MAX, 2 * state(0, 1).size()] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = ClientStore::new(folder.path().join("clients"), capacity, |_| fresh());
        (0..3).for_each(|client| store.put(client, state(client, 1)).expect("room"));
        store.flush().expect("writable");
        store.put(1, state(1, 2)).expect("room");
        store.settle().expect("possible");
        // 0 is on disk, 1 has changed since, 3 is new.
        [0, 1, 3, 1].iter().for_each(|&client| store.put(client, state(client, 3)).expect("room"));
        assert_eq!(store.get(1).expect("kept"), state(1, 3));
        store.roll_back().expect("possible");
        let expected = [state(0, 1), state(1, 2), state(2, 1), fresh()];
        for (client, expected) in expected.into_iter().enumerate() {
            assert_eq!(store.get(client).expect("kept"), expected, "client {client} with room for {capacity} bytes");
        }
        assert!(store.bytes() <= capacity);
    }
}

#[test]
fn states_that_no_checkpoint_names_do_not_pile_up_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = ClientStore::new(folder.path().join("clients"), 2 * state(0, 1).size(), |_| fresh());
    let files = || std::fs::read_dir(folder.path().join("clients")).map_or(0, Iterator::count);
    (0..10).for_each(|client| store.put(client, state(client, 1)).expect("room"));
    let named = store.flush().expect("writable");
    for version in 2..9 {
        (0..10).for_each(|client| store.put(client, state(client, version)).expect("room"));
        store.settle().expect("possible");
        assert!(files() <= 2 * named.len(), "{} files in round {version}", files());
    }
    store.restore(named);
    assert_eq!(store.get(4).expect("a checkpoint names it"), state(4, 1));
}

#[test]
fn remembered_fixed_points_take_as_many_bytes_on_disk_as_in_memory() {
    let warm_start = WarmStart::BySample { capacity: Some(1 << 20), precision: StoredPrecision::Half, lasting: true };
    let mut state = ClientState::fresh(Problem::start(), Params::default(), warm_start);
    let without = state.to_bytes().expect("writable").len();
    (0..100).for_each(|sample| state.memory.restore(sample, &[0.25; 500]));
    let bytes = state.to_bytes().expect("writable");
    // Two bytes a number, and a few for the names of the samples.
    assert!(bytes.len() - without < 2 * 50_000 + 1_000, "{} bytes", bytes.len() - without);
    let fresh = ClientState::fresh(Problem::start(), Params::default(), warm_start);
    assert_eq!(ClientState::from_bytes(&bytes, &fresh).expect("readable"), state);
}

#[test]
fn a_damaged_state_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = ClientStore::new(folder.path().to_owned(), usize::MAX, |_| fresh());
    store.put(1, state(1, 1)).expect("room");
    let files = store.flush().expect("writable");
    let path = folder.path().join(&files[&1]);
    let mut bytes = std::fs::read(&path).expect("there");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).expect("writable");
    store.restore(files);
    let error = store.get(1).expect_err("damaged");
    assert!(error.to_string().contains("000001-"), "{error}");
}

#[test]
fn messages_and_all_their_weights_survive_the_wire() {
    let params = weights(&[1.0, -2.5, 3e-20, 4e30], &[f64::from(f32::MIN_POSITIVE), -0.0]).params;
    let with_statistics = Weights { statistics: params.under("running"), params };
    let request = Request { task: ClientTask::Train, round: 3, rounds: 9, rho: Some(0.1), weights: with_statistics.clone() };
    assert_eq!(Request::decode(&request.encode().expect("writable")).expect("readable"), request);
    let reply = Reply::Update(fedeq_core::Update {
        weights: with_statistics.into(),
        samples: 7,
        gap: 0.25,
        stats: fedeq_core::TrainStats { steps: 3, loss: 0.5, ..Default::default() },
    });
    assert_eq!(Reply::decode(&reply.encode().expect("writable")).expect("readable"), reply);
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Request::decode(&bytes);
        let _ = Reply::decode(&bytes);
        let _ = ClientState::from_bytes(&bytes, &fresh());
    }

    #[test]
    fn no_damage_makes_a_decoder_panic(at in 0usize..600, value in any::<u8>(), keep in 0usize..700) {
        let request = Request { task: ClientTask::Train, round: 3, rounds: 9, rho: None, weights: weights(&[1.0; 4], &[2.0; 2]) };
        let mut bytes = request.encode().expect("writable");
        let length = bytes.len();
        bytes[at % length] = value;
        bytes.truncate(keep.max(1));
        let _ = Request::decode(&bytes);
        let mut bytes = state(1, 1).to_bytes().expect("writable");
        let length = bytes.len();
        bytes[at % length] = value;
        let _ = ClientState::from_bytes(&bytes, &fresh());
    }
}
