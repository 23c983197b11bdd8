//! All clients draw from the same urn.
use rand::seq::SliceRandom;

use crate::Seed;

/// Shuffles the pool and cuts it into parts whose sizes differ by at most one.
pub(super) fn deal(pool: &[u32], clients: usize, seed: Seed) -> Vec<Vec<u32>> {
    let mut shuffled = pool.to_vec();
    shuffled.shuffle(&mut seed.rng());
    cut(&shuffled, clients)
}

/// Cuts the pool as it is into parts whose sizes differ by at most one.
pub(super) fn cut(pool: &[u32], clients: usize) -> Vec<Vec<u32>> {
    let boundary = |client: usize| pool.len() * client / clients;
    (0..clients).map(|client| pool[boundary(client)..boundary(client + 1)].to_vec()).collect()
}
