//! Dropout whose multipliers are drawn once for a pass.
use fedeq_models::graph::Dropout;

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

    /// Draws new ones; there are none without a seed. `each` is the numbers of a sequence.
    pub(crate) fn draw(&mut self, seed: Option<u64>, batch: usize, each: usize) {
        self.values.clear();
        let Some(seed) = seed.filter(|_| self.on) else { return };
        self.values.resize(batch * self.sites * each, 0.0);
        self.dropout.draw(seed, &mut self.values);
    }

    /// All of them, and how many sites there are; nothing without dropout.
    pub(crate) fn get(&self) -> Option<(&[f32], usize)> {
        (!self.values.is_empty()).then_some((&self.values, self.sites))
    }
}
