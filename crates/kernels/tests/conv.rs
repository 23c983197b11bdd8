//! Convolutions and their gradients against their definition in `f64`, on all instruction sets of this machine.
use fedeq_kernels::InstructionSet;
use fedeq_kernels::conv::{self, ConvScratch, ConvWeights, Geometry};
use proptest::prelude::*;

/// Numbers between minus one and one, without order.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Tells all places in `y`, `x` and `w` that the definition multiplies.
fn each_term(geometry: &Geometry, mut visit: impl FnMut(usize, usize, usize)) {
    let Geometry { batch, height, width, from, to, window, stride } = *geometry;
    let [rows, columns] = [height.div_ceil(stride), width.div_ceil(stride)];
    let above = ((rows - 1) * stride + window).saturating_sub(height) / 2;
    let left = ((columns - 1) * stride + window).saturating_sub(width) / 2;
    for sample in 0..batch {
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            for (u, v) in (0..window).flat_map(|u| (0..window).map(move |v| (u, v))) {
                let (row, column) = ((i * stride + u).wrapping_sub(above), (j * stride + v).wrapping_sub(left));
                if row >= height || column >= width {
                    continue;
                }
                let y = ((sample * rows + i) * columns + j) * to;
                let x = ((sample * height + row) * width + column) * from;
                for o in 0..to {
                    (0..from).for_each(|c| visit(y + o, x + c, ((o * from + c) * window + u) * window + v));
                }
            }
        }
    }
}

/// The largest error, as a share of the largest value.
fn error(found: &[f32], expected: &[f64]) -> f64 {
    let scale = expected.iter().fold(1.0f64, |scale, value| scale.max(value.abs()));
    found.iter().zip(expected).map(|(&found, expected)| (f64::from(found) - expected).abs()).fold(0.0, f64::max) / scale
}

struct Case {
    geometry: Geometry,
    x: Vec<f32>,
    w: Vec<f32>,
    dy: Vec<f32>,
}

impl Case {
    fn new(geometry: Geometry) -> Self {
        let (x, w, dy) = (geometry.input_len(), geometry.weight_len(), geometry.output_len());
        Self { geometry, x: numbers(x, 1), w: numbers(w, 2), dy: numbers(dy, 3) }
    }

    /// `y`, `dx` and `dw` by their definition.
    fn expected(&self) -> [Vec<f64>; 3] {
        let (mut y, mut dx, mut dw) = (vec![0.0; self.dy.len()], vec![0.0; self.x.len()], vec![0.0; self.w.len()]);
        each_term(&self.geometry, |at_y, at_x, at_w| {
            let [x, w, g] = [self.x[at_x], self.w[at_w], self.dy[at_y]].map(f64::from);
            y[at_y] += x * w;
            dx[at_x] += g * w;
            dw[at_w] += g * x;
        });
        [y, dx, dw]
    }

    /// `y`, `dx` and `dw` by the kernels.
    fn found(&self, set: InstructionSet, scratch: &mut ConvScratch) -> [Vec<f32>; 3] {
        let Self { geometry, x, w, dy } = self;
        let [mut y, mut dx, mut dw] = [dy, x, w].map(|like| vec![f32::NAN; like.len()]);
        let other_batch = Geometry { batch: 7, ..*geometry };
        conv::forward(set, geometry, x, &ConvWeights::forward(set, &other_batch, w), &mut y, scratch);
        conv::input_gradient(set, geometry, dy, &ConvWeights::backward(set, geometry, w), &mut dx, scratch);
        conv::weight_gradient(set, geometry, x, dy, &mut dw, scratch);
        [y, dx, dw]
    }

    /// `y` and `dx` by the kernels that prepare their weights themselves.
    fn found_once(&self, set: InstructionSet, scratch: &mut ConvScratch) -> [Vec<f32>; 2] {
        let Self { geometry, x, w, dy } = self;
        let [mut y, mut dx] = [dy, x].map(|like| vec![f32::NAN; like.len()]);
        conv::forward_once(set, geometry, x, w, &mut y, scratch);
        conv::input_gradient_once(set, geometry, dy, w, &mut dx, scratch);
        [y, dx]
    }

    fn holds_on_all_sets(&self, scratch: &mut ConvScratch) {
        let expected = self.expected();
        for set in InstructionSet::available() {
            let (found, once) = (self.found(set, scratch), self.found_once(set, scratch));
            let all = found.iter().zip(&expected).chain(once.iter().zip(&expected));
            for (name, (found, expected)) in ["y", "dx", "dw", "y once", "dx once"].iter().zip(all) {
                let error = error(found, expected);
                assert!(error < 2e-5, "{} {name} {:?}: {error}", set.name(), self.geometry);
            }
        }
    }
}

#[test]
fn convolutions_and_gradients_agree_with_their_definition() {
    let mut scratch = ConvScratch::new();
    let channels = [(1, 5), (3, 16), (5, 3), (16, 17), (17, 24), (24, 64), (64, 16), (8, 8), (33, 40)];
    for (index, (from, to)) in channels.into_iter().enumerate() {
        for (window, stride) in [(1, 1), (1, 2), (3, 1), (3, 2)] {
            for size in [1 + index % 4, 5 + index % 5, 10 + index % 8] {
                let geometry =
                    Geometry { batch: 1 + size % 3, height: size, width: 1 + (size * 5) % 11, from, to, window, stride };
                Case::new(geometry).holds_on_all_sets(&mut scratch);
            }
        }
    }
}

#[test]
fn wide_windows_and_long_strides_agree_with_their_definition() {
    for (window, stride) in [(5, 1), (5, 2), (7, 2), (3, 3), (1, 3)] {
        for (from, to) in [(3, 18), (18, 3)] {
            let geometry = Geometry { batch: 2, height: 6, width: 5, from, to, window, stride };
            Case::new(geometry).holds_on_all_sets(&mut ConvScratch::new());
        }
    }
}

#[test]
fn weights_prepared_piece_by_piece_agree_with_their_definition() {
    for (size, from, to) in [(4, 128, 150), (5, 140, 128), (7, 96, 96)] {
        let geometry = Geometry { batch: 2, height: size, width: size, from, to, window: 3, stride: 1 };
        Case::new(geometry).holds_on_all_sets(&mut ConvScratch::new());
    }
}

#[test]
fn many_blocks_of_tiles_agree_with_their_definition() {
    let geometry = Geometry { batch: 3, height: 17, width: 17, from: 64, to: 64, window: 3, stride: 1 };
    Case::new(geometry).holds_on_all_sets(&mut ConvScratch::new());
    Case::new(Geometry { stride: 2, ..geometry }).holds_on_all_sets(&mut ConvScratch::new());
}

#[test]
fn an_empty_batch_gives_no_output_and_no_gradient() {
    for (from, stride) in [(1, 1), (4, 1), (4, 2)] {
        let case = Case::new(Geometry { batch: 0, height: 5, width: 5, from, to: 6, window: 3, stride });
        let [y, dx, dw] = case.found(InstructionSet::best(), &mut ConvScratch::new());
        assert!(y.is_empty() && dx.is_empty() && dw.iter().all(|&number| number == 0.0));
    }
}

#[test]
fn repeating_gives_the_same_bits() {
    let case = Case::new(Geometry { batch: 2, height: 9, width: 7, from: 20, to: 36, window: 3, stride: 1 });
    let set = InstructionSet::best();
    let mut scratch = ConvScratch::new();
    let bits = |found: [Vec<f32>; 3]| found.map(|numbers| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    let first = bits(case.found(set, &mut scratch));
    Case::new(Geometry { batch: 3, height: 13, width: 5, from: 40, to: 9, window: 3, stride: 1 }).found(set, &mut scratch);
    assert_eq!(first, bits(case.found(set, &mut scratch)));
}

#[test]
fn updated_weights_are_those_prepared_anew() {
    let set = InstructionSet::best();
    for stride in [1, 2] {
        let case = Case::new(Geometry { batch: 1, height: 6, width: 6, from: 9, to: 11, window: 3, stride });
        let mut weights = ConvWeights::forward(set, &case.geometry, &numbers(case.w.len(), 9));
        weights.update(set, &case.w);
        let mut y = vec![0.0; case.dy.len()];
        conv::forward(set, &case.geometry, &case.x, &weights, &mut y, &mut ConvScratch::new());
        assert_eq!(y, case.found(set, &mut ConvScratch::new())[0]);
    }
}

#[test]
#[should_panic(expected = "numbers in the input")]
fn an_input_of_the_wrong_length_is_refused() {
    let geometry = Geometry { batch: 1, height: 2, width: 2, from: 1, to: 1, window: 3, stride: 1 };
    let set = InstructionSet::best();
    let weights = ConvWeights::forward(set, &geometry, &[0.0; 9]);
    conv::forward(set, &geometry, &[0.0; 3], &weights, &mut [0.0; 4], &mut ConvScratch::new());
}

fn geometries() -> impl Strategy<Value = Geometry> {
    let sizes = (1..=3usize, 1..=12usize, 1..=12usize);
    let channels = (1..=40usize, 1..=40usize);
    (sizes, channels, prop_oneof![Just(1usize), Just(3)], 1..=2usize).prop_map(
        |((batch, height, width), (from, to), window, stride)| Geometry { batch, height, width, from, to, window, stride },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn gradients_are_adjoints(geometry in geometries()) {
        let case = Case::new(geometry);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let length = |a: &[f32]| dot(a, a).sqrt();
        for set in InstructionSet::available() {
            let [y, dx, dw] = case.found(set, &mut ConvScratch::new());
            let scale = length(&y) * length(&case.dy) + 1.0;
            let forward = dot(&y, &case.dy);
            prop_assert!((forward - dot(&case.x, &dx)).abs() < 1e-5 * scale);
            prop_assert!((forward - dot(&case.w, &dw)).abs() < 1e-5 * scale);
        }
    }
}
