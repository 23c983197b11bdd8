//! The cell of DEQ-Transformer: a stack of layers with a normalisation at the end.
use fedeq_core::Result;
use fedeq_models::graph::{self, Affine};

use super::{CellOp, Differentiated, State, To};
use crate::arena::Slot;
use crate::device::Pointer;
use crate::op::layer_norm::WIDTH;
use crate::op::transformer::{Gradients, Stack, Values, When};
use crate::op::{Cohort, PassContext};
use crate::plan::Planner;

/// `g(z; u) = norm(layer_n(... layer_1(z; u) ...; u))`
pub(super) struct Sequences {
    stack: Stack,
    steps: Values,
    back: Option<Back>,
}

struct Back {
    values: Values,
    gradients: Gradients,
    /// The gradient of the state where it is not wanted elsewhere.
    dz: Slot,
}

impl Sequences {
    pub(super) fn new(plan: &mut Planner<'_>, layers: &graph::Transformer, norm: Affine, differentiated: Differentiated) -> Self {
        let stack = Stack::new(plan, layers, Some(norm), differentiated.any());
        let size = plan.purpose.size;
        let back = differentiated.any().then(|| Back {
            values: stack.values(plan, When::Back),
            gradients: stack.gradients(plan),
            dz: plan.scratch_back(4 * size.samples() * size.length * WIDTH),
        });
        Self { steps: stack.values(plan, When::Forward), stack, back }
    }

    fn back(&self) -> &Back {
        self.back.as_ref().expect("a cell with a way back")
    }
}

impl CellOp for Sequences {
    fn reads_halves(&self) -> bool {
        false
    }

    fn prepare(&self, run: &PassContext<'_>) -> Result<()> {
        self.stack.prepare(run)
    }

    fn start(&self, run: &PassContext<'_>, _: Pointer<f32>, z: State) -> Result<()> {
        run.device.fill_zero(z.numbers, run.size.samples() * run.size.length * WIDTH)
    }

    fn step(&self, run: &PassContext<'_>, cohort: Cohort, z: State, u: Pointer<f32>, out: Pointer<f32>) -> Result<()> {
        self.stack.forward(run, cohort, &self.steps, [z.numbers, u], out)
    }

    fn linearise(&self, run: &PassContext<'_>, z: State, u: Pointer<f32>) -> Result<()> {
        self.stack.forward(run, run.cohort, &self.back().values, [z.numbers, u], Pointer::NULL)
    }

    fn pull_back(&self, run: &PassContext<'_>, cohort: Cohort, v: Pointer<f32>, out: Pointer<f32>) -> Result<()> {
        let Back { values, gradients, .. } = self.back();
        self.stack.backward(run, cohort, (values, gradients), v, [out, Pointer::NULL], false)
    }

    fn backward(&self, run: &PassContext<'_>, _: State, v: Pointer<f32>, To { dz, du }: To) -> Result<()> {
        let Back { values, gradients, dz: own } = self.back();
        run.device.fill_zero(du, run.size.samples() * run.size.length * WIDTH)?;
        let dz = if dz.is_null() { run.at(*own) } else { dz };
        self.stack.backward(run, run.cohort, (values, gradients), v, [dz, du], true)
    }
}
