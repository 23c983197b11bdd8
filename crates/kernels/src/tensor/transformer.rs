//! Transformer layers and stacks of them, whole.
//!
//! What is offered here, is offered for 32-bit floats on the CPU. For all else there is no answer, and a layer is to be put together
//! from its parts.
use std::cell::RefCell;
use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Bool, Tensor};

use super::host;
use super::operation::{Operation, Past, apply, only};
use crate::InstructionSet;
use crate::transformer::{
    Blocked, Dropout, LayerGradients, LayerParts, LayerShape, Masks, Norm, Prepared, Saved, Scratch, Stack, StackMasks,
    StackSaved, StackScratch, Standardised, layer_norm_backward, layer_norm_saving,
};

thread_local! {
    /// One for each thread, so that passes allocate no working memory.
    static SCRATCH: RefCell<StackScratch> = RefCell::new(StackScratch::default());
    static LAYER_SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// What the layers of a stack share.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Heads of attention.
    pub heads: usize,
    /// What is added before every layer, `[B, T, d]`.
    pub injection: Tensor<3>,
    /// Where attention may not go, `[B, 1, T, T]`.
    pub blocked: Tensor<4, Bool>,
    /// The multipliers of all dropout sites, `[B, 2 * layers, T, d]`, or none.
    pub dropout: Option<Tensor<4>>,
}

/// The parameters of a layer, as tensors of any rank.
pub type LayerTensors = LayerParts<DispatchTensor>;

impl Surroundings {
    fn shape(&self, hidden: usize) -> LayerShape {
        let [batch, length, width] = self.injection.dims();
        LayerShape { batch, length, width, heads: self.heads, hidden }
    }

    fn held(&self) -> Held {
        let [_, length, _] = self.injection.dims();
        let blocked = self.blocked.to_data().iter::<bool>().collect::<Vec<_>>();
        let dropout = self.dropout.as_ref().map(|all| {
            let [_, sites, ..] = all.dims();
            (host::plain(all.clone().without_autodiff().into_dispatch()), sites)
        });
        Held { blocked: Blocked::new(length, &blocked), dropout }
    }
}

/// Masks in memory.
#[derive(Clone, Debug)]
struct Held {
    blocked: Blocked,
    /// All multipliers, and how many sites there are.
    dropout: Option<(FlexTensor, usize)>,
}

impl Held {
    fn of_layer(&self, shape: &LayerShape, layer: usize) -> Masks<'_> {
        let each = shape.length * shape.width;
        let site = |index: usize| {
            let (all, sites) = self.dropout.as_ref()?;
            Some(Dropout { multipliers: &host::numbers(all)[index * each..], stride: sites * each })
        };
        Masks { blocked: &self.blocked, attention: site(2 * layer), mlp: site(2 * layer + 1) }
    }

    fn of_stack(&self) -> StackMasks<'_> {
        StackMasks { blocked: &self.blocked, dropout: self.dropout.as_ref().map(|(all, _)| host::numbers(all)) }
    }
}

/// Applies the layers one after the other, with their gradients.
pub fn transformer_layers(h: Tensor<3>, layers: &[LayerTensors], around: &Surroundings) -> Option<Tensor<3>> {
    let injection = around.injection.clone().into_dispatch();
    if !host::is_here(&injection) {
        return None;
    }
    let held = Arc::new(around.held());
    layers.iter().enumerate().try_fold(h, |h, (index, layer)| {
        let parameters = layer.as_array().map(Clone::clone);
        let shape = around.shape(hidden_of(layer));
        let step = LayerStep { shape, masks: held.clone(), index };
        let mut parameters = parameters.into_iter();
        let first = [h.into_dispatch(), injection.clone()];
        let mut first = first.into_iter();
        let inputs: [DispatchTensor; 18] =
            std::array::from_fn(|_| first.next().or_else(|| parameters.next()).expect("two and sixteen"));
        apply(step, inputs)
    })
}

/// The MLP's width, from the length of its first bias.
fn hidden_of(layer: &LayerTensors) -> usize {
    host::count(&layer.widen.bias)
}

/// One layer: `h`, what is injected, and sixteen parameters.
#[derive(Clone, Debug)]
struct LayerStep {
    shape: LayerShape,
    masks: Arc<Held>,
    index: usize,
}

impl LayerStep {
    fn masks(&self) -> Masks<'_> {
        self.masks.of_layer(&self.shape, self.index)
    }

    fn prepare(&self, [_, _, parameters @ ..]: [&[f32]; 18]) -> Prepared {
        Prepared::new(InstructionSet::best(), self.shape, &LayerParts::from_array(parameters))
    }
}

impl Operation<18> for LayerStep {
    type Saved = Arc<(Prepared, Saved)>;

    fn shape(&self) -> Vec<usize> {
        vec![self.shape.batch, self.shape.length, self.shape.width]
    }

    fn run_saving(&self, inputs: [&[f32]; 18]) -> (Vec<f32>, Self::Saved) {
        let (prepared, mut saved, mut h) = (self.prepare(inputs), Saved::default(), inputs[0].to_vec());
        LAYER_SCRATCH.with_borrow_mut(|scratch| prepared.forward_saving(&mut h, inputs[1], self.masks(), &mut saved, scratch));
        (h, Arc::new((prepared, saved)))
    }

    fn run(&self, inputs: [&[f32]; 18]) -> Vec<f32> {
        let mut h = inputs[0].to_vec();
        LAYER_SCRATCH.with_borrow_mut(|scratch| {
            self.prepare(inputs).forward_in_place(&mut h, inputs[1], self.masks(), scratch);
        });
        h
    }

    fn gradients(&self, past: Past<'_, Self::Saved, 18>, wanted: [bool; 18]) -> [Option<Vec<f32>>; 18] {
        let (prepared, saved) = &**past.saved;
        let (mut dh, mut sums) = (past.gradient.to_vec(), LayerGradients::zeros(&self.shape));
        LAYER_SCRATCH.with_borrow_mut(|scratch| prepared.backward(saved, self.masks(), &mut dh, &mut sums, scratch));
        let mut found = vec![dh.clone(), dh];
        found.extend(sums.as_mut_array().map(std::mem::take));
        only(wanted, found.into_iter().map(Some))
    }
}

/// Normalisation over the last axis: `[..., width] -> [..., width]`.
pub fn layer_norm<const D: usize>(x: &Tensor<D>, scale: &Tensor<1>, offset: &Tensor<1>) -> Option<Tensor<D>> {
    let inputs = [x.clone().into_dispatch(), scale.clone().into_dispatch(), offset.clone().into_dispatch()];
    apply(LayerNorm { dims: x.dims().to_vec() }, inputs)
}

#[derive(Clone, Debug)]
struct LayerNorm {
    dims: Vec<usize>,
}

impl Operation<3> for LayerNorm {
    type Saved = Standardised;

    fn shape(&self) -> Vec<usize> {
        self.dims.clone()
    }

    fn run_saving(&self, [x, scale, offset]: [&[f32]; 3]) -> (Vec<f32>, Standardised) {
        let (mut y, mut saved) = (vec![0.0; x.len()], Standardised::default());
        layer_norm_saving(InstructionSet::best(), x, Norm { scale, offset }, &mut y, &mut saved);
        (y, saved)
    }

    fn gradients(&self, past: Past<'_, Standardised, 3>, wanted: [bool; 3]) -> [Option<Vec<f32>>; 3] {
        let [x, scale, offset] = past.inputs;
        let zeros = || vec![0.0; scale.len()];
        let (mut dx, mut sums) = (vec![0.0; x.len()], Norm { scale: zeros(), offset: zeros() });
        let norm = Norm { scale, offset };
        layer_norm_backward(InstructionSet::best(), past.saved, norm, past.gradient, &mut dx, Some(&mut sums));
        only(wanted, [dx, sums.scale, sums.offset].map(Some))
    }
}

/// `z -> norm(layer_n(... layer_1(z; x) ...; x))` for one `x`, the parameters prepared once; without autodiff.
#[derive(Debug)]
pub struct HeldStack {
    stack: Stack,
    injection: FlexTensor,
    masks: Held,
}

impl HeldStack {
    /// The stack with its surroundings, where it can be.
    pub fn new(layers: &[LayerTensors], norm: &Norm<Tensor<1>>, around: &Surroundings) -> Option<Self> {
        let norm = [&norm.scale, &norm.offset].map(|part| part.clone().into_dispatch());
        let injection = around.injection.clone().into_dispatch();
        let everything = layers.iter().flat_map(LayerParts::as_array).chain(&norm).chain([&injection]);
        if layers.is_empty() || !everything.into_iter().all(|part| host::is_here(part) && !host::is_differentiated(part)) {
            return None;
        }
        let held: Vec<LayerParts<FlexTensor>> = layers.iter().map(|layer| layer.map(|part| host::plain(part.clone()))).collect();
        let views: Vec<LayerParts<&[f32]>> = held.iter().map(|layer| layer.map(host::numbers)).collect();
        let [scale, offset] = norm.map(host::plain);
        let norm = Norm { scale: host::numbers(&scale), offset: host::numbers(&offset) };
        let stack = Stack::new(InstructionSet::best(), around.shape(hidden_of(&layers[0])), &views, norm);
        Some(Self { stack, injection: host::plain(injection), masks: around.held() })
    }

    /// `g(z; x)`
    pub fn step(&self, z: Tensor<3>) -> Tensor<3> {
        self.mapped(z, |z, out, scratch| {
            self.stack.step(z, host::numbers(&self.injection), self.masks.of_stack(), out, scratch);
        })
    }

    /// The stack near `z`.
    pub fn linearise(self, z: Tensor<3>) -> LinearStack {
        let mut saved = StackSaved::default();
        self.mapped(z, |z, out, scratch| {
            let injection = host::numbers(&self.injection);
            self.stack.step_saving(z, injection, self.masks.of_stack(), out, &mut saved, scratch);
        });
        LinearStack { held: self, saved }
    }

    fn mapped(&self, x: Tensor<3>, map: impl FnOnce(&[f32], &mut [f32], &mut StackScratch)) -> Tensor<3> {
        let shape = x.dims().to_vec();
        let x = host::plain(x.into_dispatch());
        let mut out = vec![0.0; host::numbers(&x).len()];
        SCRATCH.with_borrow_mut(|scratch| map(host::numbers(&x), &mut out, scratch));
        Tensor::from_dispatch(host::constant(host::tensor(out, shape)))
    }
}

/// `v -> (dg/dz)^T v` at one state.
#[derive(Debug)]
pub struct LinearStack {
    held: HeldStack,
    saved: StackSaved,
}

impl LinearStack {
    /// `(dg/dz)^T v`
    pub fn pull_back(&self, v: Tensor<3>) -> Tensor<3> {
        self.held.mapped(v, |v, out, scratch| {
            self.held.stack.pull_back(&self.saved, self.held.masks.of_stack(), v, out, scratch);
        })
    }
}
