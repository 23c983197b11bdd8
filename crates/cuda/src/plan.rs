//! What is computed when, and where: made once for a network, a size of cohort and what is trained.
use std::sync::Arc;

use fedeq_core::{Result, Trains};
use fedeq_models::Activation;
use fedeq_models::Mode;
use fedeq_models::graph::{self, Fusion, Graph, Layer, NormScope, ParameterId, Shape, ValueId};
use half::f16;

use crate::arena::{Arena, Lifetimes, Slot};
use crate::device::{Device, Pointer};
use crate::layout::Layout;
use crate::op::{self, Op, PassContext};

/// How precisely a GPU computes. The setting of the same name in `fedeq-run` is this choice as people write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 16-bit factors and 32-bit sums in convolutions and in products over the positions of texts, on tensor cores; 32 bits for everything else.
    #[default]
    Mixed,
    /// 32 bits throughout.
    Exact,
}

/// How large a cohort a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Size {
    /// Clients side by side.
    pub(crate) lanes: usize,
    /// Samples of a client in a batch, at most.
    pub(crate) most: usize,
    /// Length of sequences; 1 where there are none.
    pub(crate) length: usize,
}

impl Size {
    /// Samples of all lanes.
    pub(crate) fn samples(&self) -> usize {
        self.lanes * self.most
    }
}

/// What is computed by a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    pub(crate) size: Size,
    pub(crate) mode: Mode,
    pub(crate) precision: Precision,
    /// Which parameters want gradients, if any.
    pub(crate) trains: Option<Trains>,
    /// Whether there is a loss on embeddings too.
    pub(crate) contrasts: bool,
}

/// The form of numbers on their way through a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// 32 bits.
    Numbers,
    /// 16 bits, with channels padded to a multiple of 8. Gradients are [`SCALE`] times as large as they are.
    Halves,
}

/// The size of cohort for which sums are cut into parts that several blocks work on. How a sum is cut decides how it is rounded, and a client's result must not depend on how
/// many others are there: so it is cut the same in every cohort.
pub(crate) const USUAL_LANES: usize = 10;

/// What 16-bit gradients are multiplied by, so that small ones are not lost. A power of two: nothing is rounded by it.
pub(crate) const SCALE: f32 = 1024.0;

/// How a network is run, ready to be carried out.
pub(crate) struct NetworkPlan {
    pub(crate) ops: Vec<Box<dyn Op>>,
    pub(crate) arena: Arena,
    /// The input in the forms that layers read.
    pub(crate) input: Forms,
    /// Always numbers.
    pub(crate) logits: Slot,
    /// Numbers from one row of logits to the next.
    pub(crate) logits_pitch: usize,
    /// Of evaluation, and of training with a loss on it; always numbers. None where the input itself is what stands for a sample.
    pub(crate) embedding: Option<Slot>,
    /// Where a loss on embeddings leaves their gradient, if there is one.
    pub(crate) embedding_gradient: Option<Slot>,
    /// Where the loss leaves the gradient of the logits, if there are gradients.
    pub(crate) logits_gradient: Option<Slot>,
}

/// The forms in which a value is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forms {
    pub(crate) numbers: Option<Slot>,
    pub(crate) halves: Option<Slot>,
}

impl NetworkPlan {
    pub(crate) fn new(device: &Arc<Device>, graph: &Graph, layout: &Layout, purpose: Purpose) -> Self {
        let mut planner = Planner::new(device, graph, layout, purpose);
        let end = planner.end();
        let logits = planner.value(graph.logits, Form::Numbers, end);
        let contrasting = purpose.contrasts && purpose.trains.is_some_and(|trains| contrasts(graph, trains));
        let embedding = (contrasting || purpose.trains.is_none() && graph.embedding != graph.input())
            .then(|| planner.value(graph.embedding, Form::Numbers, end));
        let logits_gradient = planner.start_gradient(graph.logits);
        let embedding_gradient = contrasting.then(|| planner.start_gradient(graph.embedding)).flatten();
        // Backwards, so that a layer knows in which forms its output is read, and which layer writes a gradient first.
        let mut ops: Vec<Box<dyn Op>> = Vec::with_capacity(graph.layers.len());
        for (index, layer) in graph.layers.iter().enumerate().rev() {
            planner.layer = index;
            ops.push(op::build(layer, &mut planner));
        }
        ops.reverse();
        let (input, logits_pitch) = (planner.values[0], planner.channels(graph.logits));
        Self {
            ops,
            arena: planner.lifetimes.assign(),
            input,
            logits,
            logits_pitch,
            embedding,
            embedding_gradient,
            logits_gradient,
        }
    }
}

/// Whether a loss on embeddings has a gradient: something that is trained has a say in them.
pub(crate) fn contrasts(graph: &Graph, trains: Trains) -> bool {
    let trained = |id: ParameterId| trains.includes(graph.parameter(id).part);
    graph.embedding != graph.input() && graph.influenced_by(trained)[graph.embedding.0]
}

/// A plan in the making. It stands at one layer, and goes from the last layer to the first.
pub(crate) struct Planner<'a> {
    pub(crate) device: &'a Arc<Device>,
    pub(crate) graph: &'a Graph,
    pub(crate) layout: &'a Layout,
    pub(crate) purpose: Purpose,
    /// Of every value, whether a trained parameter has a say in it.
    depends: Vec<bool>,
    lifetimes: Lifetimes,
    values: Vec<Forms>,
    gradients: Vec<Option<Slot>>,
    /// Of every parameter, whether a layer behind writes its gradient.
    written: Vec<bool>,
    /// Memory that one launch hands to the next on a layer's way back, and which layer's it is.
    workspace: Option<(usize, Slot)>,
    layer: usize,
}

/// A gradient that comes to a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub(crate) slot: Slot,
    pub(crate) form: Form,
}

/// Where the gradient of a value goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) slot: Slot,
    pub(crate) form: Form,
    /// Whether it is added to what another layer has written. Never with 16 bits.
    pub(crate) add: bool,
}

/// Where a layer that cannot add writes the gradient of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    target: Target,
    /// Where it is written if another layer has written its part already.
    beside: Option<Slot>,
    /// Numbers a sample.
    each: usize,
}

impl Written {
    /// Where it is written in 32 bits; null if it is wanted in 16.
    pub(crate) fn numbers(&self, run: &PassContext<'_>) -> Pointer<f32> {
        match self.target.form {
            Form::Numbers => run.at(self.beside.unwrap_or(self.target.slot)),
            Form::Halves => Pointer::NULL,
        }
    }

    /// Where it is written in 16 bits, [`SCALE`] times as large; null if it is wanted in 32.
    pub(crate) fn halves(&self, run: &PassContext<'_>) -> Pointer<f16> {
        match self.target.form {
            Form::Numbers => Pointer::NULL,
            Form::Halves => run.at(self.target.slot),
        }
    }

    /// Adds it to what another layer has written, if one has.
    pub(crate) fn finish(&self, run: &PassContext<'_>) -> Result<()> {
        match self.beside {
            Some(beside) => run.add(run.at(beside), run.at(self.target.slot), self.each),
            None => Ok(()),
        }
    }
}

/// Where the gradient of an input goes that has the very gradient of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passed {
    /// It is not wanted.
    Unwanted,
    /// It stays where it is.
    InPlace,
    /// It is added to what is there.
    AddedTo(Slot),
}

/// Where the gradient of a parameter goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParameterTarget {
    pub(crate) id: ParameterId,
    /// Whether another layer has written its part already.
    pub(crate) add: bool,
}

impl<'a> Planner<'a> {
    fn new(device: &'a Arc<Device>, graph: &'a Graph, layout: &'a Layout, purpose: Purpose) -> Self {
        let trained = |id: ParameterId| purpose.trains.is_some_and(|trains| trains.includes(graph.parameter(id).part));
        let depends = graph.influenced_by(trained);
        Self {
            device,
            graph,
            layout,
            purpose,
            depends,
            lifetimes: Lifetimes::default(),
            values: vec![Forms::default(); graph.values.len()],
            gradients: vec![None; graph.values.len()],
            written: vec![false; graph.parameters.len()],
            workspace: None,
            layer: 0,
        }
    }

    /// The input is there before the first layer; the loss is computed between the last layer and its gradients.
    fn end(&self) -> usize {
        self.graph.layers.len()
    }

    fn backward_time(&self) -> usize {
        2 * self.end() - self.layer
    }

    fn start_gradient(&mut self, value: ValueId) -> Option<Slot> {
        let (bytes, end) = (self.bytes(value, Form::Numbers), self.end());
        self.gradients[value.0] = self.wants(value).then(|| self.lifetimes.add(bytes, end));
        self.gradients[value.0]
    }

    fn value(&mut self, value: ValueId, form: Form, at: usize) -> Slot {
        let bytes = self.bytes(value, form);
        // The input is written before anything else happens.
        let from = if value == self.graph.input() { 0 } else { at };
        let forms = &mut self.values[value.0];
        let slot = match form {
            Form::Numbers => &mut forms.numbers,
            Form::Halves => &mut forms.halves,
        };
        let slot = *slot.get_or_insert_with(|| self.lifetimes.add(bytes, from));
        self.lifetimes.need(slot, from);
        self.lifetimes.need(slot, at);
        slot
    }

    /// The form in which tensor cores read: 16 bits, or 32 where everything is exact.
    pub(crate) fn factors(&self) -> Form {
        match self.purpose.precision {
            Precision::Mixed => Form::Halves,
            Precision::Exact => Form::Numbers,
        }
    }

    /// A value that this layer reads on the way forward.
    pub(crate) fn reads(&mut self, value: ValueId, form: Form) -> Slot {
        self.value(value, form, self.layer)
    }

    /// A value that this layer reads again on the way back: its input or its output.
    pub(crate) fn reads_again(&mut self, value: ValueId, form: Form) -> Slot {
        self.value(value, form, self.backward_time())
    }

    /// The forms in which this layer's output is wanted by those behind it, and by its own way back if that [asked](Self::reads_again).
    pub(crate) fn writes(&mut self, value: ValueId) -> Forms {
        let forms = self.values[value.0];
        for slot in [forms.numbers, forms.halves].into_iter().flatten() {
            self.lifetimes.need(slot, self.layer);
        }
        forms
    }

    /// The output of a layer that computes in 32 bits, and the same in 16 where that is wanted.
    pub(crate) fn writes_numbers(&mut self, value: ValueId) -> (Slot, Option<Slot>) {
        (self.value(value, Form::Numbers, self.layer), self.writes(value).halves)
    }

    /// Memory for this layer's way forward.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Slot {
        self.lifetimes.add(bytes, self.layer)
    }

    /// Memory for this layer's way back.
    pub(crate) fn scratch_back(&mut self, bytes: usize) -> Slot {
        self.lifetimes.add(bytes, self.backward_time())
    }

    /// Memory that one launch of this layer's way back hands to the next: whoever asks gets the same, large enough for all.
    pub(crate) fn workspace_back(&mut self, bytes: usize) -> Slot {
        let slot = match self.workspace {
            Some((layer, slot)) if layer == self.layer => slot,
            _ => self.scratch_back(bytes),
        };
        self.lifetimes.grow(slot, bytes);
        self.workspace = Some((self.layer, slot));
        slot
    }

    /// Memory that is written on the way forward and read on the way back, if there is a way back.
    pub(crate) fn kept(&mut self, bytes: usize) -> Slot {
        let slot = self.lifetimes.add(bytes, self.layer);
        if self.purpose.trains.is_some() {
            self.lifetimes.need(slot, self.backward_time());
        }
        slot
    }

    /// Memory that is written on the way forward and may be read until the whole pass is over.
    pub(crate) fn lasting(&mut self, bytes: usize) -> Slot {
        let slot = self.lifetimes.add(bytes, self.layer);
        self.lifetimes.need(slot, 2 * self.end());
        slot
    }

    /// Whether gradients flow to a value.
    pub(crate) fn wants(&self, value: ValueId) -> bool {
        self.depends[value.0]
    }

    /// The form in which a gradient is handed to the layer that gives the value: convolutions read it in 16 bits, where one layer alone writes it.
    fn gradient_form(&self, value: ValueId) -> Form {
        let by_conv = self.graph.layers.iter().any(|layer| matches!(layer, Layer::Conv { y, .. } if *y == value));
        let readers = self.graph.layers.iter().filter(|layer| layer.inputs().contains(&value)).collect::<Vec<_>>();
        let by_norm = matches!(readers[..], [Layer::Norm { x, .. }] if *x == value);
        if by_conv && by_norm { self.factors() } else { Form::Numbers }
    }

    /// Which layer gives a value; none for the input.
    pub(crate) fn giver(&self, value: ValueId) -> Option<&'a Layer> {
        self.graph.layers.iter().find(|layer| layer.output() == value)
    }

    /// The activation that a convolution can apply to its own output: `phi` of `norm(phi(y))`, where `y` is read nowhere else.
    pub(crate) fn activation_behind(&self, y: ValueId) -> Option<Activation> {
        let readers: Vec<&Layer> = self.graph.layers.iter().filter(|layer| layer.inputs().contains(&y)).collect();
        match (&readers[..], self.giver(y)) {
            ([Layer::Norm { fusion: Fusion::Before(phi), .. }], Some(Layer::Conv { .. }))
                if ![self.graph.logits, self.graph.embedding].contains(&y) =>
            {
                Some(*phi)
            }
            _ => None,
        }
    }

    /// The output of the max pooling that a batch normalisation can do itself, `pool(norm(phi(x)))`, where its own output `y` is read nowhere else.
    pub(crate) fn pool_behind(&self, y: ValueId) -> Option<ValueId> {
        let readers: Vec<&Layer> = self.graph.layers.iter().filter(|layer| layer.inputs().contains(&y)).collect();
        match (&readers[..], self.giver(y)) {
            (
                [Layer::MaxPool { y: pooled, .. }],
                Some(Layer::Norm { over: NormScope::Batch { .. }, fusion: Fusion::None | Fusion::Before(_), .. }),
            ) if ![self.graph.logits, self.graph.embedding].contains(&y) => Some(*pooled),
            _ => None,
        }
    }

    /// The gradient that comes to this layer's output; none if the layer has no way back.
    pub(crate) fn incoming(&mut self, output: ValueId) -> Option<Incoming> {
        let slot = self.gradients[output.0]?;
        self.lifetimes.need(slot, self.backward_time());
        Some(Incoming { slot, form: self.gradient_form(output) })
    }

    /// Where the gradient of an input goes, if it is wanted.
    pub(crate) fn target(&mut self, input: ValueId) -> Option<Target> {
        if !self.wants(input) {
            return None;
        }
        let form = self.gradient_form(input);
        let (bytes, at) = (self.bytes(input, form), self.backward_time());
        let add = self.gradients[input.0].is_some();
        let slot = *self.gradients[input.0].get_or_insert_with(|| self.lifetimes.add(bytes, at));
        self.lifetimes.need(slot, at);
        Some(Target { slot, form, add })
    }

    /// The same for a layer that cannot add.
    pub(crate) fn written(&mut self, input: ValueId) -> Option<Written> {
        let target = self.target(input)?;
        let beside = target.add.then(|| self.scratch_back(self.bytes(input, Form::Numbers)));
        Some(Written { target, beside, each: self.count(input) })
    }

    /// Where the gradient of an input goes that has the very gradient of the output, in 32 bits.
    pub(crate) fn same_as(&mut self, input: ValueId, output: Slot) -> Passed {
        if !self.wants(input) {
            return Passed::Unwanted;
        }
        match self.gradients[input.0] {
            // The gradient of the output is not needed any more: it becomes that of the input where it is.
            None => {
                self.gradients[input.0] = Some(output);
                Passed::InPlace
            }
            Some(slot) => {
                self.lifetimes.need(slot, self.backward_time());
                Passed::AddedTo(slot)
            }
        }
    }

    /// Where the gradient of a parameter goes, if it is trained.
    pub(crate) fn parameter(&mut self, id: ParameterId) -> Option<ParameterTarget> {
        let part = self.graph.parameter(id).part;
        if !self.purpose.trains.is_some_and(|trains| trains.includes(part)) {
            return None;
        }
        Some(ParameterTarget { id, add: std::mem::replace(&mut self.written[id.0], true) })
    }

    /// The parameters of this layer that are trained.
    pub(crate) fn trained_here(&self) -> Vec<ParameterId> {
        let trained =
            |id: &ParameterId| self.purpose.trains.is_some_and(|trains| trains.includes(self.graph.parameter(*id).part));
        self.graph.layers[self.layer].parameters().into_iter().filter(trained).collect()
    }

    /// The bytes of a value of all samples.
    pub(crate) fn bytes(&self, value: ValueId, form: Form) -> usize {
        let Size { length, .. } = self.purpose.size;
        let numbers = |shape: Shape, channels: usize| match shape {
            Shape::Vector(_) => channels,
            Shape::Image([height, width, _]) => height * width * channels,
            Shape::Sequence(_) => length * channels,
            Shape::Symbols => length,
        };
        let (shape, channels) = (self.graph.shape(value), self.channels(value));
        let each = match form {
            Form::Numbers => 4 * numbers(shape, channels),
            Form::Halves => size_of::<f16>() * numbers(shape, channels.next_multiple_of(8)),
        };
        self.purpose.size.samples() * each
    }

    /// Numbers of a sample.
    pub(crate) fn count(&self, value: ValueId) -> usize {
        self.plane(value).into_iter().product::<usize>() * self.channels(value)
    }

    /// Channels of a picture, width of a vector or of a position.
    pub(crate) fn channels(&self, value: ValueId) -> usize {
        match self.graph.shape(value) {
            Shape::Vector(width) => width,
            // Logits over positions are computed like a convolution, whose channels are padded.
            Shape::Sequence(width) => match self.purpose.precision {
                Precision::Mixed => width.next_multiple_of(8),
                Precision::Exact => width,
            },
            Shape::Image([_, _, channels]) => channels,
            Shape::Symbols => 1,
        }
    }

    /// Rows and columns of a picture; a vector is one pixel, a sequence one row.
    pub(crate) fn plane(&self, value: ValueId) -> [usize; 2] {
        match self.graph.shape(value) {
            graph::Shape::Image([height, width, _]) => [height, width],
            graph::Shape::Sequence(_) | graph::Shape::Symbols => [1, self.purpose.size.length],
            graph::Shape::Vector(_) => [1, 1],
        }
    }
}
