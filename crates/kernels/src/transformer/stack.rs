//! A stack of layers with a normalisation at the end: the step of an equilibrium transformer.
use super::blocked::Blocked;
use super::layer::{LayerSaved, LayerScratch, PreparedLayer, add};
use super::layer_norm::{Standardised, layer_norm, layer_norm_backward, layer_norm_saving};
use super::parameters::{DropoutMultipliers, LayerGradients, LayerParameters, LayerShape, Masks, NormParts};
use crate::InstructionSet;
use crate::vectors::fit;

/// `g(z; x) = norm(layer_n(... layer_1(z; x) ...; x))` on `[batch, length, width]`, ready to run.
#[derive(Clone, Debug)]
pub struct Stack {
    set: InstructionSet,
    shape: LayerShape,
    layers: Vec<PreparedLayer>,
    norm: NormParts<Vec<f32>>,
}

/// What a stack is run under.
#[derive(Clone, Copy, Debug)]
pub struct StackMasks<'a> {
    /// Where attention may not go.
    pub blocked: &'a Blocked,
    /// The multipliers of all dropout sites, `[batch, 2 * layers, length, width]`; none in evaluation.
    pub dropout: Option<&'a [f32]>,
}

/// What the backward pass of a stack needs; its memory can be used again.
#[derive(Clone, Debug, Default)]
pub struct StackSaved {
    layers: Vec<LayerSaved>,
    norm: Standardised,
}

/// Memory for a stack to work in; it grows when first used.
#[derive(Clone, Debug, Default)]
pub struct StackScratch {
    layer: LayerScratch,
    h: Vec<f32>,
}

/// The gradients of a stack's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct StackGradients {
    /// First layer first.
    pub layers: Vec<LayerGradients>,
    /// Of the normalisation at the end.
    pub norm: NormParts<Vec<f32>>,
}

impl Stack {
    /// Prepares all layers.
    ///
    /// # Panics
    ///
    /// Where [`PreparedLayer::new`] does, or if the normalisation does not fit the width.
    pub fn new(set: InstructionSet, shape: LayerShape, layers: &[LayerParameters<'_>], norm: NormParts<&[f32]>) -> Self {
        assert!(norm.scale.len() == shape.width && norm.offset.len() == shape.width, "the normalisation must fit the width");
        let layers = layers.iter().map(|layer| PreparedLayer::new(set, shape, layer)).collect();
        Self { set, shape, layers, norm: norm.owned() }
    }

    /// Other parameters, in the same memory.
    ///
    /// # Panics
    ///
    /// If there are not as many layers, or a parameter has the wrong length.
    pub fn update<'a>(&mut self, layers: impl ExactSizeIterator<Item = LayerParameters<'a>>, norm: NormParts<&[f32]>) {
        assert_eq!(layers.len(), self.layers.len(), "parameters for every layer");
        self.layers.iter_mut().zip(layers).for_each(|(layer, parameters)| layer.update(&parameters));
        norm.copy_to(&mut self.norm);
    }

    /// Prepares all layers for the [way back](PreparedLayer::turn).
    pub fn turn(&mut self) {
        self.layers.iter_mut().for_each(PreparedLayer::turn);
    }

    /// The same for batches of another size.
    pub fn set_batch(&mut self, batch: usize) {
        self.shape.batch = batch;
        self.layers.iter_mut().for_each(|layer| layer.set_batch(batch));
    }

    /// No gradients yet; [`Stack::backward`] adds to them.
    pub fn zero_gradients(&self) -> StackGradients {
        let layers = self.layers.iter().map(|_| LayerGradients::zeros(&self.shape)).collect();
        let zeros = || vec![0.0; self.shape.width];
        StackGradients { layers, norm: NormParts { scale: zeros(), offset: zeros() } }
    }

    /// `g(z; x)`. Allocates nothing once `scratch` has been used.
    ///
    /// # Panics
    ///
    /// If a slice does not fit the shape; so do the other passes.
    pub fn step(&self, z: &[f32], injection: &[f32], masks: StackMasks<'_>, out: &mut [f32], scratch: &mut StackScratch) {
        let h = fit(&mut scratch.h, z.len());
        h.copy_from_slice(z);
        for (index, layer) in self.layers.iter().enumerate() {
            layer.forward_in_place(h, injection, self.masks(masks, index), &mut scratch.layer);
        }
        layer_norm(self.set, h, self.norm.view(), out);
    }

    /// [`Stack::step`] that keeps what the backward passes need. The result has the same bits.
    pub fn step_saving(
        &self,
        z: &[f32],
        injection: &[f32],
        masks: StackMasks<'_>,
        out: &mut [f32],
        saved: &mut StackSaved,
        scratch: &mut StackScratch,
    ) {
        let h = fit(&mut scratch.h, z.len());
        h.copy_from_slice(z);
        saved.layers.resize_with(self.layers.len(), LayerSaved::default);
        for (index, (layer, saved)) in self.layers.iter().zip(&mut saved.layers).enumerate() {
            layer.forward_saving(h, injection, self.masks(masks, index), saved, &mut scratch.layer);
        }
        layer_norm_saving(self.set, h, self.norm.view(), out, &mut saved.norm);
    }

    /// `z_gradient = (dg/dz)^T v` and `injection_gradient = (dg/dx)^T v`, adding the gradients of the parameters to `sums`.
    #[allow(clippy::too_many_arguments, reason = "three results, each a caller's memory")]
    pub fn backward(
        &self,
        saved: &StackSaved,
        masks: StackMasks<'_>,
        v: &[f32],
        z_gradient: &mut [f32],
        injection_gradient: &mut [f32],
        sums: &mut StackGradients,
        scratch: &mut StackScratch,
    ) {
        z_gradient.fill(0.0);
        injection_gradient.fill(0.0);
        layer_norm_backward(self.set, &saved.norm, self.norm.view(), v, z_gradient, Some(&mut sums.norm));
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let (saved, sums) = (&saved.layers[index], &mut sums.layers[index]);
            layer.backward(saved, self.masks(masks, index), z_gradient, sums, &mut scratch.layer);
            add(injection_gradient, z_gradient);
        }
    }

    /// `(dg/dz)^T v` alone, for the adjoint of an equilibrium.
    pub fn pull_back(
        &self,
        saved: &StackSaved,
        masks: StackMasks<'_>,
        v: &[f32],
        z_gradient: &mut [f32],
        scratch: &mut StackScratch,
    ) {
        z_gradient.fill(0.0);
        layer_norm_backward(self.set, &saved.norm, self.norm.view(), v, z_gradient, None);
        for (index, layer) in self.layers.iter().enumerate().rev() {
            layer.pull_back(&saved.layers[index], self.masks(masks, index), z_gradient, &mut scratch.layer);
        }
    }

    /// The masks of one layer.
    fn masks<'a>(&self, masks: StackMasks<'a>, layer: usize) -> Masks<'a> {
        let (each, sites) = (self.shape.sequence(), 2 * self.layers.len());
        let site = |index: usize| {
            masks.dropout.map(|all| DropoutMultipliers { multipliers: &all[index * each..], stride: sites * each })
        };
        Masks { blocked: masks.blocked, attention: site(2 * layer), mlp: site(2 * layer + 1) }
    }
}
