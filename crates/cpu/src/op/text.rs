//! Vectors that stand for symbols, and the normalisation of every position.
use fedeq_kernels::transformer::{NormParts, Standardised, layer_norm, layer_norm_backward, layer_norm_saving};
use fedeq_kernels::{dense, embedding};
use fedeq_models::graph::{Affine, ParameterId, ValueId};

use super::{Op, PassContext};
use crate::memory::{Buffer, Target};
use crate::parameters::ParameterTarget;
use crate::plan::Planner;

#[derive(Debug)]
pub(super) struct Embed {
    width: usize,
    length: usize,
    tokens: ParameterId,
    positions: Option<ParameterId>,
    y: Buffer,
    back: Option<(Buffer, Option<ParameterTarget>, Option<ParameterTarget>)>,
}

impl Embed {
    pub(super) fn new(plan: &mut Planner<'_>, tokens: ParameterId, positions: Option<ParameterId>, y: ValueId) -> Self {
        let back = plan.incoming(y).map(|dy| {
            let of_positions = positions.and_then(|positions| plan.parameter(positions));
            (dy, plan.parameter(tokens), of_positions)
        });
        Self { width: plan.width(y), length: plan.length, tokens, positions, y: plan.forward(y), back }
    }
}

impl Op for Embed {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        let (width, tokens) = (self.width, run.parameters.get(self.tokens));
        let positions = self.positions.map(|positions| run.parameters.get(positions));
        run.numbers.write(self.y, |_, y| {
            embedding::gather(tokens, width, run.symbols.values, y);
            if let Some(positions) = positions {
                embedding::add_to_sequences(&positions[..self.length * width], y);
            }
        });
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some((dy, of_tokens, of_positions)) = self.back else { return };
        let (width, length, dy) = (self.width, self.length, run.numbers.read(dy));
        run.gradients.write(of_tokens, |sums| {
            sums.fill(0.0);
            embedding::scatter_add(dy, width, run.symbols.values, sums);
        });
        run.gradients.write(of_positions, |sums| {
            sums.fill(0.0);
            dense::add_bias_gradient(run.set, dy, &mut sums[..length * width]);
        });
    }
}

#[derive(Debug)]
pub(super) struct LayerNorm {
    affine: Affine,
    x: Buffer,
    y: Buffer,
    saved: Standardised,
    sums: NormParts<Vec<f32>>,
    back: Option<Back>,
}

#[derive(Debug)]
struct Back {
    dy: Buffer,
    dx: Target,
    scale: Option<ParameterTarget>,
    offset: Option<ParameterTarget>,
}

impl LayerNorm {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, affine: Affine, y: ValueId) -> Self {
        let (len, width) = (plan.len(x), plan.width(x));
        let back = plan.incoming(y).map(|dy| Back {
            dy,
            dx: plan.target(x).unwrap_or_else(|| Target { buffer: plan.temporary(len), added_by: None }),
            scale: plan.parameter(affine.scale),
            offset: plan.parameter(affine.offset),
        });
        let sums = NormParts { scale: vec![0.0; width], offset: vec![0.0; width] };
        Self { affine, x: plan.forward(x), y: plan.forward(y), saved: Standardised::default(), sums, back }
    }
}

impl Op for LayerNorm {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        let norm = NormParts { scale: run.parameters.get(self.affine.scale), offset: run.parameters.get(self.affine.offset) };
        run.numbers.write(self.y, |numbers, y| match self.back {
            Some(_) => layer_norm_saving(run.set, numbers.read(self.x), norm, y, &mut self.saved),
            None => layer_norm(run.set, numbers.read(self.x), norm, y),
        });
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(back) = &self.back else { return };
        let norm = NormParts { scale: run.parameters.get(self.affine.scale), offset: run.parameters.get(self.affine.offset) };
        let wanted = back.scale.is_some() || back.offset.is_some();
        self.sums.scale.fill(0.0);
        self.sums.offset.fill(0.0);
        run.numbers.write_gradient(back.dx, |numbers, dx| {
            dx.fill(0.0);
            let sums = wanted.then_some(&mut self.sums);
            layer_norm_backward(run.set, &self.saved, norm, numbers.read(back.dy), dx, sums);
        });
        run.gradients.write(back.scale, |to| to.copy_from_slice(&self.sums.scale));
        run.gradients.write(back.offset, |to| to.copy_from_slice(&self.sums.offset));
    }
}
