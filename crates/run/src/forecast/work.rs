//! How much a run computes, in multiply-adds: what times on a GPU are forecast by, where a batch of one client says little of a whole cohort's.
use fedeq_core::{ClientTask, Result, Trains};
use fedeq_equilibrium::Adjoint;
use fedeq_models::Part;
use fedeq_models::graph::{Cell, Graph, Layer, ParameterId, Shape, Transformer, ValueId};

use super::effort::Effort;
use super::evaluations;
use crate::experiment::Prepared;

/// The multiply-adds of a run, in units of 1e12.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    /// Training of one round.
    pub(super) round: f64,
    /// One evaluation of all clients.
    pub(super) evaluation: f64,
    /// What is trained after the last round.
    pub(super) finish: f64,
    pub(super) rounds: f64,
    pub(super) evaluations: f64,
}

impl Work {
    /// Counts it.
    pub(super) fn of(prepared: &Prepared) -> Result<Self> {
        let plan = &prepared.experiment.plan;
        let cost = SampleCost::of(prepared.network.graph());
        let clients = prepared.splits.clients.len();
        let samples = |client: usize| prepared.samples_of(client).map(|count| count as f64);
        let trained: f64 = (0..clients).map(|client| samples(client)[0]).sum();
        let training = |task: ClientTask| cost.training(&Effort::of(prepared, task)) / 1e12;
        let task = if plan.measure_theory { ClientTask::Measure } else { ClientTask::Evaluate };
        let effort = Effort::of(prepared, task);
        let evaluated: f64 = (0..clients).map(|client| effort.looks(samples(client))).sum();
        Ok(Self {
            round: training(ClientTask::Train) * trained * prepared.cohort()? as f64 / clients.max(1) as f64,
            evaluation: cost.forward * evaluated / 1e12 + training(task) * trained,
            finish: training(ClientTask::Finish) * trained,
            rounds: plan.rounds as f64,
            evaluations: evaluations(plan),
        })
    }
}

/// The multiply-adds of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SampleCost {
    /// Of its logits, with as many solver steps as are allowed.
    forward: f64,
    /// What gradients by all parameters take beyond that.
    backward: f64,
    /// What gradients by personal parameters alone take.
    personal: f64,
}

impl SampleCost {
    fn of(graph: &Graph) -> Self {
        let mut cost = Self::default();
        for layer in &graph.layers {
            let (forward, backward, parameters) = layer_cost(graph, layer);
            cost.forward += forward;
            cost.backward += backward;
            if parameters.iter().any(|id| graph.parameter(*id).part == Part::Personal) {
                cost.personal += backward;
            }
        }
        cost
    }

    /// Of all that a client trains, a sample.
    fn training(&self, effort: &Effort) -> f64 {
        let one = |trains: Trains| self.forward + if trains == Trains::Personal { self.personal } else { self.backward };
        effort.trained.iter().map(|(trains, epochs)| *epochs as f64 * one(*trains)).sum()
    }
}

/// Forward, backward, and the parameters; what multiplies nothing much counts for nothing.
fn layer_cost(graph: &Graph, layer: &Layer) -> (f64, f64, Vec<ParameterId>) {
    let explicit = |macs: f64, parameters: Vec<ParameterId>| (macs, 2.0 * macs, parameters);
    match layer {
        Layer::Conv { weight, y, .. } => explicit(positions(graph, *y) * count(graph, *weight), vec![*weight]),
        Layer::Dense { x, weight, .. } => {
            let rows = if let Shape::Sequence(_) = graph.shape(*x) { graph.longest() } else { 1 };
            explicit(rows as f64 * count(graph, *weight), vec![*weight])
        }
        Layer::Transformer { layers, .. } => {
            explicit(transformer(graph, layers), layers.layers.iter().flatten().copied().collect())
        }
        Layer::Equilibrium { cell, settings, y, .. } => {
            let (one, parameters) = cell_cost(graph, cell, *y);
            // After the solve the cell is applied once more and differentiated.
            let differentiated = match &settings.adjoint {
                Adjoint::JacobianFree => 3.0,
                Adjoint::Phantom { steps, .. } => 3.0 * *steps as f64,
                Adjoint::Implicit { stop, .. } => 3.0 + 2.0 * stop.max_steps as f64,
            };
            (settings.stop.max_steps as f64 * one, differentiated * one, parameters)
        }
        Layer::Repeat { cell, times, y, .. } => {
            let (one, parameters) = cell_cost(graph, cell, *y);
            explicit(*times as f64 * one, parameters)
        }
        Layer::Norm { .. }
        | Layer::MaxPool { .. }
        | Layer::MeanPool { .. }
        | Layer::Widen { .. }
        | Layer::Embed { .. }
        | Layer::Scale { .. }
        | Layer::LayerNorm { .. } => (0.0, 0.0, Vec::new()),
    }
}

fn cell_cost(graph: &Graph, cell: &Cell, y: ValueId) -> (f64, Vec<ParameterId>) {
    match cell {
        Cell::Dense { weight, .. } => (count(graph, *weight), vec![*weight]),
        Cell::Residual { conv_a, conv_b, .. } => {
            (positions(graph, y) * (count(graph, *conv_a) + count(graph, *conv_b)), vec![*conv_a, *conv_b])
        }
        Cell::Transformer { layers, .. } => (transformer(graph, layers), layers.layers.iter().flatten().copied().collect()),
    }
}

/// Every parameter once a position, and attention between positions.
fn transformer(graph: &Graph, stack: &Transformer) -> f64 {
    let length = graph.longest() as f64;
    let one = |layer: &[ParameterId; 16]| {
        let parameters: f64 = layer.iter().map(|id| count(graph, *id)).sum();
        let width = graph.parameter(layer[0]).count() as f64;
        length * (parameters + 2.0 * length * width)
    };
    stack.layers.iter().map(one).sum()
}

fn count(graph: &Graph, id: ParameterId) -> f64 {
    graph.parameter(id).count() as f64
}

/// The pixels of a picture.
fn positions(graph: &Graph, value: ValueId) -> f64 {
    match graph.shape(value) {
        Shape::Image([height, width, _]) => (height * width) as f64,
        Shape::Vector(_) | Shape::Sequence(_) | Shape::Symbols => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedeq_models::{DeqTransformerOptions, ModelConfig, Personal, Task, TiedResNetOptions};

    fn cost(name: &str, task: &Task) -> SampleCost {
        let config: ModelConfig = name.parse().expect("a model");
        SampleCost::of(&config.graph(task).expect("a network"))
    }

    #[test]
    fn a_solve_is_its_steps_and_the_cell_twice_two_convolutions() {
        let deq = cost("deq-resnet-m", &Task::image(32, 32, 3, 10));
        // 16 x 16 pixels, 128 -> 256 -> 128 channels, windows of 3 x 3.
        let cell = 256.0 * 2.0 * 9.0 * 128.0 * 256.0;
        assert!((19.9 * cell..25.0 * cell).contains(&deq.forward), "{} cells", deq.forward / cell);
        assert!((2.9 * cell..6.0 * cell).contains(&deq.backward), "{} cells", deq.backward / cell);
        assert!(deq.personal < 0.1 * deq.backward);
    }

    #[test]
    fn a_weight_tied_network_is_its_steps_both_ways() {
        let of = |steps: usize| {
            let options = TiedResNetOptions { steps, ..TiedResNetOptions::default() };
            SampleCost::of(&ModelConfig::TiedResNetM(options).graph(&Task::image(32, 32, 3, 10)).expect("a network"))
        };
        let (cell, [two, eight]) = (256.0 * 2.0 * 9.0 * 128.0 * 256.0, [2, 8].map(of));
        assert_eq!((eight.forward - two.forward, eight.backward - two.backward), (6.0 * cell, 12.0 * cell));
    }

    #[test]
    fn a_cell_of_sequences_is_its_layers_whether_tied_or_not() {
        let of = |layers: usize, tied: bool| {
            let options = DeqTransformerOptions { layers, tied, injection: 8.0, ..DeqTransformerOptions::default() };
            SampleCost::of(&ModelConfig::DeqTransformer(options).graph(&Task::next_symbol(16, 90)).expect("a network"))
        };
        // Every parameter once at each of 16 positions, and attention from each position to each: scores and sums of 64 numbers.
        let layer = 16.0 * (49_984.0 + 2.0 * 16.0 * 64.0);
        let [one, four, tied] = [of(1, false), of(4, false), of(4, true)];
        assert_eq!((four.forward - one.forward, four.backward - one.backward), (20.0 * 3.0 * layer, 3.0 * 3.0 * layer));
        assert_eq!(tied, four);
    }

    #[test]
    fn where_only_the_output_is_personal_little_is_differentiated_for_it() {
        let of = |personal: Personal| {
            let options = DeqTransformerOptions { personal, ..DeqTransformerOptions::default() };
            SampleCost::of(&ModelConfig::DeqTransformer(options).graph(&Task::next_symbol(16, 90)).expect("a network"))
        };
        let [layer, output] = [Personal::LastLayer, Personal::Output].map(of);
        assert_eq!((layer.forward, layer.backward), (output.forward, output.backward));
        assert_eq!(output.personal, 2.0 * 16.0 * 64.0 * 90.0);
        assert!(layer.personal > 8.0 * output.personal);
    }

    /// What the table of rates was computed with: multiply-adds of a sample in a round of 5 + 3 epochs, in millions.
    #[test]
    fn rounds_that_were_timed_count_what_the_table_of_rates_says() {
        let of = |name: &str, task: Task| {
            let cost = cost(name, &task);
            (5.0 * (cost.forward + cost.backward) + 3.0 * (cost.forward + cost.personal)) / 1e6
        };
        let texts = Task::next_symbol(16, 90);
        for (name, task, samples, expected) in [
            ("deq-resnet-m", Task::image(32, 32, 3, 10), 5_000.0, 132.6),
            ("resnet-34", Task::image(32, 32, 3, 10), 5_000.0, 105.5),
            ("deq-resnet-s", Task::image(28, 28, 1, 62), 1_900.0, 9.65),
            ("deq-transformer", texts, 6_400.0, 3.87),
        ] {
            let found = of(name, task) * samples / 1e6;
            assert!((found / expected - 1.0).abs() < 0.005, "{name}: {found}");
        }
    }

    #[test]
    fn a_linear_network_multiplies_every_parameter_once() {
        let linear = cost("linear", &Task::image(8, 8, 1, 10));
        assert_eq!((linear.forward, linear.backward), (640.0, 1280.0));
    }
}
