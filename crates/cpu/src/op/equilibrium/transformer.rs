//! The cell of DEQ-Transformer: a stack of layers with a normalisation at the end.
use fedeq_kernels::transformer::{Blocked, LayerShape, NormParts, Stack, StackGradients, StackMasks, StackSaved, StackScratch};
use fedeq_models::Mode;
use fedeq_models::graph::{self, Affine, ParameterId, ValueId};

use super::super::transformer::{layer_shape, parts};
use super::{At, CellContext, CellOp, To, fit};
use crate::dropout::Multipliers;
use crate::parameters::{Gradients, ParameterTarget};
use crate::plan::Planner;

#[derive(Debug)]
pub(super) struct Sequences {
    shape: LayerShape,
    layers: Vec<[ParameterId; 16]>,
    norm: Affine,
    targets: Vec<[Option<ParameterTarget>; 16]>,
    norm_targets: [Option<ParameterTarget>; 2],
    multipliers: Multipliers,
    stack: Option<Stack>,
    saved: Vec<StackSaved>,
    sums: Option<StackGradients>,
    scratch: StackScratch,
    /// What is left of the samples in a solve, if some are gone.
    kept: ActiveSamples,
    shrunk: bool,
    spare: Vec<f32>,
}

/// The masks of the samples that are left, and who they are.
#[derive(Debug, Default)]
struct ActiveSamples {
    samples: Vec<usize>,
    blocked: Blocked,
    multipliers: Vec<f32>,
}

impl Sequences {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        layers: &graph::Transformer,
        norm: Affine,
        y: ValueId,
        differentiated: bool,
    ) -> Self {
        let mut target = |id| if differentiated { plan.parameter(id) } else { None };
        let norm_targets = [target(norm.scale), target(norm.offset)];
        let targets = layers.layers.iter().map(|layer| layer.map(&mut target)).collect();
        Self {
            shape: layer_shape(plan, layers, y),
            layers: layers.layers.clone(),
            norm,
            targets,
            norm_targets,
            multipliers: Multipliers::new(&layers.dropout, layers.layers.len(), plan.mode == Mode::Train),
            stack: None,
            saved: Vec::new(),
            sums: None,
            scratch: StackScratch::default(),
            kept: ActiveSamples::default(),
            shrunk: false,
            spare: Vec::new(),
        }
    }

    fn each(&self) -> usize {
        self.shape.length * self.shape.width
    }

    /// The masks of all samples.
    fn masks<'a>(multipliers: &'a Multipliers, context: &CellContext<'a>) -> StackMasks<'a> {
        let blocked = context.blocked.expect("attention is to symbols");
        StackMasks { blocked, dropout: multipliers.get().map(|(all, _)| all) }
    }
}

const PREPARED: &str = "a pass begins with the preparation";

impl CellOp for Sequences {
    fn prepare(&mut self, context: &CellContext<'_>) {
        let values = &context.parameters;
        let layers = self.layers.iter().map(|layer| parts(layer, values));
        let norm = NormParts { scale: values.get(self.norm.scale), offset: values.get(self.norm.offset) };
        match &mut self.stack {
            Some(stack) => {
                stack.update(layers, norm);
                stack.set_batch(self.shape.batch);
            }
            none => *none = Some(Stack::new(context.set, self.shape, &layers.collect::<Vec<_>>(), norm)),
        }
        self.multipliers.draw(context.dropout, self.shape.batch, self.each());
        self.shrunk = false;
    }

    fn start(&self, _: &[f32], z: &mut [f32]) {
        z.fill(0.0);
    }

    fn step(&mut self, context: &CellContext<'_>, z: &[f32], u: &[f32], out: &mut [f32]) {
        let all = Self::masks(&self.multipliers, context);
        let ActiveSamples { blocked, multipliers, .. } = &self.kept;
        let masks = if self.shrunk { StackMasks { blocked, dropout: all.dropout.map(|_| &multipliers[..]) } } else { all };
        self.stack.as_ref().expect(PREPARED).step(z, u, masks, out, &mut self.scratch);
    }

    fn keep(&mut self, context: &CellContext<'_>, rows: &[usize]) {
        let batch = self.shape.batch;
        let kept = &mut self.kept;
        if !std::mem::replace(&mut self.shrunk, true) {
            kept.samples.clear();
            kept.samples.extend(0..batch);
        }
        // Samples only move towards the front.
        rows.iter().enumerate().for_each(|(to, &from)| kept.samples[to] = kept.samples[from]);
        kept.samples.truncate(rows.len());
        let all = Self::masks(&self.multipliers, context);
        kept.blocked.pick(all.blocked, &kept.samples);
        kept.multipliers.clear();
        if let Some(dropout) = all.dropout {
            let each = dropout.len() / batch;
            kept.samples.iter().for_each(|&sample| kept.multipliers.extend_from_slice(&dropout[sample * each..][..each]));
        }
        self.stack.as_mut().expect(PREPARED).set_batch(rows.len());
    }

    fn linearise(&mut self, context: &CellContext<'_>, index: usize, z: &[f32], u: &[f32]) {
        if self.saved.len() <= index {
            self.saved.resize_with(index + 1, StackSaved::default);
        }
        let (masks, out) = (Self::masks(&self.multipliers, context), fit(&mut self.spare, z.len()));
        self.stack.as_ref().expect(PREPARED).step_saving(z, u, masks, out, &mut self.saved[index], &mut self.scratch);
    }

    fn turn(&mut self, _: &CellContext<'_>) {
        self.stack.as_mut().expect(PREPARED).turn();
    }

    fn pull_back(&mut self, context: &CellContext<'_>, index: usize, v: &[f32], out: &mut [f32]) {
        let masks = Self::masks(&self.multipliers, context);
        self.stack.as_ref().expect(PREPARED).pull_back(&self.saved[index], masks, v, out, &mut self.scratch);
    }

    fn backward(&mut self, context: &CellContext<'_>, at: At<'_>, to: To<'_>, gradients: &mut Gradients<'_>) {
        let (stack, masks) = (self.stack.as_ref().expect(PREPARED), Self::masks(&self.multipliers, context));
        let sums = self.sums.get_or_insert_with(|| stack.zero_gradients());
        sums.layers.iter_mut().flat_map(|layer| layer.as_mut_array()).for_each(|sum| sum.fill(0.0));
        sums.norm.scale.fill(0.0);
        sums.norm.offset.fill(0.0);
        let dz = to.dz.unwrap_or_else(|| fit(&mut self.spare, at.v.len()));
        stack.backward(&self.saved[at.index], masks, at.v, dz, to.du, sums, &mut self.scratch);
        let adding = |target: Option<ParameterTarget>| target.map(|target| target.adding(at.add));
        for (targets, sums) in self.targets.iter().zip(&sums.layers) {
            for (target, sum) in targets.iter().zip(sums.as_array()) {
                gradients.write(adding(*target), |to| to.copy_from_slice(sum));
            }
        }
        let [scale, offset] = self.norm_targets;
        gradients.write(adding(scale), |to| to.copy_from_slice(&sums.norm.scale));
        gradients.write(adding(offset), |to| to.copy_from_slice(&sums.norm.offset));
    }
}
