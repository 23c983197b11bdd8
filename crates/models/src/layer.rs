//! The kinds of layers, each with its equation.
use fedeq_equilibrium::Equilibrium;
use serde::Serialize;

use crate::choices::Activation;
use crate::graph::{ParameterId, ValueId};
use crate::init::{fingerprint, key, stream, uniform};

/// One layer: what it reads, its parameters, and the value it gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Layer {
    /// A convolution with SAME padding and no bias; `weight` is `[to, from, window, window]`.
    Conv {
        /// The input.
        x: ValueId,
        /// The kernels.
        weight: ParameterId,
        /// How far the window moves.
        stride: usize,
        /// The output.
        y: ValueId,
    },
    /// Normalisation to mean 0 and variance 1, then a scale and an offset a channel, with what is [fused](Fusion) into it.
    Norm {
        /// The input, a picture or a vector.
        x: ValueId,
        /// The scale and the offset.
        affine: Affine,
        /// What mean and variance are taken over.
        over: NormScope,
        /// What is computed in the same pass.
        fusion: Fusion,
        /// The output.
        y: ValueId,
    },
    /// The largest number of the 3 x 3 pixels around every second one: windows of 3, moved by 2, with SAME padding.
    MaxPool {
        /// The input.
        x: ValueId,
        /// The output.
        y: ValueId,
    },
    /// The mean over the whole plane: `[height, width, channels] -> [channels]`.
    MeanPool {
        /// The input.
        x: ValueId,
        /// The output.
        y: ValueId,
    },
    /// A shortcut without parameters: every second pixel, with channels of zero on both sides up to those of the output.
    Widen {
        /// The input.
        x: ValueId,
        /// The output.
        y: ValueId,
    },
    /// `phi(x W + b)` on the numbers of a sample (a picture is taken as the vector of its numbers), or on every position of a sequence.
    Dense {
        /// The input.
        x: ValueId,
        /// `W`, `[in, out]`.
        weight: ParameterId,
        /// `b`, `[out]`.
        bias: Option<ParameterId>,
        /// `phi`; the identity if none.
        activation: Option<Activation>,
        /// The output.
        y: ValueId,
    },
    /// The learned vector of every symbol, with that of its position added where positions are given.
    Embed {
        /// `[symbols, width]`
        tokens: ParameterId,
        /// `[length, width]`
        positions: Option<ParameterId>,
        /// The output, a sequence.
        y: ValueId,
    },
    /// `factor x`
    Scale {
        /// The input; not symbols.
        x: ValueId,
        /// What every number is multiplied by.
        factor: f64,
        /// The output.
        y: ValueId,
    },
    /// Transformer layers one after the other; see [`Transformer`].
    Transformer {
        /// What goes in; zeros if none.
        h: Option<ValueId>,
        /// What is added before every layer.
        injection: ValueId,
        /// The layers.
        layers: Transformer,
        /// The output.
        y: ValueId,
    },
    /// Normalisation of every position over the width of a sequence.
    LayerNorm {
        /// The input.
        x: ValueId,
        /// The scale and the offset.
        affine: Affine,
        /// The output.
        y: ValueId,
    },
    /// The fixed point `z = g(z; u)` of a cell.
    Equilibrium {
        /// `u`, what is injected; a state has its shape.
        injection: ValueId,
        /// `g`
        cell: Cell,
        /// How it is found and differentiated.
        settings: Equilibrium,
        /// `g(z; u)` at the fixed point.
        y: ValueId,
    },
    /// A cell applied a fixed number of times, `z <- g(z; u)`, from where its solves start. Nothing is solved for: this is an explicit stack of layers with the same
    /// parameters, differentiated through all of them and through the start.
    Repeat {
        /// `u`, what is injected; a state has its shape.
        injection: ValueId,
        /// `g`
        cell: Cell,
        /// How often; at least once.
        times: usize,
        /// The last state.
        y: ValueId,
    },
}

/// The scale and the offset of a normalisation, a number a channel each: which parameters they are; in `fedeq-kernels` the same name holds their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Affine {
    /// The factor, ones at first.
    pub scale: ParameterId,
    /// What is added, zeros at first.
    pub offset: ParameterId,
}

/// What the mean and the variance of a normalisation are taken over; the kernels of `fedeq-kernels` have an enum of the same name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormScope {
    /// The batch, a channel at a time; in evaluation the running statistics with this index stand in.
    Batch {
        /// An index into [`Graph::statistics`](crate::graph::Graph::statistics).
        statistics: usize,
    },
    /// The plane of a group of neighbouring channels of one sample.
    Groups(usize),
    /// One row of the plane of a group of neighbouring channels of one sample, as in the authors' code.
    RowGroups(usize),
}

/// What is computed in the same pass as a normalisation; the kernels of `fedeq-kernels` have an enum of the same name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fusion {
    /// `norm(x)`
    None,
    /// `norm(phi(x))`
    Before(Activation),
    /// `phi(norm(x))`
    After(Activation),
    /// `phi(norm(x) + shortcut)`
    AddThen(ValueId, Activation),
}

/// A stack of transformer layers, each with parameters of its own or all with the same:
///
/// `h <- h + injection`, `h <- h + drop(attention(norm_1(h)))`, `h <- h + drop(mlp(norm_2(h)))`
///
/// with causal attention that does not look at padding (symbol 0), and an MLP with the tanh form of GELU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transformer {
    /// For each layer: scale and offset of `norm_1`; weight and bias of query, key, value and output; scale and offset of `norm_2`; weight
    /// and bias of the two dense layers of the MLP. Layers that are tied name the same parameters.
    pub layers: Vec<[ParameterId; 16]>,
    /// Heads of attention.
    pub heads: usize,
    /// The width inside the MLP.
    pub hidden: usize,
    /// Dropout in training.
    pub dropout: Dropout,
}

impl Transformer {
    /// Whether there are several layers, all with the same parameters.
    pub fn is_tied(&self) -> bool {
        self.layers.len() > 1 && self.layers.iter().all(|layer| *layer == self.layers[0])
    }
}

/// Dropout whose masks are drawn once for a pass: `[B, 2 * layers, length, width]` multipliers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dropout {
    /// Names the stream of random numbers.
    pub name: &'static str,
    /// The share of numbers that become zero.
    pub rate: f64,
}

impl Dropout {
    /// Multipliers for one pass: 0 with probability `rate` and `1 / (1 - rate)` otherwise. They depend on nothing but the seed and the name.
    pub fn multipliers(&self, seed: u64, count: usize) -> Vec<f32> {
        let mut multipliers = vec![0.0; count];
        self.draw(seed, &mut multipliers);
        multipliers
    }

    /// The same in memory that is kept.
    pub fn draw(&self, seed: u64, multipliers: &mut [f32]) {
        let mut rng = stream(seed, self.name);
        let kept = self.kept();
        multipliers.iter_mut().for_each(|to| *to = if uniform(&mut rng) < self.rate { 0.0 } else { kept });
    }

    /// What a number that stays is multiplied by.
    pub fn kept(&self) -> f32 {
        (1.0 / (1.0 - self.rate)) as f32
    }

    /// For engines that draw [multipliers](Self::multipliers) themselves: the key of ChaCha with 8 rounds, the same for all names.
    pub fn key(seed: u64) -> [u32; 8] {
        key(seed)
    }

    /// Its stream of ChaCha's numbers. Number `n` of 64 bits says what becomes of number `n` of a batch.
    pub fn stream(&self) -> u64 {
        fingerprint(self.name)
    }

    /// A number becomes zero if the upper 53 bits of what was drawn for it are less than this.
    pub fn threshold(&self) -> u64 {
        (self.rate * (1_u64 << 53) as f64).ceil() as u64
    }
}

/// The map `g(z; u)` of an equilibrium layer, as data. Samples do not influence one another.
///
/// The trait of the same name in `fedeq-equilibrium` is the same map as code, for those who bring a network of their own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cell {
    /// `g(z; u) = phi(z B + u)` on vectors; starts at `u`.
    Dense {
        /// `B`, `[width, width]` with the input first.
        weight: ParameterId,
        /// `phi`
        activation: Activation,
    },
    /// `g(z; u) = GN3(phi(z + GN2(u + conv_b(GN1(phi(conv_a(z)))))))` on pictures of `C` channels; `conv_a` goes to `2C` channels and `conv_b`
    /// back. Starts at `u`.
    Residual {
        /// `[2C, C, 3, 3]`
        conv_a: ParameterId,
        /// Of `2C` channels.
        norm_1: Affine,
        /// `[C, 2C, 3, 3]`
        conv_b: ParameterId,
        /// Of `C` channels.
        norm_2: Affine,
        /// Of `C` channels.
        norm_3: Affine,
        /// What the group normalisations take mean and variance over; never the batch.
        over: NormScope,
        /// `phi`
        activation: Activation,
    },
    /// `g(z; u) = norm(layer_n(... layer_1(z; u) ...; u))` on sequences; starts at zero.
    Transformer {
        /// The layers.
        layers: Transformer,
        /// The normalisation at the end.
        norm: Affine,
    },
}

impl Cell {
    /// Whether its states start at `u`, and not at zero.
    pub fn starts_at_injection(&self) -> bool {
        matches!(self, Self::Dense { .. } | Self::Residual { .. })
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn multipliers_can_be_drawn_from_key_stream_and_threshold() {
        for (rate, seed) in [(0.1, 7), (0.0, 8), (0.5, u64::MAX), (0.999, 0), (f64::MIN_POSITIVE, 1)] {
            let dropout = Dropout { name: "cell", rate };
            let bytes: Vec<u8> = Dropout::key(seed).iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut rng = ChaCha8Rng::from_seed(bytes.try_into().expect("32 bytes"));
            rng.set_stream(dropout.stream());
            let drawn: Vec<f32> =
                (0..2000).map(|_| if rng.next_u64() >> 11 < dropout.threshold() { 0.0 } else { dropout.kept() }).collect();
            assert_eq!(drawn, dropout.multipliers(seed, 2000), "{rate}");
        }
    }
}
