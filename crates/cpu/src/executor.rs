//! Carries a plan out.
use std::sync::Arc;

use fedeq_equilibrium::HostStates;
use fedeq_kernels::InstructionSet;
use fedeq_kernels::transformer::Blocked;
use fedeq_models::Mode;
use fedeq_models::graph::{Graph, Parameter, ParameterId, Shape};

use crate::memory::INPUT;
use crate::op::{Op, PassContext, Pieces, Scratch, Solved, Start, Symbols};
use crate::parameters::{Gradients, ParameterLayout, Values};
use crate::plan::NetworkPlan;
use crate::pool::Pool;
use crate::statistics::RunningMoments;

/// A network ready to run on batches of one size: its plan and all the memory it needs.
#[derive(Debug)]
pub struct Executor {
    plan: NetworkPlan,
    /// How many numbers each parameter has.
    parameters: Vec<usize>,
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
    pub parameters: &'a [Arc<Vec<f32>>],
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
        Self::planned(graph, [batch, length], mode, trained, false)
    }

    /// The same for training with a loss on [embeddings](Self::differentiate_embedding) too.
    pub(crate) fn contrasting(graph: &Graph, size: [usize; 2], trained: impl Fn(&Parameter) -> bool) -> Self {
        Self::planned(graph, size, Mode::Train, trained, true)
    }

    fn planned(
        graph: &Graph,
        [batch, length]: [usize; 2],
        mode: Mode,
        trained: impl Fn(&Parameter) -> bool,
        contrasts: bool,
    ) -> Self {
        let trained = ParameterLayout::of_some(graph, trained);
        let input_len = match graph.values[0] {
            Shape::Vector(width) => batch * width,
            Shape::Image(shape) => batch * shape.iter().product::<usize>(),
            Shape::Sequence(width) => batch * length * width,
            Shape::Symbols => batch * length,
        };
        Self {
            plan: NetworkPlan::new(graph, [batch, length], mode, &trained, contrasts),
            parameters: graph.parameters.iter().map(Parameter::count).collect(),
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

    /// Where memory beside the plan's comes from.
    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.work.pool
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
        self.run(input, context, Collected::None, |plan, run| plan.iter_mut().for_each(|op| op.forward(run)));
    }

    /// The gradients of the trained parameters, given those of the [logits](Self::differentiate); the input is that of the way forward.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward), or if there is not a gradient for every trained parameter.
    pub fn backward(&mut self, input: Input<'_>, context: &mut Context<'_>, gradients: &mut [f32]) {
        assert_eq!(gradients.len(), self.trained.len(), "a gradient for every trained parameter");
        for layer in (0..self.plan.ops.len()).rev() {
            self.layer_back(layer, input, context, Collected::All(gradients));
        }
    }

    /// How many numbers [`descend`](Self::descend) needs for gradients.
    pub(crate) fn gradient_len(&self) -> usize {
        let piece = self.plan.ops.iter().filter_map(|op| op.pieces()).map(|pieces| pieces.each).max();
        self.plan.gradients.len() + piece.unwrap_or_default()
    }

    /// As [`backward`](Self::backward), but every parameter is changed by `update`, which gets some of its numbers, where they begin, and their gradient, as soon as no layer needs it any more: gradients need
    /// the memory of those that are under way at once.
    pub(crate) fn descend(
        &mut self,
        input: Input<'_>,
        (statistics, dropout): (&mut [RunningMoments], Option<u64>),
        parameters: &mut [Arc<Vec<f32>>],
        gradients: &mut [f32],
        mut update: impl FnMut(ParameterId, usize, &mut [f32], &mut [f32]),
    ) {
        for layer in (0..self.plan.ops.len()).rev() {
            let mut context = Context { parameters, statistics, dropout, start: Start::Model };
            self.layer_back(layer, input, &mut context, Collected::UnderWay(gradients));
            for &id in &self.plan.complete[layer] {
                let values: &mut Vec<f32> = Arc::make_mut(&mut parameters[id.0]);
                update(id, 0, values, &mut gradients[self.plan.gradients.range(id)]);
            }
            let Some(Pieces { id, all, each }) = self.plan.ops[layer].pieces() else { continue };
            for start in (0..all).step_by(each) {
                let numbers = start..all.min(start + each);
                let piece = &mut gradients[self.plan.gradients.len()..][..numbers.len()];
                let mut context = Context { parameters, statistics, dropout, start: Start::Model };
                self.run(input, &mut context, Collected::None, |ops, run| {
                    ops[layer].gradient_piece(run, numbers.clone(), piece);
                });
                let values: &mut Vec<f32> = Arc::make_mut(&mut parameters[id.0]);
                update(id, start, &mut values[numbers], piece);
            }
        }
    }

    /// The way back through one layer.
    fn layer_back(&mut self, layer: usize, input: Input<'_>, context: &mut Context<'_>, gradients: Collected<'_>) {
        let repeated = std::mem::take(&mut self.plan.repeated[layer]);
        self.run(input, context, gradients, |ops, run| {
            repeated.iter().for_each(|&index| ops[index].repeat(run));
            ops[layer].backward(run);
        });
        self.plan.repeated[layer] = repeated;
    }

    fn run<R>(
        &mut self,
        input: Input<'_>,
        context: &mut Context<'_>,
        gradients: Collected<'_>,
        pass: impl FnOnce(&mut [Box<dyn Op>], &mut PassContext<'_>) -> R,
    ) -> R {
        let (numbers, symbols): (&[f32], &[i32]) = match input {
            Input::Numbers(numbers) => (numbers, &[]),
            Input::Symbols(symbols) => (&[], symbols),
        };
        assert_eq!(numbers.len().max(symbols.len()), self.input_len, "the batch has the size of the plan");
        let sizes = context.parameters.iter().map(|values| values.len());
        assert!(sizes.eq(self.parameters.iter().copied()), "all parameters of the network");
        let (layout, gradients) = match gradients {
            Collected::None => (&self.trained, &mut [][..]),
            Collected::All(gradients) => (&self.trained, gradients),
            Collected::UnderWay(gradients) => (&self.plan.gradients, gradients),
        };
        let mut run = PassContext {
            set: InstructionSet::best(),
            numbers: self.plan.memory.with_input(numbers, &mut self.work.pool),
            symbols: Symbols { values: symbols, blocked: self.blocked.as_ref() },
            parameters: Values(context.parameters),
            gradients: Gradients { layout, values: gradients, spare: &mut self.work.spare },
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
        self.run(input, context, Collected::None, |plan, run| {
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

    /// The embeddings of the last batch, whose input this is: one row for each row of logits; nothing where there are gradients and no loss is on them.
    pub fn embedding<'a>(&'a self, input: Input<'a>) -> Option<&'a [f32]> {
        match (self.plan.embedding?, input) {
            (INPUT, Input::Numbers(numbers)) => Some(numbers),
            (embedding, _) => Some(self.plan.memory.read(embedding)),
        }
    }

    /// Lets `loss` read the embeddings of the last batch and write their gradient; nothing happens where there is no loss on them, or nothing trained has a say in them.
    pub(crate) fn differentiate_embedding<R>(&mut self, loss: impl FnOnce(&[f32], &mut [f32]) -> R) -> Option<R> {
        let (embedding, gradient) = (self.plan.embedding?, self.plan.embedding_gradient?);
        let mut numbers = self.plan.memory.with_input(&[], &mut self.work.pool);
        Some(numbers.write(gradient, |numbers, gradient| loss(numbers.read(embedding), gradient)))
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

/// Where gradients of parameters go in a pass.
enum Collected<'a> {
    /// There are none.
    None,
    /// Each to a place of its own.
    All(&'a mut [f32]),
    /// To where others were that have been used.
    UnderWay(&'a mut [f32]),
}

/// Where attention may not go: to the future, and to padding (symbol 0).
fn block(blocked: &mut Blocked, symbols: &[i32], length: usize) {
    blocked.set([symbols.len() / length, length], |sequence, query, key| key > query || symbols[sequence * length + key] == 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedeq_models::{ModelConfig, Task};

    /// Numbers that look random.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    /// The gradients of all parameters of a pass, by the parameter, collected at the end or as they come.
    fn gradients(graph: &Graph, input: Input<'_>, as_they_come: bool) -> (Vec<Vec<f32>>, usize) {
        let values = |parameter: &Parameter| Arc::new(parameter.initial_values(7));
        let mut parameters: Vec<Arc<Vec<f32>>> = graph.parameters.iter().map(values).collect();
        let fresh = |running: &fedeq_models::graph::RunningStatistics| RunningMoments::fresh(running.channels);
        let mut statistics: Vec<RunningMoments> = graph.statistics.iter().map(fresh).collect();
        let length = if let Input::Symbols(symbols) = input { symbols.len() / 3 } else { 1 };
        let mut executor = Executor::new(graph, 3, length, Mode::Train, |_| true);
        let mut context = Context { parameters: &parameters, statistics: &mut statistics, dropout: Some(5), start: Start::Model };
        executor.forward(input, &mut context);
        executor.differentiate(|logits, gradient| gradient.copy_from_slice(&numbers(logits.len(), 3)));
        let mut found: Vec<Vec<f32>> = graph.parameters.iter().map(|parameter| vec![f32::NAN; parameter.count()]).collect();
        if as_they_come {
            let mut memory = vec![f32::NAN; executor.gradient_len()];
            let context = (&mut statistics[..], Some(5));
            executor.descend(input, context, &mut parameters, &mut memory, |id, at, values, gradient| {
                found[id.0][at..][..gradient.len()].copy_from_slice(gradient);
                values.fill(f32::NAN); // It must not be needed any more.
            });
            return (found, memory.len());
        }
        let mut all = vec![f32::NAN; executor.trained().len()];
        executor.backward(input, &mut context, &mut all);
        for (index, found) in found.iter_mut().enumerate() {
            found.copy_from_slice(&all[executor.trained().range(ParameterId(index))]);
        }
        (found, all.len())
    }

    #[test]
    fn gradients_that_are_used_as_they_come_are_those_of_the_whole_in_less_memory() {
        let pictures = Task::image(12, 12, 1, 10);
        let networks = [
            (r#"{ "name": "mlp", "hidden": [1000, 70] }"#, pictures),
            (r#"{ "name": "resnet-xs" }"#, pictures),
            (r#"{ "name": "resnet-xs", "norm": "group" }"#, pictures),
            (r#"{ "name": "deq-mlp" }"#, pictures),
            (r#"{ "name": "deq-resnet-xs" }"#, pictures),
            (r#"{ "name": "tied-resnet-xs", "steps": 3 }"#, pictures),
            (r#"{ "name": "untied-resnet-xs" }"#, pictures),
            (r#"{ "name": "transformer-4" }"#, Task::next_symbol(6, 20)),
            (r#"{ "name": "deq-transformer", "layers": 2, "tied": true }"#, Task::next_symbol(6, 20)),
        ];
        let (pixels, symbols) = (numbers(3 * 144, 1), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 0]);
        for (config, task) in networks {
            let graph = serde_json::from_str::<ModelConfig>(config).expect("sound").graph(&task).expect("fits");
            let input = if task == pictures { Input::Numbers(&pixels) } else { Input::Symbols(&symbols) };
            let [(whole, all), (pieces, fewer)] = [false, true].map(|as_they_come| gradients(&graph, input, as_they_come));
            assert!(whole.iter().flatten().all(|gradient| gradient.is_finite()), "{config}");
            assert_eq!(whole, pieces, "{config}");
            assert!(fewer < all, "{config}: {fewer} of {all}");
        }
    }
}
