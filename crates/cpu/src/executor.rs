//! Carries a plan out.
use fedeq_equilibrium::HostStates;
use fedeq_kernels::InstructionSet;
use fedeq_kernels::transformer::Blocked;
use fedeq_models::Mode;
use fedeq_models::graph::{Graph, Parameter, Shape};

use crate::memory::INPUT;
use crate::op::{Op, PassContext, Scratch, Solved, Start, Symbols};
use crate::parameters::{Gradients, ParameterLayout, Values};
use crate::plan::NetworkPlan;
use crate::pool::Pool;
use crate::statistics::RunningMoments;

/// A network ready to run on batches of one size: its plan and all the memory it needs.
#[derive(Debug)]
pub struct Executor {
    plan: NetworkPlan,
    parameters: ParameterLayout,
    trained: ParameterLayout,
    batch: usize,
    length: usize,
    input_len: usize,
    classes: usize,
    work: WorkMemory,
    blocked: Option<Blocked>,
}

/// Memory that executors work in, one at a time. It grows when first used, and passes from one to the next.
#[derive(Debug, Default)]
pub(crate) struct WorkMemory {
    pub(crate) pool: Pool,
    scratch: Scratch,
    /// For a second gradient of the same parameter.
    spare: Vec<f32>,
}

/// A batch of inputs.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Pictures or vectors, sample after sample.
    Numbers(&'a [f32]),
    /// Symbols, `[batch, length]`, with 0 for padding.
    Symbols(&'a [i32]),
}

/// What a pass needs besides the input.
#[derive(Debug)]
pub struct Context<'a> {
    /// The values of all parameters, in the order of the graph.
    pub parameters: &'a [f32],
    /// The running statistics, in the order of the graph; a training pass moves them.
    pub statistics: &'a mut [RunningMoments],
    /// The seed of the dropout masks; none for no dropout.
    pub dropout: Option<u64>,
    /// Where an equilibrium solve starts.
    pub start: Start<'a>,
}

impl Executor {
    /// For batches of so many samples (of text, of such a length), with gradients for the parameters that are `trained`.
    pub fn new(graph: &Graph, batch: usize, length: usize, mode: Mode, trained: impl Fn(&Parameter) -> bool) -> Self {
        let trained = ParameterLayout::of_some(graph, trained);
        let input_len = match graph.values[0] {
            Shape::Vector(width) => batch * width,
            Shape::Image(shape) => batch * shape.iter().product::<usize>(),
            Shape::Sequence(width) => batch * length * width,
            Shape::Symbols => batch * length,
        };
        Self {
            plan: NetworkPlan::new(graph, batch, length, mode, &trained),
            parameters: ParameterLayout::of(graph),
            trained,
            batch,
            length,
            input_len,
            classes: graph.task.classes,
            work: WorkMemory::default(),
            blocked: None,
        }
    }

    /// Works in this memory from now on.
    pub(crate) fn work_in(&mut self, memory: WorkMemory) {
        self.work = memory;
    }

    /// Gives away the memory that it works in, with that of all values and gradients, which are lost.
    pub(crate) fn release(&mut self) -> WorkMemory {
        self.plan.memory.release(&mut self.work.pool);
        self.plan.ops.iter_mut().for_each(|op| op.release(&mut self.work.pool));
        std::mem::take(&mut self.work)
    }

    /// How many samples a batch has.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The length of sequences.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Where each trained parameter is among the gradients.
    pub fn trained(&self) -> &ParameterLayout {
        &self.trained
    }

    /// The bytes of all values and gradients on their way through the network.
    pub fn bytes(&self) -> usize {
        self.plan.memory.bytes()
    }

    /// Runs the network on a batch.
    ///
    /// # Panics
    ///
    /// If the batch, the parameters or the statistics are not those of the plan.
    pub fn forward(&mut self, input: Input<'_>, context: &mut Context<'_>) {
        if let Input::Symbols(symbols) = input {
            block(self.blocked.get_or_insert_default(), symbols, self.length);
        }
        self.run(input, context, &mut [], |plan, run| plan.iter_mut().for_each(|op| op.forward(run)));
    }

    /// The gradients of the trained parameters, given those of the [logits](Self::differentiate); the input is that of the way forward.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward), or if there is not a gradient for every trained parameter.
    pub fn backward(&mut self, input: Input<'_>, context: &mut Context<'_>, gradients: &mut [f32]) {
        assert_eq!(gradients.len(), self.trained.len(), "a gradient for every trained parameter");
        self.run(input, context, gradients, |plan, run| plan.iter_mut().rev().for_each(|op| op.backward(run)));
    }

    fn run<R>(
        &mut self,
        input: Input<'_>,
        context: &mut Context<'_>,
        gradients: &mut [f32],
        pass: impl FnOnce(&mut [Box<dyn Op>], &mut PassContext<'_>) -> R,
    ) -> R {
        let (numbers, symbols): (&[f32], &[i32]) = match input {
            Input::Numbers(numbers) => (numbers, &[]),
            Input::Symbols(symbols) => (&[], symbols),
        };
        assert_eq!(numbers.len().max(symbols.len()), self.input_len, "the batch has the size of the plan");
        assert_eq!(context.parameters.len(), self.parameters.len(), "all parameters of the network");
        let mut run = PassContext {
            set: InstructionSet::best(),
            numbers: self.plan.memory.with_input(numbers, &mut self.work.pool),
            symbols: Symbols { values: symbols, blocked: self.blocked.as_ref() },
            parameters: Values { layout: &self.parameters, values: context.parameters },
            gradients: Gradients { layout: &self.trained, values: gradients, spare: &mut self.work.spare },
            statistics: context.statistics,
            scratch: &mut self.work.scratch,
            dropout: context.dropout,
            start: context.start,
        };
        pass(&mut self.plan.ops, &mut run)
    }

    /// The fixed point of the last batch; nothing for a network that solves for none.
    pub fn solved(&self) -> Option<Solved<'_>> {
        self.plan.ops.iter().find_map(|op| op.solved())
    }

    /// The spectral radius of the cell's Jacobian at the fixed point of the last batch, an estimate for every sample by the power method with
    /// so many products, from the vectors of `probe`. Nothing for a network that solves for no fixed point.
    pub fn spectral_radius(
        &mut self,
        input: Input<'_>,
        context: &mut Context<'_>,
        probe: HostStates,
        products: usize,
    ) -> Option<Vec<f64>> {
        self.run(input, context, &mut [], |plan, run| {
            for op in plan {
                if op.solved().is_some() {
                    return op.spectral_radius(run, probe, products);
                }
                // What is injected may have made room for other values since.
                op.forward(run);
            }
            None
        })
    }

    /// The logits of the last batch, one row a sample, for text one row a position.
    pub fn logits(&self) -> &[f32] {
        self.plan.memory.read(self.plan.logits)
    }

    /// The embeddings of the last batch, whose input this is: one row for each row of logits; nothing where there are gradients.
    pub fn embedding<'a>(&'a self, input: Input<'a>) -> Option<&'a [f32]> {
        match (self.plan.embedding?, input) {
            (INPUT, Input::Numbers(numbers)) => Some(numbers),
            (embedding, _) => Some(self.plan.memory.read(embedding)),
        }
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Lets `loss` read the logits of the last batch and write their gradient; nothing happens where there are no gradients.
    pub fn differentiate<R>(&mut self, loss: impl FnOnce(&[f32], &mut [f32]) -> R) -> Option<R> {
        let (logits, gradient) = (self.plan.logits, self.plan.logits_gradient?);
        let mut numbers = self.plan.memory.with_input(&[], &mut self.work.pool);
        Some(numbers.write(gradient, |numbers, gradient| loss(numbers.read(logits), gradient)))
    }
}

/// Where attention may not go: to the future, and to padding (symbol 0).
fn block(blocked: &mut Blocked, symbols: &[i32], length: usize) {
    blocked.set([symbols.len() / length, length], |sequence, query, key| key > query || symbols[sequence * length + key] == 0);
}
