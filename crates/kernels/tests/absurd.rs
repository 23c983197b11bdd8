//! Sizes that no memory holds: their products overflow, often to what the slices have. A kernel refuses them before it touches any memory.
use std::panic::{AssertUnwindSafe, catch_unwind};

use fedeq_kernels::InstructionSet;
use fedeq_kernels::activation::Activation;
use fedeq_kernels::cell::{CellParameters, PreparedCell, ResidualCell};
use fedeq_kernels::conv::{self, ConvScratch, ConvWeights, Geometry};
use fedeq_kernels::dense::{self, Addend, DenseShape};
use fedeq_kernels::norm::{Affine, BatchShape, Fusion, Moments, Norm, NormSaved, NormScope, NormScratch};
use fedeq_kernels::transformer::{Blocked, LayerParts, LayerShape};
use fedeq_kernels::{embedding, loss, neighbours, pool, shortcut};

const HALF: usize = usize::MAX / 2 + 1;
const ROOT: usize = 1 << (usize::BITS / 2);

/// What a call that must not go through says.
fn refusal(call: impl FnOnce()) -> String {
    let refused = catch_unwind(AssertUnwindSafe(call)).expect_err("the sizes are refused");
    match refused.downcast::<String>() {
        Ok(words) => *words,
        Err(refused) => refused.downcast::<&str>().expect("words").to_string(),
    }
}

/// The call refuses by a check of its own, and not by an index that happens to be outside or an addition that happens to overflow.
fn refuses(call: impl FnOnce()) {
    let words = refusal(call);
    let by_chance = ["index", "range", "attempt to", "capacity"].iter().any(|word| words.contains(word));
    assert!(!by_chance, "refused by chance: {words}");
}

/// Shapes whose extents multiply to zero or to a few numbers when they overflow.
fn shapes() -> Vec<BatchShape> {
    let shape = |batch, height, width, channels| BatchShape { batch, height, width, channels };
    vec![
        shape(2, HALF, 1, 1),
        shape(1, 2, HALF, 1),
        shape(ROOT, ROOT, 1, 1),
        shape(1, ROOT, ROOT, 1),
        shape(1, 1, ROOT, ROOT),
        shape(HALF, 2, 1, 0),
        shape(0, usize::MAX, usize::MAX, 1),
        shape(1, 1, 1, usize::MAX),
    ]
}

#[test]
fn normalisations_refuse_them() {
    let set = InstructionSet::best();
    for shape in shapes() {
        let (one, moments) = ([1.0], Moments { mean: vec![0.0], variance: vec![1.0] });
        let affine = Affine { scale: &one, offset: &one };
        for norm in [Norm::batch(shape, Fusion::None), Norm { groups: 1, ..Norm::group(shape, NormScope::Row, Fusion::None) }] {
            refuses(|| drop(norm.forward(set, &[], affine, None, &mut [])));
            refuses(|| norm.apply(set, (&[], None), affine, &moments, &mut [], &mut NormScratch::new()));
            let saved = NormSaved { x: &[], y: &[], moments: &moments, given: false };
            refuses(|| drop(norm.backward(set, saved, affine, &[], &mut [], None)));
        }
    }
}

#[test]
fn more_groups_than_channels_are_refused() {
    let norm = Norm { groups: HALF, ..Norm::batch(BatchShape { batch: 1, height: 1, width: 1, channels: 0 }, Fusion::None) };
    refuses(|| drop(norm.forward(InstructionSet::best(), &[], Affine { scale: &[], offset: &[] }, None, &mut [])));
}

#[test]
fn pooling_and_shortcuts_refuse_them() {
    let set = InstructionSet::best();
    for shape in shapes() {
        refuses(|| pool::max_pool(set, shape, &[], &mut []));
        refuses(|| pool::max_pool_with_places(set, shape, &[], &mut [], &mut []));
        refuses(|| pool::max_pool_backward(set, shape, &[], &[], &mut []));
        refuses(|| pool::global_average_pool(set, shape, &[], &mut [], &mut NormScratch::new()));
        refuses(|| pool::global_average_pool_backward(shape, &[], &mut []));
        refuses(|| shortcut::widen(shape, shape.channels, &[], &mut []));
        refuses(|| shortcut::add_widen_gradient(shape, shape.channels, &[], &mut []));
    }
    let narrow = BatchShape { batch: 2, height: 1, width: 1, channels: 1 };
    refuses(|| shortcut::widen(narrow, HALF, &[0.0; 2], &mut []));
}

#[test]
fn convolutions_refuse_them() {
    let set = InstructionSet::best();
    let small = Geometry { batch: 1, height: 4, width: 4, from: 4, to: 4, window: 3, stride: 1 };
    let weight = vec![0.0; small.weight_len()];
    let (forward, backward) = (ConvWeights::forward(set, &small, &weight), ConvWeights::backward(set, &small, &weight));
    for batch in [HALF, usize::MAX / 32, usize::MAX] {
        let geometry = Geometry { batch, ..small };
        let scratch = &mut ConvScratch::new();
        refuses(|| conv::forward(set, &geometry, &[], &forward, &mut [], scratch));
        refuses(|| conv::input_gradient(set, &geometry, &[], &backward, &mut [], scratch));
        refuses(|| conv::forward_once(set, &geometry, &[], &weight, &mut [], scratch));
        refuses(|| conv::input_gradient_once(set, &geometry, &[], &weight, &mut [], scratch));
        refuses(|| conv::weight_gradient(set, &geometry, &[], &[], &mut weight.clone(), scratch));
    }
    for geometry in [
        Geometry { from: HALF, ..small },
        Geometry { to: HALF, ..small },
        Geometry { from: ROOT, to: ROOT, ..small },
        Geometry { window: ROOT, ..small },
        Geometry { window: usize::MAX, ..small },
    ] {
        refuses(|| drop(ConvWeights::forward(set, &geometry, &[])));
        refuses(|| drop(ConvWeights::backward(set, &geometry, &[])));
    }
}

#[test]
fn cells_refuse_them() {
    let one = [1.0];
    let affine = Affine { scale: &one, offset: &one };
    let parameters = CellParameters { conv_a: &[], norm_1: affine, conv_b: &[], norm_2: affine, norm_3: affine };
    for (height, width, channels) in
        [(HALF, 2, 1), (ROOT, ROOT, 1), (1, 1, HALF), (ROOT / 2, ROOT, 1), (1, usize::MAX, usize::MAX)]
    {
        let cell = ResidualCell { height, width, channels, groups: 1, activation: Activation::Relu, scope: NormScope::Plane };
        refuses(|| drop(PreparedCell::new(InstructionSet::best(), &cell, parameters)));
    }
}

#[test]
fn dense_layers_embeddings_losses_and_neighbours_refuse_them() {
    let set = InstructionSet::best();
    for (rows, inputs, outputs) in [(HALF, 2, 1), (2, HALF, 0), (ROOT, 1, ROOT), (0, ROOT, ROOT)] {
        let shape = DenseShape { rows, inputs, outputs };
        refuses(|| dense::forward(set, shape, &[], &[], Addend::Nothing, None, &mut []));
        refuses(|| dense::add_weight_gradient(set, shape, &[], &[], &mut []));
        refuses(|| dense::input_gradient(set, shape, &[], &[], &mut [], false));
    }
    refuses(|| embedding::gather(&[], HALF, &[0, 0], &mut []));
    refuses(|| embedding::scatter_add(&[], HALF, &[0, 0], &mut []));
    let rows = loss::Predictions { logits: &[], classes: HALF, targets: &[0, 0], ignored: None };
    refuses(|| assert!(loss::cross_entropy(set, rows).count > 0));
    let voters = neighbours::Voters { labels: &[0], neighbours: 1, classes: HALF };
    refuses(|| neighbours::vote(set, voters, &[0.0, 0.0], &mut []));
}

#[test]
fn transformer_layers_refuse_them() {
    let shape = |length, width, hidden| LayerShape { batch: 1, length, width, heads: 1, hidden };
    for shape in [shape(1, ROOT, 1), shape(1, 2, HALF)] {
        refuses(|| assert!(LayerParts::lengths(&shape).output.bias > 0));
    }
    refuses(|| drop(Blocked::new(ROOT, &[])));
}
