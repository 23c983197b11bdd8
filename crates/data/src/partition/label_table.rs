//! Which labels each client draws, and the dealing of one-label shards by that table.
use rand::RngExt;
use rand::seq::SliceRandom;

use crate::Seed;

/// One row of labels a client. A class is cut into as many shards as the table names it times.
pub(super) struct LabelTable {
    rows: Vec<Vec<usize>>,
}

impl LabelTable {
    /// The FedRep table: the list of all slots, shuffled and cut into rows. A label may occur twice in a row.
    pub(super) fn shuffled(slots: &[usize], labels: usize, seed: Seed) -> Self {
        let mut list: Vec<usize> = slots.iter().enumerate().flat_map(|(class, &n)| std::iter::repeat_n(class, n)).collect();
        list.shuffle(&mut seed.rng());
        Self { rows: list.chunks_exact(labels).map(<[usize]>::to_vec).collect() }
    }

    /// A table whose rows name `labels` different classes each.
    ///
    /// Rows are drawn one after another. A class with as many slots left as there are rows left must be drawn now, or a later
    /// row would need it twice; the other classes are drawn in proportion to the slots they have left. As no class ever has more
    /// slots than rows, a row can always be filled.
    pub(super) fn distinct(mut slots: Vec<usize>, clients: usize, labels: usize, seed: Seed) -> Self {
        let mut rng = seed.rng();
        let rows = (1..=clients).rev().map(|rows_left| {
            let row = weighted_draw(&slots, rows_left, labels, || rng.random());
            row.iter().for_each(|&class| slots[class] -= 1);
            row
        });
        Self { rows: rows.collect() }
    }

    pub(super) fn clients(&self) -> usize {
        self.rows.len()
    }

    /// Cuts each class into its shards and deals them, by chance, to the clients whose rows name the class.
    pub(super) fn deal(&self, strata: &[Vec<u32>], seed: Seed) -> Vec<Vec<u32>> {
        let mut hands = vec![Vec::new(); self.rows.len()];
        for (class, (holders, samples)) in self.holders(strata.len()).iter().zip(strata).enumerate() {
            let mut shards = cut(samples, holders.len());
            shards.shuffle(&mut seed.derive("class", [class as u64]).rng());
            for (&client, shard) in holders.iter().zip(shards) {
                hands[client].extend(shard);
            }
        }
        hands
    }

    /// For each class, the clients that draw it, as often as they do.
    fn holders(&self, classes: usize) -> Vec<Vec<usize>> {
        let mut holders = vec![Vec::new(); classes];
        for (client, row) in self.rows.iter().enumerate() {
            row.iter().for_each(|&class| holders[class].push(client));
        }
        holders
    }
}

/// Equal runs of consecutive samples; what is left over goes one each to the first runs.
fn cut(samples: &[u32], shards: usize) -> Vec<Vec<u32>> {
    let size = samples.len() / shards.max(1);
    let left_over = &samples[size * shards..];
    let run = |shard: usize| samples[size * shard..size * (shard + 1)].iter().chain(left_over.get(shard));
    (0..shards).map(|shard| run(shard).copied().collect()).collect()
}

/// Draws `count` different classes with probabilities in proportion to `slots`, those with a slot in every row left for certain.
///
/// The classes with the largest `ln(u) / weight` are a weighted draw without replacement (Efraimidis and Spirakis, 2006).
fn weighted_draw(slots: &[usize], rows_left: usize, count: usize, mut uniform: impl FnMut() -> f64) -> Vec<usize> {
    let mut keyed: Vec<(f64, usize)> = (0..slots.len())
        .filter(|&class| slots[class] > 0)
        .map(|class| match slots[class] {
            every if every == rows_left => (f64::INFINITY, class),
            some => (libm::log(1.0 - uniform()) / some as f64, class),
        })
        .collect();
    keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
    keyed.into_iter().take(count).map(|(_, class)| class).collect()
}
