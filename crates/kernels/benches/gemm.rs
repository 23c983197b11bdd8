//! How near the products of the kernels come to what the machine can do.
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::gemm::{Factor, Product, Size};

fn products(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("product");
    for (m, n, k) in [(32, 128, 64), (32, 64, 128), (32, 256, 128), (256, 64, 64), (64, 128, 160)] {
        let (a, b, mut c) = (vec![0.5; m * k], vec![0.25; k * n], vec![0.0; m * n]);
        group.throughput(Throughput::Elements((2 * m * n * k) as u64));
        for set in InstructionSet::available() {
            group.bench_function(format!("{m}x{k}x{n} {}", set.name()), |bencher| {
                bencher.iter(|| {
                    let (a, b, c) = (Factor::rows(black_box(&a), k), black_box(&b[..]), &mut c[..]);
                    Product { size: Size { m, n, k }, a, b, b_stride: n, c, c_stride: n, accumulate: false }.run(set);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, products);
criterion_main!(benches);
