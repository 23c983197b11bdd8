//! Transformer layers one after the other.
//!
//! The stream `h` of a stack is added to twice a layer: `h + injection`, `+ drop(attention(norm_1(h)))`, `+ drop(mlp(norm_2(h)))`. Every sum is computed in one pass with the
//! normalisation behind it, so that what a layer ends with and what the next one begins with is one launch. Where nothing of the inside is kept and texts are short, the whole stack is
//! [one launch](at_once).
use fedeq_core::Result;
use fedeq_models::graph::{self, Affine, ValueId};
use half::f16;

use super::convolution::{self, Into};
use super::dropout::Masks;
use super::equilibrium::Sums;
use super::layer_norm::{self, Drop, Gradient, LayerNorm, Normed, Sum, WIDTH};
use super::linear::Linear;
use super::{Cohort, Op, PassContext, Text};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, argument, launch};
use crate::plan::{Form, Passed, Planner, Precision, Target};

mod at_once;
#[cfg(test)]
mod tests;

/// Layers with parameters of their own, or all with the same; maybe with a normalisation at the end.
pub(crate) struct Stack {
    layers: Vec<Layer>,
    /// What layers with the same parameters have added up so far on the way back, if there are several and these are trained.
    tied: Option<Sums>,
    end: Option<LayerNorm>,
    masks: Option<Masks>,
    sizes: Sizes,
    /// Whether passes of which nothing is kept are one launch.
    at_once: bool,
}

struct Layer {
    norm_1: LayerNorm,
    /// Queries, keys and values.
    qkv: Linear,
    output: Linear,
    norm_2: LayerNorm,
    widen: Linear,
    narrow: Linear,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Positions of all samples.
    positions: usize,
    length: usize,
    heads: usize,
    hidden: usize,
    /// Bytes of a factor.
    factor: usize,
}

/// Memory of a pass through a stack; none where that is one launch.
#[derive(Debug)]
pub(crate) struct Values {
    layers: Vec<LayerValues>,
    /// What attention and the MLP give, before it is added to the stream.
    branch: Option<Slot>,
    /// What is left of the normalisation at the end, where that is kept: its sum, its moments, and room for its result.
    end: Option<[Slot; 3]>,
}

/// What a layer leaves behind.
#[derive(Clone, Copy, Debug)]
struct LayerValues {
    first: NormValues,
    qkv: Slot,
    /// Of the softmax, for the way back.
    looks: Option<Slot>,
    seen: Slot,
    second: NormValues,
    wide: Slot,
    active: Slot,
}

#[derive(Clone, Copy, Debug)]
struct NormValues {
    sum: Slot,
    moments: Option<Slot>,
    /// In the form of factors.
    y: Slot,
}

/// When the memory of a pass is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// On the way forward: layers share it, and nothing is left behind.
    Forward,
    /// From the way forward to the way back.
    Kept,
    /// On the way back.
    Back,
}

/// Memory for the gradients inside a stack, in the form of factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gradients {
    branch: Slot,
    narrow: Slot,
    wide: Slot,
    qkv: Slot,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Attention {
    q: Pointer<u8>,
    k: Pointer<u8>,
    v: Pointer<u8>,
    looks: Pointer<[f32; 2]>,
    text: Text,
    cohort: Cohort,
    row: i32,
}

argument!(Attention { q, k, v, looks, text, cohort, row });

/// Numbers inside an MLP, for which there is a kernel that computes all of it.
const INSIDE: usize = 256;

#[repr(C)]
#[derive(Clone, Copy)]
struct Mlp {
    x: Pointer<f16>,
    w1: Pointer<f16>,
    w2: Pointer<f16>,
    b1: Pointer<f32>,
    b2: Pointer<f32>,
    y: Pointer<f16>,
    cohort: Cohort,
    stride: i64,
    length: i32,
}

argument!(Mlp { x, w1, w2, b1, b2, y, cohort, stride, length });

impl Stack {
    /// Plans a stack; `differentiated` says whether there is a way back.
    pub(crate) fn new(plan: &mut Planner<'_>, stack: &graph::Transformer, end: Option<Affine>, differentiated: bool) -> Self {
        let size = plan.purpose.size;
        let factor = if plan.purpose.precision == Precision::Mixed { 2 } else { 4 };
        let sizes = Sizes {
            positions: size.samples() * size.length,
            length: size.length,
            heads: stack.heads,
            hidden: stack.hidden,
            factor,
        };
        let end = end.map(|affine| LayerNorm::new(plan, affine, differentiated));
        // Backwards, like everything in a plan.
        let mut layers: Vec<Layer> =
            stack.layers.iter().rev().map(|layer| Layer::new(plan, layer, stack.hidden, differentiated)).collect();
        layers.reverse();
        let tied = (differentiated && stack.is_tied()).then(|| {
            let mut trained = plan.trained_here();
            trained.retain(|id| stack.layers[0].contains(id));
            Sums::of(plan, &trained, stack.layers.len())
        });
        let at_once = at_once::applies(plan, layers.len(), stack.hidden);
        Self { layers, tied, end, masks: Masks::new(plan, stack, differentiated), sizes, at_once }
    }

    /// Memory for passes.
    pub(crate) fn values(&self, plan: &mut Planner<'_>, when: When) -> Values {
        let Sizes { positions, heads, hidden, factor, .. } = self.sizes;
        if when == When::Forward && self.at_once {
            return Values { layers: Vec::new(), branch: None, end: None };
        }
        let numbers = 4 * positions * WIDTH;
        let branch = Some(match when {
            When::Forward | When::Kept => plan.scratch(factor * positions * WIDTH),
            When::Back => plan.scratch_back(factor * positions * WIDTH),
        });
        let mut take = |bytes: usize| match when {
            When::Forward => plan.scratch(bytes),
            When::Kept => plan.kept(bytes),
            When::Back => plan.scratch_back(bytes),
        };
        if when == When::Forward {
            let both = NormValues { sum: take(numbers), moments: None, y: take(factor * positions * WIDTH) };
            let (qkv, seen) = (take(3 * factor * positions * WIDTH), take(factor * positions * WIDTH));
            let wide = take(factor * positions * hidden);
            let all = LayerValues { first: both, qkv, looks: None, seen, second: both, wide, active: wide };
            return Values { layers: vec![all; self.layers.len()], branch, end: None };
        }
        let mut layer = || {
            let mut norm =
                || NormValues { sum: take(numbers), moments: Some(take(8 * positions)), y: take(factor * positions * WIDTH) };
            let (first, second) = (norm(), norm());
            LayerValues {
                first,
                qkv: take(3 * factor * positions * WIDTH),
                looks: Some(take(8 * positions * heads)),
                seen: take(factor * positions * WIDTH),
                second,
                wide: take(factor * positions * hidden),
                active: take(factor * positions * hidden),
            }
        };
        let layers = self.layers.iter().map(|_| layer()).collect();
        let end = self.end.map(|_| [take(numbers), take(8 * positions), take(numbers)]);
        Values { layers, branch, end }
    }

    /// Memory for the way back.
    pub(crate) fn gradients(&self, plan: &mut Planner<'_>) -> Gradients {
        let Sizes { positions, hidden, factor, .. } = self.sizes;
        let mut take = |width: usize| plan.scratch_back(factor * positions * width);
        Gradients { branch: take(WIDTH), narrow: take(WIDTH), wide: take(hidden), qkv: take(3 * WIDTH) }
    }

    /// Takes the parameters as they are now, and draws the masks of this pass.
    pub(crate) fn prepare(&self, run: &PassContext<'_>) -> Result<()> {
        convolution::prepare(run, self.layers.iter().flat_map(Layer::products).map(|product| product.stored(run)))?;
        self.masks.as_ref().map_or(Ok(()), |masks| masks.draw(run))
    }

    fn drop(&self, run: &PassContext<'_>, site: usize) -> Drop {
        self.masks.as_ref().map_or(Drop::NOTHING, |masks| masks.site(run, site))
    }

    /// The way forward from `h` (zeros if null). `y` may be null where a pass is kept and its result is of no interest.
    pub(crate) fn forward(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        values: &Values,
        [h, injection]: [Pointer<f32>; 2],
        y: Pointer<f32>,
    ) -> Result<()> {
        let Some(branch) = values.branch else { return self.forward_at_once(run, cohort, [h, injection], y) };
        let (none, branch) = (Pointer::NULL, run.at::<u8>(branch));
        let mut x = Sum { h, branch: Pointer::NULL, drop: Drop::NOTHING, injection };
        for (index, (layer, of)) in self.layers.iter().zip(&values.layers).enumerate() {
            layer.norm_1.forward(run, cohort, Sum { injection, ..x }, of.first.to(run))?;
            self.attend(run, cohort, layer, of, branch)?;
            let between = Sum { h: run.at(of.first.sum), branch, drop: self.drop(run, 2 * index), injection: none };
            layer.norm_2.forward(run, cohort, between, of.second.to(run))?;
            self.think(run, cohort, layer, of, branch)?;
            x = Sum { h: run.at(of.second.sum), branch, drop: self.drop(run, 2 * index + 1), injection: none };
        }
        if self.layers.is_empty() {
            x.injection = none;
        }
        let Some(norm) = &self.end else { return layer_norm::add_up(run, cohort, x, y) };
        let to = match values.end {
            Some([sum, moments, result]) => {
                Normed { sum: run.at(sum), moments: run.at(moments), y: run.at(result), y16: Pointer::NULL }
            }
            None => Normed { sum: none, moments: Pointer::NULL, y, y16: Pointer::NULL },
        };
        norm.forward(run, cohort, x, to)
    }

    /// Attention and its projection.
    fn attend(&self, run: &PassContext<'_>, cohort: Cohort, layer: &Layer, of: &LayerValues, branch: Pointer<u8>) -> Result<()> {
        layer.qkv.forward(run, cohort, run.at(of.first.y), None, factors(run, run.at(of.qkv)))?;
        let (call, seen) = (self.attention(run, cohort, of), run.at::<u8>(of.seen));
        launch!(run.device, self.attention_launch(run, false); call, seen)?;
        layer.output.forward(run, cohort, seen, None, factors(run, branch))
    }

    /// The MLP.
    fn think(&self, run: &PassContext<'_>, cohort: Cohort, layer: &Layer, of: &LayerValues, branch: Pointer<u8>) -> Result<()> {
        if let Some(call) = self.mlp(run, cohort, layer, of, branch) {
            let grid = [(run.size.most * self.sizes.length).div_ceil(64), run.size.lanes, 1];
            return launch!(run.device, Launch::new("mlp_f16", grid, 256).shared(79_872); call);
        }
        let [wide, active] = [of.wide, of.active].map(|slot| run.at::<u8>(slot));
        layer.widen.forward(run, cohort, run.at(of.second.y), None, factors(run, wide))?;
        let (gelu, n) = self.gelu_launch(run, ["gelu_f16", "gelu_f32"]);
        launch!(run.device, gelu; wide, active, cohort, n)?;
        layer.narrow.forward(run, cohort, active, None, factors(run, branch))
    }

    /// The MLP in one launch, where there is a kernel for it and its inside is not kept.
    fn mlp(&self, run: &PassContext<'_>, cohort: Cohort, layer: &Layer, of: &LayerValues, branch: Pointer<u8>) -> Option<Mlp> {
        let kept = of.second.moments.is_some();
        if kept || self.sizes.hidden != INSIDE {
            return None;
        }
        let ((w1, b1), (w2, b2)) = (layer.widen.halves(run)?, layer.narrow.halves(run)?);
        let (x, y, length) = (run.at(of.second.y), branch.cast(), self.sizes.length as i32);
        Some(Mlp { x, w1, w2, b1, b2, y, cohort, stride: run.stride(), length })
    }

    /// The way back of a pass that was kept. Without a normalisation at the end, `stream` holds the gradient of the result, and `dy` is null; with one, `dy` holds it. `stream`
    /// ends up as the gradient of `h`; those of the injection are added to `injection`, if that is not null. `parameters` says whether gradients of trained ones are computed.
    pub(crate) fn backward(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        (values, gradients): (&Values, &Gradients),
        dy: Pointer<f32>,
        [stream, injection]: [Pointer<f32>; 2],
        parameters: bool,
    ) -> Result<()> {
        let [branch, narrow, wide, qkv] =
            [gradients.branch, gradients.narrow, gradients.wide, gradients.qkv].map(|slot| run.at::<u8>(slot));
        let none = Pointer::NULL;
        // What a sum hands back: `dropped` is the number of its branch.
        let to = |dropped: Option<usize>, direct: Pointer<f32>, injection: Pointer<f32>| layer_norm::Into {
            direct,
            sum: stream,
            branch: if dropped.is_some() { branch } else { Pointer::NULL },
            drop: dropped.map_or(Drop::NOTHING, |site| self.drop(run, site)),
            injection,
        };
        let last = (2 * self.layers.len()).checked_sub(1);
        match (&self.end, values.end) {
            (Some(norm), Some([sum, moments, _])) => {
                norm.backward(run, cohort, [sum, moments], Gradient::Numbers(dy), to(last, none, none), parameters)?;
            }
            _ => layer_norm::add_up_backward(run, cohort, to(last, stream, none))?,
        }
        for (index, (layer, of)) in self.layers.iter().zip(&values.layers).enumerate().rev() {
            let learn = |product: &Linear, x: Slot, dy: Pointer<u8>| match parameters {
                true => product.parameter_gradients(run, cohort, run.at(x), dy),
                false => Ok(()),
            };
            learn(&layer.narrow, of.active, branch)?;
            layer.narrow.input_gradient(run, cohort, branch, 1.0, factors(run, wide))?;
            let (gelu, n) = self.gelu_launch(run, ["gelu_backward_f16", "gelu_backward_f32"]);
            launch!(run.device, gelu; run.at::<u8>(of.wide), wide, wide, cohort, n)?;
            learn(&layer.widen, of.second.y, wide)?;
            layer.widen.input_gradient(run, cohort, wide, 1.0, factors(run, narrow))?;
            let between = to(Some(2 * index), stream, none);
            layer.norm_2.backward(run, cohort, of.second.kept(), Gradient::Factors(narrow), between, parameters)?;
            learn(&layer.output, of.seen, branch)?;
            layer.output.input_gradient(run, cohort, branch, 1.0, factors(run, narrow))?;
            let [dq, dk, dv] = [0, 1, 2].map(|part| qkv.add(part * WIDTH * self.sizes.factor));
            let call = self.attention(run, cohort, of);
            launch!(run.device, self.attention_launch(run, true); call, narrow, dq, dk, dv)?;
            learn(&layer.qkv, of.first.y, qkv)?;
            layer.qkv.input_gradient(run, cohort, qkv, 1.0, factors(run, narrow))?;
            let before = to((2 * index).checked_sub(1), stream, injection);
            layer.norm_1.backward(run, cohort, of.first.kept(), Gradient::Factors(narrow), before, parameters)?;
            if let Some(tied) = self.tied.as_ref().filter(|_| parameters) {
                tied.add(run, index, self.layers.len())?;
            }
        }
        Ok(())
    }

    fn attention(&self, run: &PassContext<'_>, cohort: Cohort, of: &LayerValues) -> Attention {
        let [q, k, v] = [0, 1, 2].map(|part| run.at::<u8>(of.qkv).add(part * WIDTH * self.sizes.factor));
        Attention { q, k, v, looks: run.maybe(of.looks), text: run.text, cohort, row: 3 * WIDTH as i32 }
    }

    fn attention_launch(&self, run: &PassContext<'_>, back: bool) -> Launch {
        let (length, grid) = (self.sizes.length, run.by_sample(self.sizes.heads));
        if run.precision == Precision::Exact {
            return match back {
                false => Launch::new("attention_f32", grid, 256).shared(68 * length * 4),
                true => Launch::new("attention_backward_f32", grid, 256).shared((80 + 2 * length) * length * 4),
            };
        }
        // Kernels are named after the longest text they take.
        let kernel = match (length, back) {
            (..=16, false) => "attention_f16_16",
            (..=16, true) => "attention_backward_f16_16",
            (..=80, false) => "attention_f16_80",
            (..=80, true) => "attention_backward_f16_80",
            (_, false) => "attention_f16_128",
            (_, true) => "attention_backward_f16_128",
        };
        Launch::new(kernel, grid, 32 * length.div_ceil(16))
    }

    /// A launch over the numbers inside the MLP, and how many a sample has.
    fn gelu_launch(&self, run: &PassContext<'_>, [mixed, exact]: [&'static str; 2]) -> (Launch, i32) {
        let n = self.sizes.length * self.sizes.hidden;
        let kernel = if run.precision == Precision::Mixed { mixed } else { exact };
        (Launch::new(kernel, run.by_sample(n.div_ceil(1024)), 256), n as i32)
    }
}

/// A result in the form of factors. Gradients in 16 bits stay scaled.
fn factors(run: &PassContext<'_>, y: Pointer<u8>) -> Into {
    match run.precision {
        Precision::Mixed => Into::Halves(y.cast()),
        Precision::Exact => Into::Numbers(y.cast()),
    }
}

impl Layer {
    fn new(plan: &mut Planner<'_>, parameters: &[graph::ParameterId; 16], hidden: usize, differentiated: bool) -> Self {
        let [
            scale_1,
            offset_1,
            q,
            q_bias,
            k,
            k_bias,
            v,
            v_bias,
            o,
            o_bias,
            scale_2,
            offset_2,
            widen,
            widen_bias,
            narrow,
            narrow_bias,
        ] = *parameters;
        if differentiated {
            // Their gradients are columns of those of the queries' parameters.
            for id in [k, k_bias, v, v_bias] {
                plan.parameter(id);
            }
        }
        let mut norm = |scale, offset| LayerNorm::new(plan, Affine { scale, offset }, differentiated);
        let (norm_1, norm_2) = (norm(scale_1, offset_1), norm(scale_2, offset_2));
        let mut linear = |weight, bias, sizes| Linear::new(plan, weight, Some(bias), sizes, differentiated);
        Self {
            norm_1,
            qkv: linear(q, q_bias, [WIDTH, 3 * WIDTH]),
            output: linear(o, o_bias, [WIDTH, WIDTH]),
            norm_2,
            widen: linear(widen, widen_bias, [WIDTH, hidden]),
            narrow: linear(narrow, narrow_bias, [hidden, WIDTH]),
        }
    }

    fn products(&self) -> [&Linear; 4] {
        [&self.qkv, &self.output, &self.widen, &self.narrow]
    }
}

impl NormValues {
    /// Where a normalisation writes.
    fn to(&self, run: &PassContext<'_>) -> Normed {
        let (y, y16) = match run.precision {
            Precision::Mixed => (Pointer::NULL, run.at(self.y)),
            Precision::Exact => (run.at(self.y), Pointer::NULL),
        };
        Normed { sum: run.at(self.sum), moments: run.maybe(self.moments), y, y16 }
    }

    /// What its way back needs.
    fn kept(&self) -> [Slot; 2] {
        [self.sum, self.moments.expect("a pass that is kept")]
    }
}

/// Transformer layers as a layer of a network.
pub(super) struct Transformer {
    stack: Stack,
    values: Values,
    h: Option<Slot>,
    injection: Slot,
    y: Slot,
    /// The same in 16 bits, where that is wanted.
    halves: Option<Slot>,
    back: Option<Back>,
}

struct Back {
    /// The gradient of the result, which becomes that of `h` in its own place.
    stream: Slot,
    dh: Passed,
    injection: Option<Target>,
    gradients: Gradients,
}

impl Transformer {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        h: Option<ValueId>,
        injection: ValueId,
        layers: &graph::Transformer,
        y: ValueId,
    ) -> Self {
        let incoming = plan.incoming(y).map(|dy| dy.slot);
        let stack = Stack::new(plan, layers, None, incoming.is_some());
        let back = incoming.map(|stream| Back {
            stream,
            dh: h.map_or(Passed::Unwanted, |h| plan.same_as(h, stream)),
            injection: plan.target(injection),
            gradients: stack.gradients(plan),
        });
        let values = stack.values(plan, if back.is_some() { When::Kept } else { When::Forward });
        let (h, injection) = (h.map(|h| plan.reads(h, Form::Numbers)), plan.reads(injection, Form::Numbers));
        let (y, halves) = plan.writes_numbers(y);
        Self { stack, values, h, injection, y, halves, back }
    }
}

impl Op for Transformer {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        self.stack.prepare(run)?;
        let y = run.at(self.y);
        self.stack.forward(run, run.cohort, &self.values, [run.maybe(self.h), run.at(self.injection)], y)?;
        match self.halves {
            Some(halves) => run.to_halves(y, run.at(halves), 1.0, run.size.length * WIDTH),
            None => Ok(()),
        }
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(Back { stream, dh, injection, gradients }) = &self.back else { return Ok(()) };
        let injected = run.maybe::<f32>(injection.map(|target| target.slot));
        if injection.is_some_and(|target| !target.add) {
            run.device.fill_zero(injected, self.stack.sizes.positions * WIDTH)?;
        }
        let stream = run.at::<f32>(*stream);
        let around = (&self.values, gradients);
        self.stack.backward(run, run.cohort, around, Pointer::NULL, [stream, injected], true)?;
        match dh {
            Passed::AddedTo(slot) => run.add(stream, run.at(*slot), run.size.length * WIDTH),
            Passed::Unwanted | Passed::InPlace => Ok(()),
        }
    }
}
