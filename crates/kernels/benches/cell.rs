//! How long a step of the fused cell takes, forward and backward, and what of it is not convolution.
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::activation::Activation;
use fedeq_kernels::cell::{CellParameters, CellScratch, PreparedCell, ResidualCell};
use fedeq_kernels::conv::{self, ConvWeights, Geometry};
use fedeq_kernels::norm::{Affine, NormScope};

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at * 7919 % 2003) as f32 / 1001.5 - 1.0).collect()
}

/// The paper's cells for FEMNIST and CIFAR with their batches.
fn cells() -> [(ResidualCell, usize); 2] {
    let cell = |side, channels| ResidualCell {
        height: side,
        width: side,
        channels,
        groups: 8,
        activation: Activation::Softplus,
        scope: NormScope::Plane,
    };
    [(cell(14, 64), 10), (cell(16, 128), 20)]
}

/// Operations of the convolutions of a step, as if computed directly.
fn operations(cell: &ResidualCell, batch: usize) -> u64 {
    (batch * cell.height * cell.width * 2 * 9 * cell.channels * 2 * cell.channels * 2) as u64
}

fn prepared(set: InstructionSet, cell: &ResidualCell) -> PreparedCell {
    let c = cell.channels;
    let (weights, scale, offset) =
        (numbers(18 * c * c).iter().map(|w| w * 0.05).collect::<Vec<_>>(), vec![1.0; 2 * c], vec![0.0; 2 * c]);
    let wide = Affine { scale: &scale, offset: &offset };
    let narrow = Affine { scale: &scale[..c], offset: &offset[..c] };
    let parameters = CellParameters { conv_a: &weights, norm_1: wide, conv_b: &weights, norm_2: narrow, norm_3: narrow };
    PreparedCell::new(set, cell, parameters)
}

fn steps(criterion: &mut Criterion) {
    let set = InstructionSet::best();
    let mut group = criterion.benchmark_group("cell");
    for (cell, batch) in cells() {
        let label = format!("{}x{}x{} batch {batch}", cell.height, cell.width, cell.channels);
        let (z, u) = (numbers(cell.state_len() * batch), numbers(cell.state_len() * batch));
        let (mut out, mut scratch, cell_ready) = (z.clone(), CellScratch::new(), prepared(set, &cell));
        group.throughput(Throughput::Elements(operations(&cell, batch)));
        group.bench_function(format!("step {label}"), |bencher| {
            bencher.iter(|| cell_ready.step(black_box(&z), black_box(&u), &mut out, &mut scratch));
        });
        let near = cell_ready.linearise(&z, &u, &mut scratch);
        group.bench_function(format!("pull back {label}"), |bencher| {
            bencher.iter(|| near.pull_back(&cell_ready, black_box(&z), &mut out, &mut scratch));
        });
        group.bench_function(format!("step and backward {label}"), |bencher| {
            bencher.iter(|| {
                let saved = cell_ready.step_saving(black_box(&z), &u, &mut out, &mut scratch);
                let gradients = saved.backward(&cell_ready, &z, &u, &mut scratch);
                scratch.recycle(saved);
                gradients
            });
        });
        group.bench_function(format!("convolutions {label}"), |bencher| convolutions(bencher, set, &cell, batch));
    }
    group.finish();
}

/// The two convolutions of a step alone.
fn convolutions(bencher: &mut criterion::Bencher, set: InstructionSet, cell: &ResidualCell, batch: usize) {
    let ResidualCell { height, width, channels, .. } = *cell;
    let wide = Geometry { batch, height, width, from: channels, to: 2 * channels, window: 3, stride: 1 };
    let narrow = Geometry { from: 2 * channels, to: channels, ..wide };
    let weights = numbers(wide.weight_len());
    let (weights_a, weights_b) = (ConvWeights::forward(set, &wide, &weights), ConvWeights::forward(set, &narrow, &weights));
    let (x, mut y, mut z) = (numbers(wide.input_len()), vec![0.0; wide.output_len()], vec![0.0; wide.input_len()]);
    let mut scratch = conv::ConvScratch::new();
    bencher.iter(|| {
        conv::forward(set, &wide, black_box(&x), &weights_a, &mut y, &mut scratch);
        conv::forward(set, &narrow, &y, &weights_b, &mut z, &mut scratch);
    });
}

criterion_group!(benches, steps);
criterion_main!(benches);
