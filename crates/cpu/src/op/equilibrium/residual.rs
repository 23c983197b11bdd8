//! The residual cell of DEQ-ResNet.
use fedeq_kernels::cell::{self as kernels, CellParameters, CellTargets, Linearisation, ParameterTargets, PreparedCell};
use fedeq_kernels::norm;
use fedeq_models::graph::{self, NormScope, ParameterId, ValueId};

use super::{At, CellContext, CellOp, To};
use crate::op::{Scratch, kernel_of};
use crate::parameters::{Gradients, ParameterTarget, Values};
use crate::plan::Planner;
use crate::pool::Pool;

#[derive(Debug)]
pub(super) struct Residual {
    cell: kernels::ResidualCell,
    /// `conv_a`, `conv_b`, then scale and offset of the three normalisations.
    parameters: [ParameterId; 8],
    targets: [Option<ParameterTarget>; 8],
    linearisations: Vec<Linearisation>,
    /// During a pass.
    prepared: Option<PreparedCell>,
    scratch: kernels::CellScratch,
}

impl Residual {
    pub(super) fn new(plan: &mut Planner<'_>, cell: &graph::Cell, y: ValueId, differentiated: bool) -> Self {
        let graph::Cell::Residual { conv_a, norm_1, conv_b, norm_2, norm_3, over, activation } = *cell else {
            unreachable!("it was one before");
        };
        let (groups, scope) = match over {
            NormScope::Groups(groups) => (groups, norm::NormScope::Plane),
            NormScope::RowGroups(groups) => (groups, norm::NormScope::Row),
            NormScope::Batch { .. } => unreachable!("samples of a cell do not influence one another"),
        };
        let norm::BatchShape { height, width, channels, .. } = plan.images(y);
        let norms = [norm_1.scale, norm_1.offset, norm_2.scale, norm_2.offset, norm_3.scale, norm_3.offset];
        let parameters = std::array::from_fn(|index| match index {
            0 => conv_a,
            1 => conv_b,
            _ => norms[index - 2],
        });
        Self {
            cell: kernels::ResidualCell { height, width, channels, groups, activation: kernel_of(activation), scope },
            targets: if differentiated { parameters.map(|id| plan.parameter(id)) } else { [None; 8] },
            parameters,
            prepared: None,
            linearisations: Vec::new(),
            scratch: kernels::CellScratch::new(),
        }
    }

    fn parameters<'a>(&self, values: &Values<'a>) -> CellParameters<'a> {
        let [conv_a, conv_b, scale_1, offset_1, scale_2, offset_2, scale_3, offset_3] = self.parameters.map(|id| values.get(id));
        let norm = |scale, offset| norm::Affine { scale, offset };
        CellParameters {
            conv_a,
            norm_1: norm(scale_1, offset_1),
            conv_b,
            norm_2: norm(scale_2, offset_2),
            norm_3: norm(scale_3, offset_3),
        }
    }
}

const PREPARED: &str = "a pass begins with the preparation";

impl CellOp for Residual {
    fn begin(&mut self, scratch: &mut Scratch) {
        self.scratch = std::mem::take(&mut scratch.cell);
        self.prepared = scratch.prepared.take().filter(|prepared| *prepared.cell() == self.cell);
    }

    fn end(&mut self, scratch: &mut Scratch) {
        scratch.cell = std::mem::take(&mut self.scratch);
        scratch.prepared = self.prepared.take();
    }

    fn borrow(&mut self, steps: usize, numbers: usize, pool: &mut Pool) {
        self.linearisations.resize_with(steps, Linearisation::default);
        for near in &mut self.linearisations {
            near.memory().into_iter().zip([2, 1, 1]).for_each(|(memory, times)| *memory = pool.take(times * numbers));
        }
        self.scratch.memory().into_iter().for_each(|memory| *memory = pool.take(2 * numbers + kernels::LINE));
    }

    fn give_back(&mut self, pool: &mut Pool) {
        let saved = self.linearisations.iter_mut().flat_map(Linearisation::memory);
        saved.chain(self.scratch.memory()).for_each(|memory| pool.give(std::mem::take(memory)));
    }

    fn prepare(&mut self, context: &CellContext<'_>) {
        let parameters = self.parameters(&context.parameters);
        match &mut self.prepared {
            Some(prepared) => prepared.update(parameters),
            none => *none = Some(PreparedCell::for_steps(context.set, &self.cell, parameters)),
        }
    }

    fn start(&self, u: &[f32], z: &mut [f32]) {
        z.copy_from_slice(u);
    }

    fn step(&mut self, _: &CellContext<'_>, z: &[f32], u: &[f32], out: &mut [f32]) {
        self.prepared.as_ref().expect(PREPARED).step(z, u, out, &mut self.scratch);
    }

    fn linearise(&mut self, _: &CellContext<'_>, index: usize, z: &[f32], u: &[f32]) {
        self.scratch.recycle(std::mem::take(&mut self.linearisations[index]));
        self.linearisations[index] = self.prepared.as_ref().expect(PREPARED).linearise(z, u, &mut self.scratch);
    }

    fn turn(&mut self, context: &CellContext<'_>) {
        let parameters = self.parameters(&context.parameters);
        self.prepared.as_mut().expect(PREPARED).turn(parameters);
    }

    fn pull_back(&mut self, _: &CellContext<'_>, index: usize, v: &[f32], out: &mut [f32]) {
        self.linearisations[index].pull_back(self.prepared.as_ref().expect(PREPARED), v, out, &mut self.scratch);
    }

    fn backward(&mut self, _: &CellContext<'_>, at: At<'_>, to: To<'_>, gradients: &mut Gradients<'_>) {
        let (prepared, near) = (self.prepared.as_ref().expect(PREPARED), &self.linearisations[at.index]);
        let (scratch, To { dz, du }) = (&mut self.scratch, to);
        gradients.write_all(self.targets.map(|target| target.map(|target| target.adding(at.add))), |parameters| {
            let parameters = parameters.map(|[conv_a, conv_b, s1, o1, s2, o2, s3, o3]| ParameterTargets {
                conv_a,
                conv_b,
                norms: [[s1, o1], [s2, o2], [s3, o3]],
            });
            near.backward_to(prepared, at.z, at.v, CellTargets { z: dz, u: du, parameters }, scratch);
        });
    }
}
