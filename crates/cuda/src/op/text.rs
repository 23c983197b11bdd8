//! Vectors that stand for symbols, the normalisation of every position, and linear layers over positions.
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::{Affine, ParameterId, ValueId};

use super::convolution::Into;
use super::layer_norm::{self, Drop, Gradient, Normed, Sum};
use super::linear::Linear;
use super::{Op, PassContext, phi};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::plan::{Form, Forms, ParameterTarget, Planner, Target};

/// The vector of every symbol, with that of its position.
pub(super) struct Embed {
    tokens: ParameterId,
    symbols: usize,
    positions: Option<ParameterId>,
    width: usize,
    y: Slot,
    /// The same in 16 bits, where that is wanted.
    halves: Option<Slot>,
    back: Option<EmbedBack>,
}

struct EmbedBack {
    dy: Slot,
    tokens: Option<ParameterTarget>,
    /// With the number of positions beyond those of this plan's texts, and memory for a sum that is added.
    positions: Option<(ParameterTarget, usize, Option<Slot>)>,
}

impl Embed {
    pub(super) fn new(plan: &mut Planner<'_>, tokens: ParameterId, positions: Option<ParameterId>, y: ValueId) -> Self {
        let width = plan.channels(y);
        let size = plan.purpose.size;
        let back = plan.incoming(y).map(|dy| EmbedBack {
            dy: dy.slot,
            tokens: plan.parameter(tokens),
            positions: positions.and_then(|id| plan.parameter(id)).map(|target| {
                let all = plan.graph.parameter(target.id).shape[0];
                let beyond = all.checked_sub(size.length).expect("texts are at most as long as the network's longest");
                (target, beyond, target.add.then(|| plan.scratch_back(4 * size.lanes * size.length * width)))
            }),
        });
        let (y, halves) = plan.writes_numbers(y);
        let symbols = plan.graph.parameter(tokens).shape[0];
        Self { tokens, symbols, positions, width, y, halves, back }
    }
}

impl Op for Embed {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let positions = self.positions.map_or(Pointer::NULL, |id| run.parameter(id));
        let (each, y) = (run.size.length * self.width, run.at::<f32>(self.y));
        let gather = Launch::new("embed", run.by_sample(each.div_ceil(256)), 256);
        let (tokens, width) = (run.parameter(self.tokens), self.width as i32);
        launch!(run.device, gather; tokens, positions, y, run.text, run.cohort, run.stride(), width)?;
        self.halves.map_or(Ok(()), |halves| run.to_halves(y, run.at(halves), 1.0, each))
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(EmbedBack { dy, tokens, positions }) = &self.back else { return Ok(()) };
        let (dy, lanes, width) = (run.at::<f32>(*dy), run.size.lanes, self.width as i32);
        if let Some(ParameterTarget { id, add }) = tokens {
            let scatter = Launch::new("embed_backward", [self.symbols, lanes, 1], 256);
            launch!(run.device, scatter; dy, run.gradient(*id), run.text, run.cohort, run.stride(), width, i32::from(*add))?;
        }
        let Some((ParameterTarget { id, .. }, beyond, beside)) = positions else { return Ok(()) };
        let (to, n) = (run.gradient(*id), run.size.length * self.width);
        let (out, stride) = beside.map_or((to, run.stride()), |beside| (run.at(beside), n as i64));
        let sum = Launch::new("sum_samples", [n.div_ceil(32), lanes, 1], 1024);
        launch!(run.device, sum; dy, out, run.cohort, stride, 1.0_f32, 1_i32, n as i32)?;
        if beside.is_some() {
            let add = Launch::new("lanes_plus", [n.div_ceil(1024), lanes, 1], 256);
            return launch!(run.device, add; to, to, out, run.stride(), run.stride(), stride, n as i64, 1.0_f32);
        }
        // Positions that no text of this length has.
        let (rest, n) = (to.add(n), beyond * self.width);
        let clear = Launch::new("lanes_fill", [n.div_ceil(1024), lanes, 1], 256);
        launch!(run.device, clear; rest, run.stride(), n as i64, 0.0_f32)
    }
}

/// The normalisation of every position.
pub(super) struct LayerNorm {
    norm: layer_norm::LayerNorm,
    x: Slot,
    moments: Slot,
    y: Forms,
    back: Option<(Slot, Option<Target>)>,
}

impl LayerNorm {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, affine: Affine, y: ValueId) -> Self {
        let back = plan.incoming(y).map(|dy| (dy.slot, plan.target(x)));
        if back.is_some() {
            plan.reads_again(x, Form::Numbers);
        }
        let norm = layer_norm::LayerNorm::new(plan, affine, back.is_some());
        let moments = plan.kept(8 * plan.purpose.size.samples() * plan.purpose.size.length);
        Self { norm, x: plan.reads(x, Form::Numbers), moments, y: plan.writes(y), back }
    }
}

impl Op for LayerNorm {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let x = Sum { h: run.at(self.x), branch: Pointer::NULL, drop: Drop::NOTHING, injection: Pointer::NULL };
        let (y, y16) = (run.maybe(self.y.numbers), run.maybe(self.y.halves));
        self.norm.forward(run, run.cohort, x, Normed { sum: Pointer::NULL, moments: run.at(self.moments), y, y16 })
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some((dy, dx)) = self.back else { return Ok(()) };
        let sum = run.maybe(dx.map(|dx| dx.slot));
        let to = layer_norm::Into {
            direct: if dx.is_some_and(|dx| dx.add) { sum } else { Pointer::NULL },
            sum,
            branch: Pointer::NULL,
            drop: Drop::NOTHING,
            injection: Pointer::NULL,
        };
        self.norm.backward(run, run.cohort, [self.x, self.moments], Gradient::Numbers(run.at(dy)), to, true)
    }
}

/// `phi(x W + b)` at every position.
pub(super) struct Dense {
    linear: Linear,
    activation: Option<Activation>,
    /// Numbers a position.
    widths: [usize; 2],
    x: Slot,
    y: Forms,
    back: Option<DenseBack>,
}

struct DenseBack {
    dy: Slot,
    /// The same in the form of factors, where that is another one.
    factors: Option<Slot>,
    /// The result, for the gradient of the nonlinearity.
    y: Option<Slot>,
    /// With memory for what is added afterwards, where products cannot add.
    dx: Option<(Target, Option<Slot>)>,
}

impl Dense {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        x: ValueId,
        weight: ParameterId,
        bias: Option<ParameterId>,
        activation: Option<Activation>,
        y: ValueId,
    ) -> Self {
        let (form, widths) = (plan.factors(), [plan.channels(x), plan.channels(y)]);
        let back = plan.incoming(y).map(|dy| DenseBack {
            dy: dy.slot,
            factors: (form == Form::Halves).then(|| plan.scratch_back(plan.bytes(y, Form::Halves))),
            y: activation.map(|_| plan.reads_again(y, Form::Numbers)),
            dx: plan.target(x).map(|dx| {
                let beside = dx.add && form == Form::Numbers;
                (dx, beside.then(|| plan.scratch_back(plan.bytes(x, Form::Numbers))))
            }),
        });
        let linear = Linear::new(plan, weight, bias, widths, back.is_some());
        if back.is_some() {
            plan.reads_again(x, form);
        }
        Self { linear, activation, widths, x: plan.reads(x, form), y: plan.writes(y), back }
    }
}

impl Op for Dense {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        self.linear.prepare(run)?;
        let forms = [self.y.halves.map(|y| Into::Halves(run.at(y))), self.y.numbers.map(|y| Into::Numbers(run.at(y)))];
        let x = run.at(self.x);
        forms.into_iter().flatten().try_for_each(|y| self.linear.forward(run, run.cohort, x, self.activation, y))
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(DenseBack { dy, factors, y, dx }) = &self.back else { return Ok(()) };
        let [from, to] = self.widths.map(|width| width * run.size.length);
        let dy = run.at::<f32>(*dy);
        if let Some(y) = y {
            let slopes = Launch::new("activation_backward", run.by_sample(to.div_ceil(256)), 256);
            let phi = phi(self.activation, run.precision);
            launch!(run.device, slopes; run.at::<f32>(*y), dy, dy, run.cohort, to as i32, phi)?;
        }
        if let Some(factors) = factors {
            run.to_halves(dy, run.at(*factors), run.gradient_scale(), to)?;
        }
        let dy = factors.map_or(dy.cast(), |factors| run.at(factors));
        self.linear.parameter_gradients(run, run.cohort, run.at(self.x), dy)?;
        let Some((Target { slot, add, .. }, beside)) = dx else { return Ok(()) };
        let (dx, alpha) = (run.at::<f32>(*slot), 1.0 / run.gradient_scale());
        match (beside, add) {
            (Some(beside), _) => {
                let part = run.at::<f32>(*beside);
                self.linear.input_gradient(run, run.cohort, dy, alpha, Into::Numbers(part))?;
                run.add(part, dx, from)
            }
            (None, true) => self.linear.input_gradient(run, run.cohort, dy, alpha, Into::Sum(dx)),
            (None, false) => self.linear.input_gradient(run, run.cohort, dy, alpha, Into::Numbers(dx)),
        }
    }
}
