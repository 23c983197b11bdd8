//! One transformer layer, forward and backward.
use std::ops::Range;
use std::sync::OnceLock;

use super::attention::{Attend, AttendBackward, ProjectionGradients, Projections};
use super::layer_norm::{Standardised, layer_norm, layer_norm_backward, layer_norm_saving};
use super::mlp::{self, Hidden, Mlp, MlpTransposed};
use super::parameters::{DropoutMultipliers, LayerGradients, LayerParameters, LayerParts, LayerShape, Linear, Masks, NormParts};
use crate::InstructionSet;
use crate::dense::{add_product, affine, set_product};
use crate::vectors::{fit, transpose};

/// How many positions are worked on at a time: enough to use each weight often, few enough to stay in the nearest cache.
const POSITIONS: usize = 64;

/// A layer ready to run: `h <- h + injection`, `h <- h + drop(attention(norm_1(h)))`, `h <- h + drop(mlp(norm_2(h)))`, on
/// `[batch, length, width]`.
///
/// What happens to a sequence does not depend on the others, bit for bit.
#[derive(Clone, Debug)]
pub struct PreparedLayer {
    set: InstructionSet,
    shape: LayerShape,
    norm_1: NormParts<Vec<f32>>,
    query: Linear<Vec<f32>>,
    key: Linear<Vec<f32>>,
    value: Linear<Vec<f32>>,
    output: Linear<Vec<f32>>,
    norm_2: NormParts<Vec<f32>>,
    mlp: Mlp,
    /// Made when first needed.
    transposed: OnceLock<Transposed>,
    /// Memory for the next ones.
    spare: Transposed,
}

/// Weights for the way back.
#[derive(Clone, Debug, Default)]
struct Transposed {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    output: Vec<f32>,
    mlp: MlpTransposed,
}

/// What the backward pass of a layer needs; its memory can be used again.
#[derive(Clone, Debug, Default)]
pub struct LayerSaved {
    groups: Vec<Activations>,
}

/// What was computed on the way for some sequences.
#[derive(Clone, Debug, Default)]
struct Activations {
    norm_1: Standardised,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    /// `[sequences, heads, key, query]`.
    weights: Vec<f32>,
    attended: Vec<f32>,
    norm_2: Standardised,
    hidden: Hidden,
}

/// Memory to work in; it grows when first used and can be shared by all layers.
#[derive(Clone, Debug, Default)]
pub struct LayerScratch {
    activations: Activations,
    normal: Vec<f32>,
    said: Vec<f32>,
    hidden: Vec<f32>,
    transposed: Vec<f32>,
    scores: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
}

impl PreparedLayer {
    /// Copies the parameters into the order they are read in.
    ///
    /// # Panics
    ///
    /// If the heads cannot share the width evenly, or a parameter has the wrong length.
    pub fn new(set: InstructionSet, shape: LayerShape, parameters: &LayerParameters<'_>) -> Self {
        assert!(
            shape.heads > 0 && shape.width > 0 && shape.width.is_multiple_of(shape.heads),
            "heads must share the width evenly"
        );
        assert!(shape.length > 0 && shape.hidden > 0, "a layer needs positions and hidden numbers");
        check_parameters(&shape, parameters);
        Self {
            set,
            shape,
            norm_1: parameters.norm_1.owned(),
            query: parameters.query.owned(),
            key: parameters.key.owned(),
            value: parameters.value.owned(),
            output: parameters.output.owned(),
            norm_2: parameters.norm_2.owned(),
            mlp: Mlp::new(shape.width, &parameters.widen, &parameters.narrow),
            transposed: OnceLock::new(),
            spare: Transposed::default(),
        }
    }

    /// Other parameters, in the same memory.
    ///
    /// # Panics
    ///
    /// If a parameter has the wrong length.
    pub fn update(&mut self, parameters: &LayerParameters<'_>) {
        check_parameters(&self.shape, parameters);
        let LayerParts { norm_1, query, key, value, output, norm_2, widen, narrow } = parameters;
        norm_1.copy_to(&mut self.norm_1);
        norm_2.copy_to(&mut self.norm_2);
        for (from, to) in [(query, &mut self.query), (key, &mut self.key), (value, &mut self.value), (output, &mut self.output)] {
            from.copy_to(to);
        }
        self.mlp.update(widen, narrow);
        if let Some(transposed) = self.transposed.take() {
            self.spare = transposed;
        }
    }

    /// Prepares for the way back, in memory that served it before. (Without this, the first step back does it in new memory.)
    pub fn turn(&mut self) {
        if self.transposed.get().is_none() {
            let mut spare = std::mem::take(&mut self.spare);
            self.transpose_to(&mut spare);
            self.transposed = OnceLock::from(spare);
        }
    }

    /// The same for batches of another size.
    pub fn set_batch(&mut self, batch: usize) {
        self.shape.batch = batch;
    }

    /// The sizes it was made for.
    pub fn shape(&self) -> LayerShape {
        self.shape
    }

    /// Applies the layer. Allocates nothing once `scratch` has been used.
    ///
    /// # Panics
    ///
    /// If a slice does not fit the shape; so do the other passes.
    pub fn forward(&self, h: &[f32], injection: &[f32], masks: Masks<'_>, out: &mut [f32], scratch: &mut LayerScratch) {
        out.copy_from_slice(h);
        self.forward_in_place(out, injection, masks, scratch);
    }

    /// [`PreparedLayer::forward`] whose result takes the place of its input.
    pub fn forward_in_place(&self, h: &mut [f32], injection: &[f32], masks: Masks<'_>, scratch: &mut LayerScratch) {
        self.check(h, injection, masks);
        let mut activations = std::mem::take(&mut scratch.activations);
        for group in self.groups() {
            let h = &mut h[self.numbers(&group)];
            add(h, &injection[self.numbers(&group)]);
            layer_norm(self.set, h, self.norm_1.view(), fit(&mut scratch.normal, h.len()));
            self.attention(&group, h, masks, &mut activations, scratch);
            layer_norm(self.set, h, self.norm_2.view(), fit(&mut scratch.normal, h.len()));
            self.mlp.forward(self.set, &scratch.normal, fit(&mut scratch.said, h.len()), &mut scratch.hidden);
            self.add_dropped(&group, h, &scratch.said, masks.mlp);
        }
        scratch.activations = activations;
    }

    /// [`PreparedLayer::forward_in_place`] that keeps what the backward pass needs. The result has the same bits.
    pub fn forward_saving(
        &self,
        h: &mut [f32],
        injection: &[f32],
        masks: Masks<'_>,
        saved: &mut LayerSaved,
        scratch: &mut LayerScratch,
    ) {
        self.check(h, injection, masks);
        saved.groups.resize_with(self.groups().count(), Activations::default);
        for (group, kept) in self.groups().zip(&mut saved.groups) {
            let h = &mut h[self.numbers(&group)];
            add(h, &injection[self.numbers(&group)]);
            layer_norm_saving(self.set, h, self.norm_1.view(), fit(&mut scratch.normal, h.len()), &mut kept.norm_1);
            self.attention(&group, h, masks, kept, scratch);
            layer_norm_saving(self.set, h, self.norm_2.view(), fit(&mut scratch.normal, h.len()), &mut kept.norm_2);
            self.mlp.forward_saving(self.set, &scratch.normal, fit(&mut scratch.said, h.len()), &mut kept.hidden);
            self.add_dropped(&group, h, &scratch.said, masks.mlp);
        }
    }

    /// From the gradient of the result to that of `h`, in place, adding the gradients of the parameters to `sums`.
    ///
    /// The gradient of the injection is the same as that of `h`.
    pub fn backward(
        &self,
        saved: &LayerSaved,
        masks: Masks<'_>,
        gradient: &mut [f32],
        sums: &mut LayerGradients,
        scratch: &mut LayerScratch,
    ) {
        self.backward_groups(saved, masks, gradient, Some(sums), scratch);
    }

    /// [`PreparedLayer::backward`] without the parameters: from `v` to `(d out / d h)^T v`, in place.
    pub fn pull_back(&self, saved: &LayerSaved, masks: Masks<'_>, v: &mut [f32], scratch: &mut LayerScratch) {
        self.backward_groups(saved, masks, v, None, scratch);
    }

    fn backward_groups(
        &self,
        saved: &LayerSaved,
        masks: Masks<'_>,
        gradient: &mut [f32],
        mut sums: Option<&mut LayerGradients>,
        scratch: &mut LayerScratch,
    ) {
        self.check(gradient, gradient, masks);
        assert_eq!(saved.groups.len(), self.groups().count(), "what was saved must fit the shape");
        for (group, kept) in self.groups().zip(&saved.groups) {
            let gradient = &mut gradient[self.numbers(&group)];
            self.mlp_backward(&group, kept, masks, gradient, sums.as_deref_mut(), scratch);
            self.attention_backward(&group, kept, masks, gradient, sums.as_deref_mut(), scratch);
        }
    }

    fn check(&self, h: &[f32], injection: &[f32], masks: Masks<'_>) {
        let numbers = self.shape.numbers();
        assert!(h.len() == numbers && injection.len() == numbers, "h and injection must be [batch, length, width]");
        assert!(masks.blocked.fits(&self.shape), "blocked must be [batch, length, length]");
    }

    /// The sequences, a few at a time.
    fn groups(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (batch, each) = (self.shape.batch, (POSITIONS / self.shape.length).max(1));
        (0..batch).step_by(each).map(move |first| first..batch.min(first + each))
    }

    /// Where the numbers of some sequences are.
    fn numbers(&self, group: &Range<usize>) -> Range<usize> {
        group.start * self.shape.sequence()..group.end * self.shape.sequence()
    }

    /// `h <- h + drop(attention(x))`, where `x` is `scratch.normal`.
    fn attention(
        &self,
        group: &Range<usize>,
        h: &mut [f32],
        masks: Masks<'_>,
        kept: &mut Activations,
        scratch: &mut LayerScratch,
    ) {
        let LayerScratch { normal, said, transposed, .. } = scratch;
        let projected = [(&self.query, &mut kept.query), (&self.key, &mut kept.key), (&self.value, &mut kept.value)];
        for (linear, to) in projected {
            affine(self.set, normal, &linear.weight, &linear.bias, fit(to, h.len()));
        }
        self.attend(group, masks, kept, transposed);
        affine(self.set, &kept.attended, &self.output.weight, &self.output.bias, fit(said, h.len()));
        self.add_dropped(group, h, said, masks.attention);
    }

    /// From projections to what the heads say, sequence by sequence.
    fn attend(&self, group: &Range<usize>, masks: Masks<'_>, kept: &mut Activations, transposed: &mut Vec<f32>) {
        let (each, scores) = (self.shape.sequence(), self.scores());
        let weights = fit(&mut kept.weights, group.len() * scores).chunks_exact_mut(scores);
        let attended = fit(&mut kept.attended, group.len() * each).chunks_exact_mut(each);
        for ((index, sequence), (weights, attended)) in group.clone().enumerate().zip(weights.zip(attended)) {
            let at = index * each..(index + 1) * each;
            let projections = Projections { query: &kept.query[at.clone()], key: &kept.key[at.clone()], value: &kept.value[at] };
            let (blocked, transposed) = (masks.blocked.sequence(sequence), fit(transposed, each));
            self.set.run(Attend { shape: self.shape, projections, blocked, transposed, weights, attended });
        }
    }

    /// Scores of a sequence, all heads.
    fn scores(&self) -> usize {
        self.shape.heads * self.shape.length * self.shape.length
    }

    /// `h <- h + drop(said)`
    fn add_dropped(&self, group: &Range<usize>, h: &mut [f32], said: &[f32], dropout: Option<DropoutMultipliers<'_>>) {
        let Some(dropout) = dropout else { return add(h, said) };
        let each = self.shape.sequence();
        for (sequence, (h, said)) in group.clone().zip(h.chunks_exact_mut(each).zip(said.chunks_exact(each))) {
            for ((h, said), multiplier) in h.iter_mut().zip(said).zip(dropout.sequence(sequence, each)) {
                *h += said * multiplier;
            }
        }
    }

    /// The gradient before dropout.
    fn undropped<'a>(
        &self,
        group: &Range<usize>,
        gradient: &'a [f32],
        dropout: Option<DropoutMultipliers<'_>>,
        buffer: &'a mut Vec<f32>,
    ) -> &'a [f32] {
        let Some(dropout) = dropout else { return gradient };
        let each = self.shape.sequence();
        let result = fit(buffer, gradient.len());
        for (sequence, (to, from)) in group.clone().zip(result.chunks_exact_mut(each).zip(gradient.chunks_exact(each))) {
            for ((to, from), multiplier) in to.iter_mut().zip(from).zip(dropout.sequence(sequence, each)) {
                *to = from * multiplier;
            }
        }
        result
    }

    /// `dh <- dh + norm_2'(mlp'(drop(dh)))`
    fn mlp_backward(
        &self,
        group: &Range<usize>,
        kept: &Activations,
        masks: Masks<'_>,
        gradient: &mut [f32],
        mut sums: Option<&mut LayerGradients>,
        scratch: &mut LayerScratch,
    ) {
        let LayerScratch { normal, said, hidden, query: dropped, .. } = scratch;
        let input_gradient = fit(said, gradient.len());
        let pass = mlp::Backward {
            transposed: &self.transposed().mlp,
            saved: &kept.hidden,
            gradient: self.undropped(group, gradient, masks.mlp, dropped),
            input_gradient,
            scratch: hidden,
        };
        let wanted = sums.as_deref_mut().map(|sums| {
            kept.norm_2.output(self.norm_2.view(), fit(normal, pass.gradient.len()));
            mlp::MlpGradients { x: normal, widen: &mut sums.widen, narrow: &mut sums.narrow }
        });
        self.mlp.backward(self.set, pass, wanted);
        layer_norm_backward(self.set, &kept.norm_2, self.norm_2.view(), said, gradient, sums.map(|sums| &mut sums.norm_2));
    }

    /// `dh <- dh + norm_1'(attention'(drop(dh)))`
    fn attention_backward(
        &self,
        group: &Range<usize>,
        kept: &Activations,
        masks: Masks<'_>,
        gradient: &mut [f32],
        mut sums: Option<&mut LayerGradients>,
        scratch: &mut LayerScratch,
    ) {
        let (transposed, width) = (self.transposed(), self.shape.width);
        let said = self.undropped(group, gradient, masks.attention, &mut scratch.query);
        if let Some(sums) = sums.as_deref_mut() {
            sums.output.add_gradient(self.set, &kept.attended, said);
        }
        let mut attended = std::mem::take(&mut scratch.said);
        set_product(self.set, said, &transposed.output, fit(&mut attended, gradient.len()), width);
        self.attend_backward(group, kept, masks, &attended, scratch);
        let LayerScratch { normal, query, key, value, .. } = &mut *scratch;
        let input_gradient = &mut attended;
        set_product(self.set, query, &transposed.query, input_gradient, width);
        add_product(self.set, key, &transposed.key, input_gradient, width);
        add_product(self.set, value, &transposed.value, input_gradient, width);
        if let Some(sums) = sums.as_deref_mut() {
            kept.norm_1.output(self.norm_1.view(), fit(normal, gradient.len()));
            sums.query.add_gradient(self.set, normal, query);
            sums.key.add_gradient(self.set, normal, key);
            sums.value.add_gradient(self.set, normal, value);
        }
        layer_norm_backward(
            self.set,
            &kept.norm_1,
            self.norm_1.view(),
            input_gradient,
            gradient,
            sums.map(|sums| &mut sums.norm_1),
        );
        scratch.said = attended;
    }

    /// From the gradient of what the heads say to those of the projections, `scratch`'s query, key and value.
    fn attend_backward(
        &self,
        group: &Range<usize>,
        kept: &Activations,
        masks: Masks<'_>,
        gradient: &[f32],
        scratch: &mut LayerScratch,
    ) {
        let (each, scores) = (self.shape.sequence(), self.scores());
        let LayerScratch { transposed, scores: buffer, query, key, value, .. } = scratch;
        for (index, sequence) in group.clone().enumerate() {
            let at = || index * each..(index + 1) * each;
            let [query, key, value] = [&mut *query, &mut *key, &mut *value].map(|all| &mut fit(all, gradient.len())[at()]);
            self.set.run(AttendBackward {
                shape: self.shape,
                projections: Projections { query: &kept.query[at()], key: &kept.key[at()], value: &kept.value[at()] },
                blocked: masks.blocked.sequence(sequence),
                weights: &kept.weights[index * scores..][..scores],
                gradient: &gradient[at()],
                transposed: fit(transposed, each),
                scores: fit(buffer, scores / self.shape.heads),
                gradients: ProjectionGradients { query, key, value },
            });
        }
    }

    fn transposed(&self) -> &Transposed {
        self.transposed.get_or_init(|| {
            let mut transposed = Transposed::default();
            self.transpose_to(&mut transposed);
            transposed
        })
    }

    fn transpose_to(&self, to: &mut Transposed) {
        let Transposed { query, key, value, output, mlp } = to;
        for (linear, to) in [(&self.query, query), (&self.key, key), (&self.value, value), (&self.output, output)] {
            transpose(&linear.weight, self.shape.width, fit(to, linear.weight.len()));
        }
        self.mlp.transpose_to(mlp);
    }
}

fn check_parameters(shape: &LayerShape, parameters: &LayerParameters<'_>) {
    assert_eq!(parameters.map(|part| part.len()), LayerParts::lengths(shape), "parameters must fit the shape");
}

/// `a <- a + b`
pub(super) fn add(a: &mut [f32], b: &[f32]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
}
