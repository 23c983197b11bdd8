//! What is computed when, and where: made once for a network, a batch size and what is trained.
use fedeq_kernels::norm::BatchShape;
use fedeq_models::Mode;
use fedeq_models::graph::{self, Graph, ParameterId, ValueId};

use crate::memory::{Buffer, INPUT, Lifetimes, Memory, Target};
use crate::op::{self, Op};
use crate::parameters::{ParameterLayout, ParameterTarget};

/// How a network is run, ready to be carried out.
#[derive(Debug)]
pub(crate) struct NetworkPlan {
    pub(crate) ops: Vec<Box<dyn Op>>,
    pub(crate) memory: Memory,
    pub(crate) logits: Buffer,
    /// In evaluation, and where a loss is on it.
    pub(crate) embedding: Option<Buffer>,
    /// Where such a loss leaves its gradient.
    pub(crate) embedding_gradient: Option<Buffer>,
    /// Where the loss leaves the gradient of the logits, if there are gradients.
    pub(crate) logits_gradient: Option<Buffer>,
    /// Where gradients of parameters are, if each is used as soon as it is complete.
    pub(crate) gradients: ParameterLayout,
    /// Of every layer, the parameters whose gradients are complete after its way back.
    pub(crate) complete: Vec<Vec<ParameterId>>,
    /// Of every layer, those whose outputs are computed once more before its way back.
    pub(crate) repeated: Vec<Vec<usize>>,
}

impl NetworkPlan {
    /// For batches of that many samples (for text, of that length), with gradients for the parameters that have a place in `trained`; `contrasts` tells whether
    /// there is a loss on the embeddings too.
    pub(crate) fn new(
        graph: &Graph,
        [batch, length]: [usize; 2],
        mode: Mode,
        trained: &ParameterLayout,
        contrasts: bool,
    ) -> Self {
        let mut planner = Planner::new(graph, batch, length, mode, trained);
        let logits = planner.result(graph.logits);
        let embedding = (contrasts || !planner.wants(graph.logits)).then(|| planner.result(graph.embedding));
        // Layers behind add theirs to what is there already.
        let embedding_gradient = if contrasts { planner.start_gradient(graph.embedding) } else { None };
        let logits_gradient = planner.start_gradient(graph.logits);
        // Backwards, so that it is known of every gradient which layer writes it first.
        let mut ops: Vec<Box<dyn Op>> = Vec::with_capacity(graph.layers.len());
        for (index, layer) in graph.layers.iter().enumerate().rev() {
            planner.layer = index;
            ops.push(op::build(layer, &mut planner));
        }
        ops.reverse();
        let mut complete = vec![Vec::new(); ops.len()];
        for (index, life) in planner.written.iter().enumerate() {
            if let Some([first, _]) = life {
                complete[*first].push(ParameterId(index));
            }
        }
        let gradients = ParameterLayout::shared(graph, &planner.written);
        let Planner { lifetimes, repeated, .. } = planner;
        Self {
            ops,
            memory: lifetimes.assign(),
            logits,
            embedding,
            embedding_gradient,
            logits_gradient,
            gradients,
            complete,
            repeated,
        }
    }
}

/// A plan in the making. It stands at one layer, and goes from the last layer to the first.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) batch: usize,
    pub(crate) length: usize,
    pub(crate) mode: Mode,
    trained: &'a ParameterLayout,
    /// Of every value, whether a trained parameter has a say in it.
    depends: Vec<bool>,
    lifetimes: Lifetimes,
    values: Vec<Option<Buffer>>,
    gradients: Vec<Option<Buffer>>,
    /// Of every parameter, the first and the last layer that write its gradient, of those so far.
    written: Vec<Option<[usize; 2]>>,
    /// Of every value that is rather computed twice than kept, the layer that does so.
    cheap: Vec<Option<usize>>,
    /// Where it is on the way back.
    again: Vec<Option<Buffer>>,
    repeated: Vec<Vec<usize>>,
    layer: usize,
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph, batch: usize, length: usize, mode: Mode, trained: &'a ParameterLayout) -> Self {
        let depends = graph.influenced_by(|id| trained.has(id));
        let (values, gradients) = (vec![None; graph.values.len()], vec![None; graph.values.len()]);
        let written = vec![None; graph.parameters.len()];
        let (lifetimes, repeated) = (Lifetimes::new(), vec![Vec::new(); graph.layers.len()]);
        let (cheap, again) = (cheap_values(graph), vec![None; graph.values.len()]);
        Self {
            graph,
            batch,
            length,
            mode,
            trained,
            depends,
            lifetimes,
            values,
            gradients,
            written,
            cheap,
            again,
            repeated,
            layer: 0,
        }
    }

    /// When the loss is computed: between the last layer and its gradients.
    fn end(&self) -> usize {
        self.graph.layers.len()
    }

    fn backward_time(&self) -> usize {
        2 * self.end() - self.layer
    }

    /// A value that is read after the last layer.
    fn result(&mut self, value: ValueId) -> Buffer {
        self.value(value, self.end())
    }

    fn start_gradient(&mut self, value: ValueId) -> Option<Buffer> {
        let (len, end) = (self.len(value), self.end());
        self.gradients[value.0] = self.wants(value).then(|| self.lifetimes.add(len, end));
        self.gradients[value.0]
    }

    fn value(&mut self, value: ValueId, at: usize) -> Buffer {
        if value.0 == 0 {
            return INPUT;
        }
        let len = self.len(value);
        let buffer = *self.values[value.0].get_or_insert_with(|| self.lifetimes.add(len, at));
        self.lifetimes.need(buffer, at);
        buffer
    }

    /// When this layer is computed.
    pub(crate) fn time(&self) -> usize {
        self.layer
    }

    /// A value that this layer reads or writes on the way forward.
    pub(crate) fn forward(&mut self, value: ValueId) -> Buffer {
        self.value(value, self.layer)
    }

    /// A value that this layer reads again on the way back.
    pub(crate) fn backward(&mut self, value: ValueId) -> Buffer {
        self.value(value, self.backward_time())
    }

    /// As [`backward`](Self::backward), for a value that may be computed once more into other memory instead of being kept.
    pub(crate) fn kept_or_repeated(&mut self, value: ValueId) -> Buffer {
        // Whoever repeats it needs its own input then, which is kept only for a way back.
        let Some(by) = self.cheap[value.0].filter(|_| self.wants(value)) else { return self.backward(value) };
        let (len, at) = (self.len(value), self.backward_time());
        if self.again[value.0].is_none() {
            self.again[value.0] = Some(self.lifetimes.add(len, at));
            self.repeated[self.layer].push(by);
        }
        let buffer = self.again[value.0].expect("it has just got one");
        self.lifetimes.need(buffer, at);
        buffer
    }

    /// Memory for this layer's way back.
    pub(crate) fn temporary(&mut self, len: usize) -> Buffer {
        self.lifetimes.add(len, self.backward_time())
    }

    /// Whether gradients flow to a value.
    pub(crate) fn wants(&self, value: ValueId) -> bool {
        self.depends[value.0]
    }

    /// The gradient that comes to this layer's output; none if the layer has no way back.
    pub(crate) fn incoming(&mut self, output: ValueId) -> Option<Buffer> {
        let buffer = self.gradients[output.0]?;
        self.lifetimes.need(buffer, self.backward_time());
        Some(buffer)
    }

    /// Where the gradient of an input goes, if it is wanted.
    pub(crate) fn target(&mut self, input: ValueId) -> Option<Target> {
        if !self.wants(input) {
            return None;
        }
        let (len, at) = (self.len(input), self.backward_time());
        match self.gradients[input.0] {
            None => {
                let buffer = self.lifetimes.add(len, at);
                self.gradients[input.0] = Some(buffer);
                Some(Target { buffer, added_by: None })
            }
            Some(buffer) => {
                self.lifetimes.need(buffer, at);
                Some(Target { buffer, added_by: Some(self.temporary(len)) })
            }
        }
    }

    /// Where the gradient of an input goes that has the very gradient of the output.
    pub(crate) fn same_as(&mut self, input: ValueId, output: Buffer) -> PassedGradient {
        if !self.wants(input) {
            return PassedGradient::Unwanted;
        }
        match self.gradients[input.0] {
            // The gradient of the output is not needed any more: it becomes that of the input where it is.
            None => {
                self.gradients[input.0] = Some(output);
                PassedGradient::InPlace
            }
            Some(buffer) => {
                self.lifetimes.need(buffer, self.backward_time());
                PassedGradient::AddedTo(buffer)
            }
        }
    }

    /// Where the gradient of a parameter goes, if it is trained.
    pub(crate) fn parameter(&mut self, id: ParameterId) -> Option<ParameterTarget> {
        if !self.trained.has(id) {
            return None;
        }
        let last = self.written[id.0].map(|[_, last]| last);
        self.written[id.0] = Some([self.layer, last.unwrap_or(self.layer)]);
        Some(ParameterTarget { id, accumulate: last.is_some() })
    }

    /// The same for a parameter of this layer alone, whose gradient the layer can give [piece by piece](Op::pieces): it has no place where gradients are used as they come.
    pub(crate) fn parameter_in_pieces(&mut self, id: ParameterId) -> Option<ParameterTarget> {
        self.trained.has(id).then_some(ParameterTarget { id, accumulate: false })
    }

    /// Whether no other layer has this parameter.
    pub(crate) fn is_alone(&self, id: ParameterId) -> bool {
        self.graph.layers.iter().filter(|layer| layer.parameters().contains(&id)).count() == 1
    }

    /// How many numbers a value has, of all samples.
    pub(crate) fn len(&self, value: ValueId) -> usize {
        self.rows(value) * self.width(value)
    }

    /// Samples of a value, or positions of all samples.
    pub(crate) fn rows(&self, value: ValueId) -> usize {
        match self.graph.values[value.0] {
            graph::Shape::Vector(_) | graph::Shape::Image(_) => self.batch,
            graph::Shape::Sequence(_) | graph::Shape::Symbols => self.batch * self.length,
        }
    }

    /// Numbers a row.
    pub(crate) fn width(&self, value: ValueId) -> usize {
        match self.graph.values[value.0] {
            graph::Shape::Vector(width) | graph::Shape::Sequence(width) => width,
            graph::Shape::Image(shape) => shape.iter().product(),
            graph::Shape::Symbols => 1,
        }
    }

    /// A value as images; a vector is an image of one pixel.
    pub(crate) fn images(&self, value: ValueId) -> BatchShape {
        match self.graph.values[value.0] {
            graph::Shape::Image([height, width, channels]) => BatchShape { batch: self.batch, height, width, channels },
            _ => BatchShape { batch: self.rows(value), height: 1, width: 1, channels: self.width(value) },
        }
    }
}

/// Images that a normalisation and its activation make of numbers which are kept anyway: of every value, the layer that computes it if it is one. To compute
/// them twice takes little time, and to keep them would take a quarter of the memory of a residual network.
fn cheap_values(graph: &Graph) -> Vec<Option<usize>> {
    let mut cheap = vec![None; graph.values.len()];
    for (index, layer) in graph.layers.iter().enumerate() {
        if let graph::Layer::Norm { fusion: graph::Fusion::After(_), y, .. } = layer
            && matches!(graph.shape(*y), graph::Shape::Image(_))
        {
            cheap[y.0] = Some(index);
        }
    }
    cheap
}

/// Where the gradient of an input goes that has the very gradient of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PassedGradient {
    /// It is not wanted.
    Unwanted,
    /// It stays where it is.
    InPlace,
    /// It is added to what is there.
    AddedTo(Buffer),
}
