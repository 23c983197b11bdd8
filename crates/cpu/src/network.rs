//! A network, and the way between its numbers and named arrays.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fedeq_core::{Array, Error, Params, Result, Weights};
use fedeq_data::shard::{Batch, Inputs, Targets};
use fedeq_kernels::loss::Predictions;
use fedeq_kernels::norm::Moments;
use fedeq_models::Graph;
use fedeq_models::graph::{ParameterId, Shape};

use crate::executor::Input;
use crate::parameters::ParameterLayout;
use crate::statistics::RunningMoments;

/// A network that clients share: its layers, not its numbers.
#[derive(Debug)]
pub struct Network {
    graph: Graph,
    layout: ParameterLayout,
    /// Tells networks apart where work for them is kept.
    id: u64,
}

impl Network {
    /// A network to run.
    pub fn new(graph: Graph) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { layout: ParameterLayout::of(&graph), graph, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Its layers.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The bytes of all parameters.
    pub(crate) fn bytes(&self) -> u64 {
        4 * self.layout.len() as u64
    }

    pub(crate) fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The parameters in the order of the graph, which share the memory of the weights.
    pub(crate) fn values(&self, weights: &Weights, values: &mut Vec<Arc<Vec<f32>>>) -> Result<()> {
        values.clear();
        for parameter in &self.graph.parameters {
            let array = found(&weights.params, &parameter.path, parameter.count())?;
            values.push(Arc::clone(&array.values));
        }
        Ok(())
    }

    /// The running statistics, in the order of the graph; fresh where there are none.
    pub(crate) fn statistics(&self, weights: &Weights) -> Result<Vec<RunningMoments>> {
        let of = |layer: &fedeq_models::graph::RunningStatistics| {
            let [mean, variance, steps] = layer.names();
            if weights.statistics.get(&mean).is_none() {
                return Ok(RunningMoments::fresh(layer.channels));
            }
            let values = |name: &str, count: usize| found(&weights.statistics, name, count).map(|array| array.values.to_vec());
            let moments = Moments { mean: values(&mean, layer.channels)?, variance: values(&variance, layer.channels)? };
            Ok(RunningMoments { moments, steps: values(&steps, 1)?[0] })
        };
        self.graph.statistics.iter().map(of).collect()
    }

    /// Writes the parameters that `of` has a place for into named arrays; `values` are in the order of `of`.
    pub(crate) fn named(&self, of: &ParameterLayout, values: &[f32]) -> Params {
        let wanted = self.graph.parameters.iter().enumerate().filter(|(index, _)| of.has(ParameterId(*index)));
        let array = |(index, parameter): (usize, &fedeq_models::graph::Parameter)| {
            let values = values[of.range(ParameterId(index))].to_vec();
            (parameter.path.clone(), Array::new(parameter.shape.clone(), values))
        };
        wanted.map(array).collect()
    }

    /// The running statistics as named arrays.
    pub(crate) fn named_statistics(&self, statistics: &[RunningMoments]) -> Params {
        let layers = self.graph.statistics.iter().zip(statistics);
        let arrays = layers.flat_map(|(layer, running)| {
            let RunningMoments { moments: Moments { mean, variance }, steps } = running.clone();
            let values = [mean, variance, vec![steps]].map(|values| Array::new(vec![values.len()], values));
            layer.names().into_iter().zip(values)
        });
        arrays.collect()
    }

    /// Refuses a batch that does not fit.
    pub(crate) fn check(&self, batch: &Batch) -> Result<()> {
        let (fits, shape) = match (&batch.inputs, self.graph.values[0]) {
            (Inputs::Dense { shape, .. }, Shape::Image(expected)) => (shape.get(1..) == Some(&expected[..]), shape),
            (Inputs::Dense { shape, .. }, Shape::Vector(width)) => (shape.get(1..) == Some(&[width][..]), shape),
            (Inputs::Symbols { shape, .. }, Shape::Symbols) => {
                (shape.len() == 2 && (1..=self.graph.longest()).contains(&shape[1]), shape)
            }
            (Inputs::Dense { shape, .. } | Inputs::Symbols { shape, .. }, _) => (false, shape),
        };
        let input = self.graph.task.input;
        if !fits || batch.is_empty() {
            let problem = format!("an input of shape `{shape:?}` does not fit a network for {input}");
            return Err(Error::invalid(problem, format!("pass a batch of at least one of {input}")));
        }
        if let (Inputs::Symbols { values, .. }, fedeq_models::InputShape::Symbols { vocabulary, .. }) = (&batch.inputs, input) {
            below("symbol", values, vocabulary)?;
        }
        below("class", classes(batch), self.graph.task.classes)
    }
}

/// The array of a name.
fn found<'a>(params: &'a Params, name: &str, count: usize) -> Result<&'a Array> {
    let array = params.get(name).ok_or_else(|| Error::message(format!("`{name}` is missing")))?;
    if array.values.len() == count {
        return Ok(array);
    }
    Err(Error::message(format!("`{name}` has shape `{:?}`, which is not {count} numbers", array.shape)))
}

fn below(what: &str, values: &[i32], limit: usize) -> Result<()> {
    match values.iter().find(|&&value| usize::try_from(value).map_or(true, |value| value >= limit)) {
        Some(value) => Err(Error::invalid(
            format!("the {what} `{value}` is not below {limit}"),
            format!("use data whose {what} numbers are from 0 to {}", limit - 1),
        )),
        None => Ok(()),
    }
}

/// The inputs of a batch.
pub(crate) fn input_of(batch: &Batch) -> Input<'_> {
    match &batch.inputs {
        Inputs::Dense { values, .. } => Input::Numbers(values),
        Inputs::Symbols { values, .. } => Input::Symbols(values),
    }
}

/// Samples, and the length of sequences.
pub(crate) fn size_of(batch: &Batch) -> [usize; 2] {
    match &batch.inputs {
        Inputs::Dense { shape, .. } => [shape[0], 1],
        Inputs::Symbols { shape, .. } => [shape[0], shape[1]],
    }
}

/// The class of every row of logits.
pub(crate) fn classes(batch: &Batch) -> &[i32] {
    match &batch.targets {
        Targets::Classes(values) | Targets::Symbols { values, .. } => values,
    }
}

/// Which rows of logits are padding: those whose symbol is 0. Nothing where no row can be. The flags are memory for that.
pub(crate) fn padding<'a>(batch: &Batch, flags: &'a mut Vec<bool>) -> Option<&'a [bool]> {
    let Inputs::Symbols { values, .. } = &batch.inputs else { return None };
    flags.clear();
    flags.extend(values.iter().map(|&symbol| symbol == 0));
    Some(flags)
}

/// What the network says of the batch, and what it should say.
pub(crate) fn predictions<'a>(
    logits: &'a [f32],
    classes: usize,
    targets: &'a [i32],
    ignored: Option<&'a [bool]>,
) -> Predictions<'a> {
    Predictions { logits, classes, targets, ignored }
}
