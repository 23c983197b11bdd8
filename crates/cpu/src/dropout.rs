//! Dropout whose multipliers are drawn once for a pass.
use fedeq_models::graph::Dropout;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The multipliers of all dropout sites of a stack of transformer layers, two a layer: `[batch, 2 * layers, length, width]`.
#[derive(Clone, Debug)]
pub(crate) struct Multipliers {
    dropout: Dropout,
    sites: usize,
    /// Whether there is any dropout.
    on: bool,
    values: Vec<f32>,
}

impl Multipliers {
    pub(crate) fn new(dropout: &Dropout, layers: usize, training: bool) -> Self {
        Self { dropout: *dropout, sites: 2 * layers, on: training && dropout.rate > 0.0 && layers > 0, values: Vec::new() }
    }

    /// Draws them anew; there are none without a seed. `each` is the numbers of a sequence.
    pub(crate) fn draw(&mut self, seed: Option<u64>, batch: usize, each: usize) {
        self.values.clear();
        let Some(seed) = seed.filter(|_| self.on) else { return };
        let (rate, kept) = (self.dropout.rate, (1.0 / (1.0 - self.dropout.rate)) as f32);
        let mut rng = stream(seed, self.dropout.name);
        let mut entry = |_| if uniform(&mut rng) < rate { 0.0 } else { kept };
        self.values.extend((0..batch * self.sites * each).map(&mut entry));
    }

    /// All of them, and how many sites there are; nothing without dropout.
    pub(crate) fn get(&self) -> Option<(&[f32], usize)> {
        (!self.values.is_empty()).then_some((&self.values, self.sites))
    }
}

/// The random numbers that belong to `name` under `seed`.
fn stream(seed: u64, name: &str) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(
        name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)),
    );
    rng
}

/// A number in `[0, 1)` with 53 random bits.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
