//! Transformer layers one after the other.
use fedeq_kernels::transformer::{DropoutMultipliers, LayerGradients, LayerParts, LayerSaved, LayerShape, Masks, PreparedLayer};
use fedeq_models::Mode;
use fedeq_models::graph::{self, ParameterId, ValueId};

use super::{Op, PassContext, Symbols};
use crate::dropout::Multipliers;
use crate::memory::{Buffer, Target, add};
use crate::parameters::{ParameterTarget, Values};
use crate::plan::Planner;

#[derive(Debug)]
pub(super) struct Transformer {
    shape: LayerShape,
    layers: Vec<StackedLayer>,
    multipliers: Multipliers,
    h: Option<Buffer>,
    injection: Buffer,
    y: Buffer,
    back: Option<Back>,
}

/// One layer of the stack.
#[derive(Debug)]
struct StackedLayer {
    parameters: [ParameterId; 16],
    prepared: Option<PreparedLayer>,
    saved: LayerSaved,
    targets: [Option<ParameterTarget>; 16],
    /// If any of the targets is wanted.
    sums: Option<LayerGradients>,
}

#[derive(Debug)]
struct Back {
    dy: Buffer,
    dh: Option<Target>,
    d_injection: Option<Target>,
}

impl Transformer {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        h: Option<ValueId>,
        injection: ValueId,
        layers: &graph::Transformer,
        y: ValueId,
    ) -> Self {
        let shape = layer_shape(plan, layers, y);
        let back =
            plan.incoming(y).map(|dy| Back { dy, dh: h.and_then(|h| plan.target(h)), d_injection: plan.target(injection) });
        let made = layers.layers.iter().map(|&parameters| {
            let targets = if back.is_some() { parameters.map(|id| plan.parameter(id)) } else { [None; 16] };
            let sums = targets.iter().any(Option::is_some).then(|| LayerGradients::zeros(&shape));
            StackedLayer { parameters, prepared: None, saved: LayerSaved::default(), targets, sums }
        });
        let made = made.collect::<Vec<_>>();
        Self {
            shape,
            multipliers: Multipliers::new(&layers.dropout, made.len(), plan.mode == Mode::Train),
            layers: made,
            h: h.map(|h| plan.forward(h)),
            injection: plan.forward(injection),
            y: plan.forward(y),
            back,
        }
    }
}

/// The sizes of the layers of a stack, whose output is `y`.
pub(super) fn layer_shape(plan: &Planner<'_>, layers: &graph::Transformer, y: ValueId) -> LayerShape {
    let (batch, length, width) = (plan.batch, plan.length, plan.width(y));
    LayerShape { batch, length, width, heads: layers.heads, hidden: layers.hidden }
}

/// The parameters of one layer.
pub(super) fn parts<'a>(parameters: &[ParameterId; 16], values: &Values<'a>) -> LayerParts<&'a [f32]> {
    LayerParts::from_array(parameters.map(|id| values.get(id)))
}

/// The masks of one layer.
fn masks<'a>(shape: &LayerShape, symbols: Symbols<'a>, multipliers: &'a Multipliers, layer: usize) -> Masks<'a> {
    let each = shape.length * shape.width;
    let site = |index: usize| {
        let (all, sites) = multipliers.get()?;
        Some(DropoutMultipliers { multipliers: &all[index * each..], stride: sites * each })
    };
    let blocked = symbols.blocked.expect("attention is to symbols");
    Masks { blocked, attention: site(2 * layer), mlp: site(2 * layer + 1) }
}

impl Op for Transformer {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        let (shape, saving) = (self.shape, self.back.is_some());
        self.multipliers.draw(run.dropout, shape.batch, shape.length * shape.width);
        let scratch = &mut run.scratch.transformer;
        run.numbers.write(self.y, |numbers, y| {
            match self.h {
                Some(h) => y.copy_from_slice(numbers.read(h)),
                None => y.fill(0.0),
            }
            let injection = numbers.read(self.injection);
            for (index, layer) in self.layers.iter_mut().enumerate() {
                let masks = masks(&shape, run.symbols, &self.multipliers, index);
                let parameters = parts(&layer.parameters, &run.parameters);
                let prepared = match &mut layer.prepared {
                    Some(prepared) => {
                        prepared.update(&parameters);
                        prepared
                    }
                    none => none.insert(PreparedLayer::new(run.set, shape, &parameters)),
                };
                if saving {
                    prepared.forward_saving(y, injection, masks, &mut layer.saved, scratch);
                } else {
                    prepared.forward_in_place(y, injection, masks, scratch);
                }
            }
        });
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(back) = &self.back else { return };
        let (shape, multipliers, symbols) = (self.shape, &self.multipliers, run.symbols);
        let scratch = &mut run.scratch.transformer;
        let layers = &mut self.layers;
        // The gradient that comes in goes through the layers in its own place; each layer's share of the injection's is added up.
        let mut pass = |gradient: &mut [f32], mut injected: Option<&mut [f32]>| {
            if let Some(injected) = &mut injected {
                injected.fill(0.0);
            }
            for (index, layer) in layers.iter_mut().enumerate().rev() {
                let (masks, prepared) = (masks(&shape, symbols, multipliers, index), layer.prepared.as_mut());
                let prepared = prepared.expect("the way forward comes first");
                prepared.turn();
                match &mut layer.sums {
                    Some(sums) => {
                        sums.as_mut_array().into_iter().for_each(|sum| sum.fill(0.0));
                        prepared.backward(&layer.saved, masks, gradient, sums, scratch);
                    }
                    None => prepared.pull_back(&layer.saved, masks, gradient, scratch),
                }
                if let Some(injected) = &mut injected {
                    add(injected, gradient);
                }
            }
        };
        let (dy, d_injection) = (back.dy, back.d_injection);
        run.numbers.write(dy, |numbers, gradient| match d_injection {
            Some(target) => numbers.write_gradient(target, |_, injected| pass(gradient, Some(injected))),
            None => pass(gradient, None),
        });
        if let Some(dh) = back.dh {
            run.numbers.write_gradient(dh, |numbers, dh| dh.copy_from_slice(numbers.read(dy)));
        }
        for layer in &self.layers {
            if let Some(sums) = &layer.sums {
                for (target, sum) in layer.targets.iter().zip(sums.as_array()) {
                    run.gradients.write(*target, |to| to.copy_from_slice(sum));
                }
            }
        }
    }
}
