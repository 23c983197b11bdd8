//! Convolution.
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::{ParameterId, ValueId};

use super::convolution::{ByWeights, Geometry, Into, Storage, Weights};
use super::{Op, PassContext};
use crate::arena::Slot;
use crate::device::Pointer;
use crate::plan::{Form, Forms, Incoming, Planner, Precision, SCALE, Target};

pub(super) struct Conv {
    weights: Weights,
    weight: ParameterId,
    /// That of the normalisation behind it, `norm(phi(y))`, if only that reads the output, which then is `phi(y)`.
    activation: Option<Activation>,
    x: Slot,
    y: Forms,
    back: Option<Back>,
}

struct Back {
    dy: Incoming,
    /// The same in the form of factors, where it comes in another one.
    factors: Option<Slot>,
    dx: Option<(Target, Option<Slot>)>,
    dw: Option<ByWeights>,
}

impl Conv {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, weight: ParameterId, stride: usize, y: ValueId) -> Self {
        let (form, window) = (plan.factors(), plan.graph.parameter(weight).shape[2]);
        let from = plan.layout.place(weight).padded();
        let geometry = Geometry::new(plan.plane(x), from, plan.channels(y), window, stride);
        let back = plan.incoming(y).map(|dy| {
            let dx = plan.target(x).map(|dx| {
                // The exact kernel cannot add: it writes beside, and the sum is taken afterwards.
                let beside = (dx.add && form == Form::Numbers).then(|| plan.scratch_back(plan.bytes(x, Form::Numbers)));
                (dx, beside)
            });
            let dw = plan.parameter(weight).map(|_| ByWeights::new(plan, geometry, Storage::Conv));
            if dw.is_some() {
                plan.reads_again(x, form);
            }
            let factors = (dy.form != form).then(|| plan.scratch_back(plan.bytes(y, form)));
            Back { dy, factors, dx, dw }
        });
        let turned = back.as_ref().is_some_and(|back| back.dx.is_some());
        let weights = Weights::new(plan, geometry, Storage::Conv, turned);
        Self { weights, weight, activation: plan.activation_behind(y), x: plan.reads(x, form), y: plan.writes(y), back }
    }
}

impl Op for Conv {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let w = run.parameter(self.weight);
        self.weights.prepare(run, w)?;
        let (halves, numbers) =
            (self.y.halves.map(|y| Into::Halves(run.at(y))), self.y.numbers.map(|y| Into::Numbers(run.at(y))));
        let forward = |y| self.weights.forward(run, run.cohort, run.at(self.x), [w, Pointer::NULL], self.activation, y);
        halves.into_iter().chain(numbers).try_for_each(forward)
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(Back { dy, factors, dx, dw }) = &self.back else { return Ok(()) };
        let g = self.weights.geometry;
        if let Some(factors) = factors {
            run.to_halves(run.at(dy.slot), run.at(*factors), SCALE, g.out_pixels() * g.to as usize)?;
        }
        let dy = run.at(factors.unwrap_or(dy.slot));
        let alpha = if run.precision == Precision::Mixed { 1.0 / SCALE } else { 1.0 };
        if let Some(dw) = dw {
            dw.run(run, run.cohort, run.at(self.x), dy, alpha, run.gradient(self.weight))?;
        }
        let w = run.parameter(self.weight);
        match dx {
            None => Ok(()),
            Some((Target { slot, form: Form::Halves, .. }, _)) => {
                // A gradient in 16 bits stays scaled.
                self.weights.input_gradient(run, run.cohort, dy, w, 1.0, Into::Halves(run.at(*slot)))
            }
            Some((Target { slot, add, .. }, None)) => {
                let dx = if *add { Into::Sum(run.at(*slot)) } else { Into::Numbers(run.at(*slot)) };
                self.weights.input_gradient(run, run.cohort, dy, w, alpha, dx)
            }
            Some((Target { slot, .. }, Some(beside))) => {
                self.weights.input_gradient(run, run.cohort, dy, w, alpha, Into::Numbers(run.at(*beside)))?;
                run.add(run.at(*beside), run.at(*slot), g.in_pixels() * g.from as usize)
            }
        }
    }
}
