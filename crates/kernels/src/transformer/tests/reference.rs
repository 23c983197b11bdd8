//! The layer once more, from its formulas: in double precision, one number after the other.
use crate::transformer::{LayerParts, LayerShape, Linear, NormParts};

/// What a layer is run under: `[batch, query, key]`, and the multipliers of two dropout sites, `[batch, length, width]`.
pub(super) struct Masks {
    pub(super) blocked: Vec<bool>,
    pub(super) dropout: [Vec<f64>; 2],
}

pub(super) fn layer(shape: &LayerShape, parts: &LayerParts<Vec<f64>>, h: &[f64], injection: &[f64], masks: &Masks) -> Vec<f64> {
    let mut h: Vec<f64> = h.iter().zip(injection).map(|(h, x)| h + x).collect();
    let said = attention(shape, parts, &norm(&parts.norm_1, &h), &masks.blocked);
    add_dropped(&mut h, &said, &masks.dropout[0]);
    let hidden: Vec<f64> = linear(&parts.widen, &norm(&parts.norm_2, &h)).into_iter().map(gelu).collect();
    let said = linear(&parts.narrow, &hidden);
    add_dropped(&mut h, &said, &masks.dropout[1]);
    h
}

fn add_dropped(h: &mut [f64], said: &[f64], dropout: &[f64]) {
    for ((h, said), multiplier) in h.iter_mut().zip(said).zip(dropout) {
        *h += said * multiplier;
    }
}

pub(super) fn norm(norm: &NormParts<Vec<f64>>, x: &[f64]) -> Vec<f64> {
    let width = norm.scale.len();
    let row = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let value = |at: usize| (row[at] - mean) / (variance + 1e-5).sqrt() * norm.scale[at] + norm.offset[at];
        (0..width).map(value).collect::<Vec<_>>()
    };
    x.chunks_exact(width).flat_map(row).collect()
}

fn linear(linear: &Linear<Vec<f64>>, x: &[f64]) -> Vec<f64> {
    let to = linear.bias.len();
    let from = linear.weight.len() / to;
    let entry = |row: &[f64], column: usize| {
        linear.bias[column] + (0..from).map(|k| row[k] * linear.weight[k * to + column]).sum::<f64>()
    };
    x.chunks_exact(from).flat_map(|row| (0..to).map(move |column| entry(row, column))).collect()
}

fn gelu(x: f64) -> f64 {
    x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

fn attention(shape: &LayerShape, parts: &LayerParts<Vec<f64>>, x: &[f64], blocked: &[bool]) -> Vec<f64> {
    let [query, key, value] = [&parts.query, &parts.key, &parts.value].map(|project| linear(project, x));
    let &LayerShape { batch, length, width, heads, .. } = shape;
    let each = width / heads;
    let at = |sequence: usize, position: usize, channel: usize| (sequence * length + position) * width + channel;
    let mut said = vec![0.0; x.len()];
    for (sequence, head, from) in
        (0..batch * heads * length).map(|all| (all / length / heads, all / length % heads, all % length))
    {
        let score = |to: usize| {
            if blocked[(sequence * length + from) * length + to] {
                return -1e4;
            }
            let channels = head * each..(head + 1) * each;
            channels.map(|c| query[at(sequence, from, c)] * key[at(sequence, to, c)]).sum::<f64>() / (each as f64).sqrt()
        };
        let scores: Vec<f64> = (0..length).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        for channel in head * each..(head + 1) * each {
            said[at(sequence, from, channel)] = (0..length).map(|to| powers[to] / sum * value[at(sequence, to, channel)]).sum();
        }
    }
    linear(&parts.output, &said)
}
