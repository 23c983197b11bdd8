//! What a layer is made of: its sizes, its parameters, and the masks it is run under.
use super::blocked::Blocked;
use crate::InstructionSet;
use crate::dense::{add_column_sums, add_transposed_product};
use crate::size::product;

/// The sizes of a layer and of what it is applied to, `[batch, length, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Sequences.
    pub batch: usize,
    /// Positions of a sequence.
    pub length: usize,
    /// Numbers a position.
    pub width: usize,
    /// Heads of attention; they share the width evenly.
    pub heads: usize,
    /// Numbers a position inside the MLP.
    pub hidden: usize,
}

impl LayerShape {
    /// Numbers of one sequence.
    pub(super) fn sequence(&self) -> usize {
        product([self.length, self.width])
    }

    /// Numbers of the batch.
    pub(super) fn numbers(&self) -> usize {
        product([self.batch, self.length, self.width])
    }
}

/// Something for the weight and the bias of `y = x W + b`: `[in, out]` and `[out]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear<T> {
    /// For `W`.
    pub weight: T,
    /// For `b`.
    pub bias: T,
}

impl Linear<&[f32]> {
    pub(super) fn owned(self) -> Linear<Vec<f32>> {
        Linear { weight: self.weight.to_vec(), bias: self.bias.to_vec() }
    }

    /// Copies it over another one of its size.
    pub(super) fn copy_to(self, to: &mut Linear<Vec<f32>>) {
        to.weight.copy_from_slice(self.weight);
        to.bias.copy_from_slice(self.bias);
    }
}

impl Linear<Vec<f32>> {
    /// Adds the gradients of weight and bias, given the input and the gradient of the output.
    pub(super) fn add_gradient(&mut self, set: InstructionSet, x: &[f32], gradient: &[f32]) {
        let to = self.bias.len();
        add_transposed_product(set, x, gradient, to, &mut self.weight, to);
        add_column_sums(set, gradient, &mut self.bias);
    }
}

/// Something for the scale and the offset of a normalisation, `[width]` each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormParts<T> {
    /// For the factor.
    pub scale: T,
    /// For what is added.
    pub offset: T,
}

impl NormParts<&[f32]> {
    pub(super) fn owned(self) -> NormParts<Vec<f32>> {
        NormParts { scale: self.scale.to_vec(), offset: self.offset.to_vec() }
    }

    /// Copies it over another one of its size.
    pub(super) fn copy_to(self, to: &mut NormParts<Vec<f32>>) {
        to.scale.copy_from_slice(self.scale);
        to.offset.copy_from_slice(self.offset);
    }
}

impl NormParts<Vec<f32>> {
    /// The same, borrowed.
    pub fn view(&self) -> NormParts<&[f32]> {
        NormParts { scale: &self.scale, offset: &self.offset }
    }
}

/// Something for each parameter of a layer: its values, or their gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerParts<T> {
    /// Before attention.
    pub norm_1: NormParts<T>,
    /// `[width, width]`, all heads side by side.
    pub query: Linear<T>,
    /// `[width, width]`.
    pub key: Linear<T>,
    /// `[width, width]`.
    pub value: Linear<T>,
    /// `[width, width]`.
    pub output: Linear<T>,
    /// Before the MLP.
    pub norm_2: NormParts<T>,
    /// `[width, hidden]`.
    pub widen: Linear<T>,
    /// `[hidden, width]`.
    pub narrow: Linear<T>,
}

/// The parameters of a layer, borrowed.
pub type LayerParameters<'a> = LayerParts<&'a [f32]>;

/// The gradients of a layer's parameters.
pub type LayerGradients = LayerParts<Vec<f32>>;

impl<T> LayerParts<T> {
    /// From the order of the fields, weight before bias and scale before offset.
    pub fn from_array(parts: [T; 16]) -> Self {
        let [s1, o1, qw, qb, kw, kb, vw, vb, ow, ob, s2, o2, ww, wb, nw, nb] = parts;
        Self {
            norm_1: NormParts { scale: s1, offset: o1 },
            query: Linear { weight: qw, bias: qb },
            key: Linear { weight: kw, bias: kb },
            value: Linear { weight: vw, bias: vb },
            output: Linear { weight: ow, bias: ob },
            norm_2: NormParts { scale: s2, offset: o2 },
            widen: Linear { weight: ww, bias: wb },
            narrow: Linear { weight: nw, bias: nb },
        }
    }

    /// In the order of the fields, weight before bias and scale before offset.
    pub fn as_array(&self) -> [&T; 16] {
        let Self { norm_1: n1, query: q, key: k, value: v, output: o, norm_2: n2, widen: w, narrow: n } = self;
        [
            &n1.scale, &n1.offset, &q.weight, &q.bias, &k.weight, &k.bias, &v.weight, &v.bias, &o.weight, &o.bias, &n2.scale,
            &n2.offset, &w.weight, &w.bias, &n.weight, &n.bias,
        ]
    }

    /// As [`LayerParts::as_array`], to be changed.
    pub fn as_mut_array(&mut self) -> [&mut T; 16] {
        let Self { norm_1: n1, query: q, key: k, value: v, output: o, norm_2: n2, widen: w, narrow: n } = self;
        [
            &mut n1.scale,
            &mut n1.offset,
            &mut q.weight,
            &mut q.bias,
            &mut k.weight,
            &mut k.bias,
            &mut v.weight,
            &mut v.bias,
            &mut o.weight,
            &mut o.bias,
            &mut n2.scale,
            &mut n2.offset,
            &mut w.weight,
            &mut w.bias,
            &mut n.weight,
            &mut n.bias,
        ]
    }

    /// The same for something else.
    pub fn map<'a, U>(&'a self, make: impl FnMut(&'a T) -> U) -> LayerParts<U> {
        LayerParts::from_array(self.as_array().map(make))
    }
}

impl LayerParts<usize> {
    /// How many numbers each parameter has.
    pub fn lengths(shape: &LayerShape) -> Self {
        let (w, h) = (shape.width, shape.hidden);
        let (square, wide) = (product([w, w]), product([w, h]));
        Self::from_array([w, w, square, w, square, w, square, w, square, w, w, w, wide, h, wide, w])
    }
}

impl LayerGradients {
    /// Nothing yet; backward passes add to it.
    pub fn zeros(shape: &LayerShape) -> Self {
        LayerParts::lengths(shape).map(|&length| vec![0.0; length])
    }
}

/// What the numbers of a dropout site are multiplied by.
#[derive(Clone, Copy, Debug)]
pub struct DropoutMultipliers<'a> {
    /// `[length, width]` for each sequence.
    pub multipliers: &'a [f32],
    /// From one sequence to the next.
    pub stride: usize,
}

impl<'a> DropoutMultipliers<'a> {
    pub(super) fn sequence(&self, index: usize, numbers: usize) -> &'a [f32] {
        &self.multipliers[index * self.stride..][..numbers]
    }
}

/// What a layer is run under.
#[derive(Clone, Copy, Debug)]
pub struct Masks<'a> {
    /// Where attention may not go.
    pub blocked: &'a Blocked,
    /// For what attention says; none in evaluation.
    pub attention: Option<DropoutMultipliers<'a>>,
    /// For what the MLP says; none in evaluation.
    pub mlp: Option<DropoutMultipliers<'a>>,
}
