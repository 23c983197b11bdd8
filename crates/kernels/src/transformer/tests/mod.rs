//! Layers and stacks against [`reference`], and its finite differences.
mod reference;

use super::*;
use crate::InstructionSet;

/// Batch, length, width, heads, hidden: less than a vector, some more, several groups of sequences, several slices of the MLP.
const SMALL: [[usize; 5]; 7] = [
    [3, 5, 6, 2, 10],
    [2, 7, 6, 3, 10],
    [2, 1, 6, 2, 10],
    [25, 3, 4, 1, 5],
    [1, 3, 17, 1, 3],
    [2, 18, 4, 2, 3],
    [1, 2, 2, 1, 70],
];
const LARGE: [[usize; 5]; 3] = [[9, 16, 64, 4, 256], [2, 80, 64, 4, 256], [2, 67, 33, 3, 130]];

fn shape([batch, length, width, heads, hidden]: [usize; 5]) -> LayerShape {
    LayerShape { batch, length, width, heads, hidden }
}

/// Numbers between -1 and 1.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// A stack of two layers and all that it is run on.
struct Case {
    shape: LayerShape,
    layers: Vec<LayerParts<Vec<f32>>>,
    norm: NormParts<Vec<f32>>,
    z: Vec<f32>,
    injection: Vec<f32>,
    blocked: Vec<bool>,
    /// `[batch, 4, length, width]`.
    dropout: Option<Vec<f32>>,
}

const LAYERS: usize = 2;

impl Case {
    fn new(shape: LayerShape, with_dropout: bool) -> Self {
        let (count, width) = (shape.numbers(), shape.width);
        let dropout = |x: &f32| if *x < -0.5 { 0.0 } else { 4.0 / 3.0 };
        Self {
            shape,
            layers: (0..LAYERS).map(|layer| parameters(&shape, 100 * (layer + 1))).collect(),
            norm: NormParts { scale: numbers(width, 1), offset: numbers(width, 2) },
            z: numbers(count, 3),
            injection: numbers(count, 4),
            blocked: blocked(&shape),
            dropout: with_dropout.then(|| numbers(2 * LAYERS * count, 5).iter().map(dropout).collect()),
        }
    }

    fn stack(&self, set: InstructionSet) -> Stack {
        let layers: Vec<_> = self.layers.iter().map(|layer| layer.map(Vec::as_slice)).collect();
        Stack::new(set, self.shape, &layers, self.norm.view())
    }

    fn exact(&self) -> Exact {
        let layers = self.layers.iter().map(|layer| layer.map(|part| wide(part))).collect();
        let norm = NormParts { scale: wide(&self.norm.scale), offset: wide(&self.norm.offset) };
        let masks = (0..LAYERS)
            .map(|layer| reference::Masks {
                blocked: self.blocked.clone(),
                dropout: [self.site(2 * layer), self.site(2 * layer + 1)],
            })
            .collect();
        Exact { shape: self.shape, layers, norm, z: wide(&self.z), injection: wide(&self.injection), masks }
    }

    /// The multipliers of one site, `[batch, length, width]`.
    fn site(&self, index: usize) -> Vec<f64> {
        let each = self.shape.length * self.shape.width;
        match &self.dropout {
            None => vec![1.0; self.shape.numbers()],
            Some(all) => all.chunks_exact(2 * LAYERS * each).flat_map(|all| wide(&all[index * each..][..each])).collect(),
        }
    }

    fn forward(&self, set: InstructionSet) -> Vec<f32> {
        let blocked = Blocked::new(self.shape.length, &self.blocked);
        let mut out = vec![0.0; self.z.len()];
        self.stack(set).step(&self.z, &self.injection, self.masks(&blocked), &mut out, &mut StackScratch::default());
        out
    }

    fn masks<'a>(&'a self, blocked: &'a Blocked) -> StackMasks<'a> {
        StackMasks { blocked, dropout: self.dropout.as_deref() }
    }

    /// One sequence of the batch.
    fn only(&self, sequence: usize) -> Self {
        let part = |x: &[f32]| x[sequence * x.len() / self.shape.batch..][..x.len() / self.shape.batch].to_vec();
        let scores = self.shape.length * self.shape.length;
        Self {
            shape: LayerShape { batch: 1, ..self.shape },
            layers: self.layers.clone(),
            norm: self.norm.clone(),
            z: part(&self.z),
            injection: part(&self.injection),
            blocked: self.blocked[sequence * scores..][..scores].to_vec(),
            dropout: self.dropout.as_deref().map(part),
        }
    }
}

fn parameters(shape: &LayerShape, seed: usize) -> LayerParts<Vec<f32>> {
    let mut seed = seed;
    let scale = 1.7 / (shape.width as f32).sqrt();
    LayerParts::lengths(shape).map(|&length| {
        seed += 1;
        let scale = if length > shape.width.max(shape.hidden) { scale } else { 1.0 };
        numbers(length, seed).iter().map(|x| x * scale).collect()
    })
}

/// The future, and about a fifth of the keys: never the first of the first sequence, and always that of the second, whose first
/// position then sees nothing at all.
fn blocked(shape: &LayerShape) -> Vec<bool> {
    let length = shape.length;
    let mut padding: Vec<bool> = numbers(shape.batch * length, 6).iter().map(|&x| x < -0.6).collect();
    for (sequence, padding) in padding.chunks_exact_mut(length).enumerate().take(2) {
        padding[0] = sequence == 1;
    }
    let flag = |sequence: usize, query: usize, key: usize| key > query || padding[sequence * length + key];
    let each = |sequence| (0..length * length).map(move |at| flag(sequence, at / length, at % length));
    (0..shape.batch).flat_map(each).collect()
}

/// A [`Case`] in double precision.
struct Exact {
    shape: LayerShape,
    layers: Vec<LayerParts<Vec<f64>>>,
    norm: NormParts<Vec<f64>>,
    z: Vec<f64>,
    injection: Vec<f64>,
    masks: Vec<reference::Masks>,
}

impl Exact {
    fn forward(&self) -> Vec<f64> {
        let layers = self.layers.iter().zip(&self.masks);
        let h = layers.fold(self.z.clone(), |h, (layer, masks)| reference::layer(&self.shape, layer, &h, &self.injection, masks));
        reference::norm(&self.norm, &h)
    }

    /// The derivative of `<v, g>` for each number of what `choose` points at.
    fn derivatives(&mut self, v: &[f32], choose: impl Fn(&mut Self) -> &mut Vec<f64>) -> Vec<f64> {
        let count = choose(self).len();
        (0..count).map(|at| self.derivative(v, at, &choose)).collect()
    }

    fn derivative(&mut self, v: &[f32], at: usize, choose: &impl Fn(&mut Self) -> &mut Vec<f64>) -> f64 {
        const STEP: f64 = 1e-5;
        let before = choose(self)[at];
        let [above, below] = [before + STEP, before - STEP].map(|value| {
            choose(self)[at] = value;
            self.forward().iter().zip(v).map(|(g, &v)| g * f64::from(v)).sum::<f64>()
        });
        choose(self)[at] = before;
        (above - below) / (2.0 * STEP)
    }
}

fn assert_near(found: &[f32], expected: &[f64], scale: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs() / scale;
        assert!(error < 5e-6, "{what} at {at}: {found} for {expected}, {error:e} of {scale}");
    }
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |largest, x| x.abs().max(largest))
}

#[test]
fn a_stack_computes_what_its_formulas_say() {
    for sizes in SMALL.into_iter().chain(LARGE) {
        for with_dropout in [false, true] {
            let case = Case::new(shape(sizes), with_dropout);
            let expected = case.exact().forward();
            for set in InstructionSet::available() {
                assert_near(&case.forward(set), &expected, largest(&expected), &format!("{} {sizes:?}", set.name()));
            }
        }
    }
}

/// Everything a backward pass says.
struct Gradients {
    z: Vec<f32>,
    injection: Vec<f32>,
    parameters: StackGradients,
    /// From a pass without the parameters.
    pulled_back: Vec<f32>,
    /// What the forward pass before it said.
    out: Vec<f32>,
}

fn gradients(case: &Case, set: InstructionSet, v: &[f32]) -> Gradients {
    let (stack, blocked) = (case.stack(set), Blocked::new(case.shape.length, &case.blocked));
    let (masks, mut saved, mut scratch) = (case.masks(&blocked), StackSaved::default(), StackScratch::default());
    let [mut z, mut injection, mut pulled_back, mut out] = [(); 4].map(|()| vec![7.0; v.len()]);
    let mut parameters = stack.zero_gradients();
    stack.step_saving(&case.z, &case.injection, masks, &mut out, &mut saved, &mut scratch);
    stack.backward(&saved, masks, v, &mut z, &mut injection, &mut parameters, &mut scratch);
    stack.pull_back(&saved, masks, v, &mut pulled_back, &mut scratch);
    Gradients { z, injection, parameters, pulled_back, out }
}

#[test]
fn gradients_are_the_limits_of_finite_differences() {
    for (index, sizes) in SMALL.into_iter().enumerate() {
        let case = Case::new(shape(sizes), index % 2 == 0);
        let (mut exact, v) = (case.exact(), numbers(case.z.len(), 9));
        let found: Vec<_> = InstructionSet::available().into_iter().map(|set| (set, gradients(&case, set, &v))).collect();
        let agree = |part: &dyn Fn(&Gradients) -> &Vec<f32>, expected: &[f64], what: String| {
            for (set, found) in &found {
                assert_near(part(found), expected, largest(expected).max(1.0), &format!("{} {sizes:?} {what}", set.name()));
            }
        };
        agree(&|found| &found.z, &exact.derivatives(&v, |exact| &mut exact.z), "z".into());
        agree(&|found| &found.injection, &exact.derivatives(&v, |exact| &mut exact.injection), "injection".into());
        agree(&|found| &found.parameters.norm.scale, &exact.derivatives(&v, |exact| &mut exact.norm.scale), "scale".into());
        agree(&|found| &found.parameters.norm.offset, &exact.derivatives(&v, |exact| &mut exact.norm.offset), "offset".into());
        for (layer, part) in (0..LAYERS * 16).map(|at| (at / 16, at % 16)) {
            let expected = exact.derivatives(&v, |exact| exact.layers[layer].as_mut_array().into_iter().nth(part).unwrap());
            agree(&|found| found.parameters.layers[layer].as_array()[part], &expected, format!("layer {layer} part {part}"));
        }
    }
}

#[test]
fn passes_that_save_or_pull_back_say_the_same_bit_for_bit() {
    for sizes in SMALL.into_iter().chain(LARGE) {
        for set in InstructionSet::available() {
            let case = Case::new(shape(sizes), true);
            let found = gradients(&case, set, &numbers(case.z.len(), 9));
            assert_eq!(found.out, case.forward(set), "{} {sizes:?}", set.name());
            assert_eq!(found.pulled_back, found.z, "{} {sizes:?}", set.name());
        }
    }
}

#[test]
fn a_sequence_does_not_depend_on_the_others_bit_for_bit() {
    for sizes in SMALL.into_iter().chain(LARGE) {
        for set in InstructionSet::available() {
            let case = Case::new(shape(sizes), true);
            let alone: Vec<f32> = (0..case.shape.batch).flat_map(|sequence| case.only(sequence).forward(set)).collect();
            assert_eq!(alone, case.forward(set), "{} {sizes:?}", set.name());
        }
    }
}

#[test]
fn memory_used_before_changes_no_bit() {
    let set = InstructionSet::best();
    let (mut saved, mut scratch) = (StackSaved::default(), StackScratch::default());
    for sizes in SMALL.into_iter().chain(LARGE).chain(SMALL) {
        let case = Case::new(shape(sizes), true);
        let blocked = Blocked::new(case.shape.length, &case.blocked);
        let (stack, masks, v) = (case.stack(set), case.masks(&blocked), numbers(case.z.len(), 9));
        let [mut out, mut z] = [(); 2].map(|()| vec![7.0; v.len()]);
        stack.step_saving(&case.z, &case.injection, masks, &mut out, &mut saved, &mut scratch);
        stack.pull_back(&saved, masks, &v, &mut z, &mut scratch);
        let fresh = gradients(&case, set, &v);
        assert_eq!((out, z), (fresh.out, fresh.z), "{sizes:?}");
    }
}
