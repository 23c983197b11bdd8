//! How long a transformer layer and a stack of four take: 16 sequences of 16 positions, 64 numbers each; and longer ones.
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::transformer::{Blocked, LayerParts, LayerShape, NormParts, Stack, StackMasks, StackSaved, StackScratch};

fn numbers(count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|at| (((at * 7919 + 104_729) % 2003) as f32 / 1001.5 - 1.0) * scale).collect()
}

/// Operations of a forward pass.
fn operations(shape: &LayerShape, layers: usize) -> u64 {
    let &LayerShape { batch, length, width, hidden, .. } = shape;
    (layers * 2 * batch * length * width * (4 * width + 2 * hidden + 2 * length)) as u64
}

fn stack(set: InstructionSet, shape: LayerShape, layers: usize) -> Stack {
    let parts = LayerParts::lengths(&shape).map(|&length| numbers(length, 0.1));
    let (scale, offset) = (vec![1.0; shape.width], vec![0.0; shape.width]);
    Stack::new(set, shape, &vec![parts.map(Vec::as_slice); layers], NormParts { scale: &scale, offset: &offset })
}

fn passes(criterion: &mut Criterion) {
    let set = InstructionSet::best();
    for (batch, length, layers) in [(16, 16, 1), (16, 16, 4), (16, 80, 1)] {
        let shape = LayerShape { batch, length, width: 64, heads: 4, hidden: 256 };
        let (stack, operations) = (stack(set, shape, layers), operations(&shape, layers));
        let blocked: Vec<bool> = (0..batch * length * length).map(|at| at % length > at / length % length).collect();
        let (blocked, count) = (Blocked::new(length, &blocked), batch * length * 64);
        let masks = StackMasks { blocked: &blocked, dropout: None };
        let (z, injection, mut out) = (numbers(count, 1.0), numbers(count, 0.5), vec![0.0; count]);
        let (mut gradient, mut injection_gradient, mut sums) = (out.clone(), out.clone(), stack.zero_gradients());
        let (mut saved, mut scratch) = (StackSaved::default(), StackScratch::default());
        let mut group = criterion.benchmark_group(format!("transformer {batch}x{length}, layers {layers}, {}", set.name()));
        group.throughput(Throughput::Elements(operations));
        group.bench_function("forward", |bencher| {
            bencher.iter(|| stack.step(&z, &injection, masks, &mut out, &mut scratch));
        });
        group.bench_function("forward saving", |bencher| {
            bencher.iter(|| stack.step_saving(&z, &injection, masks, &mut out, &mut saved, &mut scratch));
        });
        group.bench_function("pull back", |bencher| {
            bencher.iter(|| stack.pull_back(&saved, masks, &z, &mut gradient, &mut scratch));
        });
        group.throughput(Throughput::Elements(2 * operations));
        group.bench_function("backward", |bencher| {
            bencher.iter(|| stack.backward(&saved, masks, &z, &mut gradient, &mut injection_gradient, &mut sums, &mut scratch));
        });
        group.throughput(Throughput::Elements(3 * operations));
        group.bench_function("forward and backward", |bencher| {
            bencher.iter(|| {
                stack.step_saving(&z, &injection, masks, &mut out, &mut saved, &mut scratch);
                stack.backward(&saved, masks, &z, &mut gradient, &mut injection_gradient, &mut sums, &mut scratch);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, passes);
criterion_main!(benches);
