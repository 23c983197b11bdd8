//! Who shares masks with whom.
use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::session::Session;

/// The neighbours of every client, none its own. All others, or as many as the session says: then clients stand in a circle, in an order that the
/// session's tag draws, and the nearest on both sides are neighbours (SecAgg+'s Harary graph on shuffled nodes).
pub(crate) fn neighbours(session: &Session, clients: &BTreeSet<u16>) -> BTreeMap<u16, BTreeSet<u16>> {
    let others = |client: u16| clients.iter().copied().filter(move |other| *other != client).collect();
    match session.settings().neighbours {
        Some(count) if usize::from(count) + 1 < clients.len() => circle(session.tag(), clients, usize::from(count) / 2),
        _ => clients.iter().map(|&client| (client, others(client))).collect(),
    }
}

fn circle(tag: &[u8; 32], clients: &BTreeSet<u16>, reach: usize) -> BTreeMap<u16, BTreeSet<u16>> {
    let mut order: Vec<u16> = clients.iter().copied().collect();
    order.sort_by_cached_key(|client| -> [u8; 32] {
        Sha256::new()
            .chain_update(b"fedeq-secure/1 graph\0")
            .chain_update(tag)
            .chain_update(client.to_le_bytes())
            .finalize()
            .into()
    });
    let count = order.len();
    let around = |place: usize| (1..=reach).flat_map(move |step| [(place + step) % count, (place + count - step) % count]);
    order.iter().enumerate().map(|(place, &client)| (client, around(place).map(|other| order[other]).collect())).collect()
}

/// Whether some clients hang together by their neighbourhoods.
pub(crate) fn is_connected(neighbours: &BTreeMap<u16, BTreeSet<u16>>, clients: &BTreeSet<u16>) -> bool {
    let mut reached: BTreeSet<u16> = clients.first().copied().into_iter().collect();
    let mut fresh: Vec<u16> = reached.iter().copied().collect();
    while let Some(client) = fresh.pop() {
        let next: Vec<u16> =
            neighbours[&client].intersection(clients).filter(|other| !reached.contains(other)).copied().collect();
        reached.extend(&next);
        fresh.extend(next);
    }
    reached.len() == clients.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{SessionSettings, Trust};

    fn session(nonce: u8, neighbours: Option<u16>) -> Session {
        let threshold = SessionSettings::usual_threshold(neighbours.map_or(40, |count| count + 1));
        let trust = Trust::HonestButCurious;
        Session::new(SessionSettings {
            nonce: [nonce; 32],
            clients: 40,
            threshold,
            minimum: 3,
            length: 1,
            ring_bits: 8,
            neighbours,
            trust,
        })
        .unwrap()
    }

    #[test]
    fn neighbourhoods_are_mutual_of_the_size_asked_for_and_drawn_anew_in_every_session() {
        let clients: BTreeSet<u16> = (0..40).map(|client| 3 * client).collect();
        let graph = neighbours(&session(1, Some(6)), &clients);
        for (client, others) in &graph {
            assert_eq!(others.len(), 6);
            assert!(!others.contains(client) && others.iter().all(|other| graph[other].contains(client)));
        }
        assert!(is_connected(&graph, &clients));
        assert_ne!(graph, neighbours(&session(2, Some(6)), &clients));
    }

    #[test]
    fn few_clients_are_all_neighbours() {
        let clients: BTreeSet<u16> = (0..7).collect();
        let graph = neighbours(&session(1, Some(6)), &clients);
        assert_eq!(graph, neighbours(&session(1, None), &clients));
        assert!(graph.values().all(|others| others.len() == 6));
    }

    #[test]
    fn a_circle_with_two_gaps_is_not_connected() {
        let clients: BTreeSet<u16> = (0..40).collect();
        let graph = neighbours(&session(1, Some(2)), &clients);
        let far = graph.keys().copied().find(|client| *client != 0 && !graph[&0].contains(client)).unwrap();
        let rest: BTreeSet<u16> = clients.iter().copied().filter(|client| *client != 0 && *client != far).collect();
        assert!(!is_connected(&graph, &rest));
    }
}
