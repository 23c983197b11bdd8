//! Convolutions of the networks used on FEMNIST and CIFAR, in operations of the direct convolution a second.
use std::hint::black_box;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::conv::{self, ConvScratch, ConvWeights, Geometry};

/// `[batch, size, from, to, window, stride]`.
const GEOMETRIES: [[usize; 6]; 19] = [
    // Equilibrium cells.
    [10, 14, 64, 128, 3, 1],
    [10, 14, 128, 64, 3, 1],
    [20, 16, 128, 256, 3, 1],
    [20, 16, 256, 128, 3, 1],
    [10, 4, 16, 32, 3, 1],
    [10, 4, 32, 16, 3, 1],
    // First layers.
    [10, 28, 1, 64, 3, 1],
    [20, 32, 3, 128, 3, 1],
    // Explicit residual networks.
    [10, 28, 32, 32, 3, 1],
    [10, 14, 64, 64, 3, 1],
    [10, 7, 128, 128, 3, 1],
    [10, 4, 256, 256, 3, 1],
    [20, 32, 64, 64, 3, 1],
    [20, 16, 128, 128, 3, 1],
    [20, 8, 256, 256, 3, 1],
    [10, 28, 32, 64, 3, 2],
    [20, 32, 64, 128, 3, 2],
    [10, 28, 32, 64, 1, 2],
    [20, 32, 64, 64, 1, 1],
];

fn convolutions(criterion: &mut Criterion) {
    for [batch, size, from, to, window, stride] in GEOMETRIES {
        let geometry = Geometry { batch, height: size, width: size, from, to, window, stride };
        let mut group =
            criterion.benchmark_group(format!("{from}to{to} {size}x{size} batch{batch} window{window} stride{stride}"));
        let [rows, columns] = geometry.output();
        group.throughput(Throughput::Elements((2 * batch * rows * columns * geometry.weight_len()) as u64));
        for set in InstructionSet::available().into_iter().filter(|set| set.name() != "portable") {
            passes(&mut group, set, &geometry);
        }
        group.finish();
    }
}

fn passes(group: &mut BenchmarkGroup<'_, WallTime>, set: InstructionSet, geometry: &Geometry) {
    let (mut x, mut w, mut y) =
        (vec![0.5; geometry.input_len()], vec![0.25; geometry.weight_len()], vec![0.5; geometry.output_len()]);
    let (forward, backward) = (ConvWeights::forward(set, geometry, &w), ConvWeights::backward(set, geometry, &w));
    let mut scratch = ConvScratch::new();
    group.bench_function(format!("prepare {}", set.name()), |bencher| {
        let mut weights = forward.clone();
        bencher.iter(|| weights.update(set, black_box(&w)));
    });
    group.bench_function(format!("forward {}", set.name()), |bencher| {
        bencher.iter(|| conv::forward(set, geometry, black_box(&x), &forward, &mut y, &mut scratch));
    });
    group.bench_function(format!("input_gradient {}", set.name()), |bencher| {
        bencher.iter(|| conv::input_gradient(set, geometry, black_box(&y), &backward, &mut x, &mut scratch));
    });
    group.bench_function(format!("weight_gradient {}", set.name()), |bencher| {
        bencher.iter(|| conv::weight_gradient(set, geometry, black_box(&x), &y, &mut w, &mut scratch));
    });
}

criterion_group!(benches, convolutions);
criterion_main!(benches);
