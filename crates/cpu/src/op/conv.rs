//! Convolution.
use fedeq_kernels::conv::{self, Geometry};
use fedeq_models::graph::{ParameterId, ValueId};

use super::{Op, PassContext};
use crate::memory::{Buffer, Target};
use crate::parameters::ParameterTarget;
use crate::plan::Planner;

#[derive(Debug)]
pub(super) struct Conv {
    geometry: Geometry,
    weight: ParameterId,
    x: Buffer,
    y: Buffer,
    back: Option<Back>,
}

#[derive(Debug)]
struct Back {
    dy: Buffer,
    dx: Option<Target>,
    /// The weights' gradient, and where the input is that it needs.
    dw: Option<(ParameterTarget, Buffer)>,
}

impl Conv {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, weight: ParameterId, stride: usize, y: ValueId) -> Self {
        let (from, window) = (plan.images(x), plan.graph.parameters[weight.0].shape[2]);
        let geometry = Geometry {
            batch: from.batch,
            height: from.height,
            width: from.width,
            from: from.channels,
            to: plan.images(y).channels,
            window,
            stride,
        };
        let back = plan.incoming(y).map(|dy| {
            let dx = plan.target(x);
            Back { dy, dx, dw: plan.parameter(weight).map(|dw| (dw, plan.kept_or_repeated(x))) }
        });
        Self { geometry, weight, x: plan.forward(x), y: plan.forward(y), back }
    }
}

impl Op for Conv {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        let (weight, scratch) = (run.parameters.get(self.weight), run.scratch.cell.conv());
        run.numbers.write(self.y, |numbers, y| {
            conv::forward_once(run.set, &self.geometry, numbers.read(self.x), weight, y, scratch);
        });
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(back) = &self.back else { return };
        let (geometry, weight, scratch) = (&self.geometry, run.parameters.get(self.weight), run.scratch.cell.conv());
        let dy = back.dy;
        if let Some((dw, x)) = back.dw {
            run.gradients.write(Some(dw), |dw| {
                conv::weight_gradient(run.set, geometry, run.numbers.read(x), run.numbers.read(dy), dw, scratch);
            });
        }
        if let Some(dx) = back.dx {
            run.numbers.write_gradient(dx, |numbers, dx| {
                conv::input_gradient_once(run.set, geometry, numbers.read(dy), weight, dx, scratch);
            });
        }
    }
}
