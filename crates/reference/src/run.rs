//! One pass through the layers of a network.
use burn::tensor::module::embedding;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use fedeq_equilibrium::{Cell as _, Equilibrium, SolveReport, diagnose};
use fedeq_models::Mode;
use fedeq_models::graph::{Affine, Cell, Fusion, Graph, Layer, NormScope, ParameterId, Shape, Transformer, ValueId};
use fedeq_models::normal_numbers;

use crate::cell::{FlatCell, Injection};
use crate::operations::{
    activate, convolve, group_norm, layer_norm, max_pool, mean_pool, normalise, scaled, standardise, transformer, widen,
};
use crate::parameters::Parameters;
use crate::{InputValues, Pass, Values, host};

/// How much of the past a running average keeps at each step.
const DECAY: f64 = 0.9;

/// Vector-Jacobian products of the power method.
const PRODUCTS: usize = 60;

/// A pass on its way. Values are kept flat, a row a sample.
pub(crate) struct ForwardPass<'a> {
    graph: &'a Graph,
    pass: &'a Pass,
    dtype: DType,
    samples: usize,
    pub(crate) parameters: Parameters,
    values: Vec<Option<Tensor<2>>>,
    pub(crate) symbols: Option<Tensor<2, Int>>,
    pub(crate) statistics: Values,
    /// The fixed points and how they were found.
    pub(crate) solved: Option<(Tensor<2>, SolveReport)>,
}

impl<'a> ForwardPass<'a> {
    pub(crate) fn new(
        graph: &'a Graph,
        parameters: Parameters,
        statistics: Values,
        input: &InputValues,
        pass: &'a Pass,
        dtype: DType,
    ) -> Self {
        let InputValues { samples, values: numbers } = input;
        let dims = [*samples, numbers.len() / samples.max(&1)];
        assert_eq!(dims[0] * dims[1], numbers.len(), "samples of equal size");
        let data = TensorData::new(numbers.clone(), dims);
        let mut values = vec![None; graph.values.len()];
        let mut symbols = None;
        match graph.shape(graph.input()) {
            Shape::Symbols => symbols = Some(Tensor::from_data(data.convert::<i32>(), &Device::default())),
            shape => {
                assert_eq!(dims[1], shape.count(1), "an input of the shape of the task");
                values[0] = Some(Tensor::from_data(data, (&Device::default(), dtype)));
            }
        }
        Self { graph, pass, dtype, samples: *samples, parameters, values, symbols, statistics, solved: None }
    }

    /// Runs every layer.
    pub(crate) fn layers(&mut self) {
        for layer in &self.graph.layers {
            let y = self.layer(layer);
            self.values[layer.output().0] = Some(y);
        }
    }

    /// The spectral radius of the cell at some states: the layers before the equilibrium, then the power method.
    pub(crate) fn spectral_radius(&mut self, states: &[f64], seed: u64) -> Option<Vec<f64>> {
        for layer in &self.graph.layers {
            if let Layer::Equilibrium { injection, cell, .. } = layer {
                let (cell, x) = self.cell(*injection, cell);
                let probe = normal_numbers(seed, "power method", states.len()).into_iter().map(f64::from).collect();
                let [states, probe] = [states.to_vec(), probe].map(|rows| self.plain(rows, x.0.dims()));
                return Some(diagnose::spectral_radius(&cell, &x, states, probe, PRODUCTS));
            }
            let y = self.layer(layer);
            self.values[layer.output().0] = Some(y);
        }
        None
    }

    /// A value, a row a sample.
    pub(crate) fn rows(&self, value: ValueId) -> Tensor<2> {
        self.values[value.0].clone().expect("a sound network computes a value before it is read")
    }

    /// One row a sample, for text one a position.
    pub(crate) fn logits(&self) -> Tensor<2> {
        self.rows(self.graph.logits).reshape([-1, self.graph.task.classes as i64])
    }

    fn image(&self, value: ValueId) -> Tensor<4> {
        let [height, width, channels] = match self.graph.shape(value) {
            Shape::Image(shape) => shape,
            other => [1, 1, other.count(1)], // A vector is a picture of one pixel.
        };
        self.rows(value).reshape([self.samples, height, width, channels])
    }

    fn sequence(&self, value: ValueId) -> Tensor<3> {
        let width = self.graph.shape(value).count(1);
        self.rows(value).reshape([self.samples as i64, -1, width as i64])
    }

    fn layer(&mut self, layer: &Layer) -> Tensor<2> {
        match layer {
            Layer::Conv { x, weight, stride, .. } => flat(convolve(self.image(*x), self.parameters.get(*weight), *stride)),
            Layer::Norm { x, affine, over, fusion, .. } => self.norm(*x, affine, *over, *fusion),
            Layer::MaxPool { x, .. } => flat(max_pool(self.image(*x))),
            Layer::MeanPool { x, .. } => mean_pool(self.image(*x)),
            Layer::Widen { x, y } => {
                let Shape::Image([_, _, channels]) = self.graph.shape(*y) else {
                    unreachable!("a sound network widens pictures")
                };
                flat(widen(self.image(*x), channels))
            }
            Layer::Dense { x, weight, bias, activation, .. } => {
                let y = self.dense(*x, *weight, *bias);
                activation.map_or(y.clone(), |activation| activate(activation, y))
            }
            Layer::Embed { tokens, positions, .. } => self.embed(*tokens, *positions),
            Layer::Scale { x, factor, .. } => self.rows(*x) * *factor,
            Layer::Transformer { h, injection, layers, .. } => {
                let injection = self.sequence(*injection);
                let h = h.map_or(injection.zeros_like(), |h| self.sequence(h));
                let (symbols, masks) = (self.symbols(), self.masks(layers, injection.dims()));
                flat(transformer(&self.parameters, layers, h, &injection, &symbols, masks.as_ref()))
            }
            Layer::LayerNorm { x, affine, .. } => flat(layer_norm(self.sequence(*x), self.parameters.affine(affine))),
            Layer::Equilibrium { injection, cell, settings, .. } => self.equilibrium(*injection, cell, settings),
            Layer::Repeat { injection, cell, times, .. } => {
                let (cell, x) = self.cell(*injection, cell);
                (0..*times).fold(cell.start(&x.0), |z, _| cell.step(z, &x))
            }
        }
    }

    fn norm(&mut self, x: ValueId, affine: &Affine, over: NormScope, fusion: Fusion) -> Tensor<2> {
        let (input, affine) = (self.image(x), self.parameters.affine(affine));
        let input = if let Fusion::Before(phi) = fusion { activate(phi, input) } else { input };
        let y = flat(match over {
            NormScope::Batch { statistics } => self.batch_norm(input, statistics, affine),
            NormScope::Groups(groups) => group_norm(input, groups, false, affine),
            NormScope::RowGroups(groups) => group_norm(input, groups, true, affine),
        });
        match fusion {
            Fusion::None | Fusion::Before(_) => y,
            Fusion::After(phi) => activate(phi, y),
            Fusion::AddThen(shortcut, phi) => activate(phi, y + self.rows(shortcut)),
        }
    }

    fn batch_norm(&mut self, x: Tensor<4>, index: usize, affine: [Tensor<1>; 2]) -> Tensor<4> {
        let dims @ [samples, height, width, channels] = x.dims();
        let x = x.reshape([1, samples * height * width, channels, 1]);
        let [mean, variance, steps] = self.graph.statistics[index].names();
        let normal = match self.pass.mode {
            Mode::Train => {
                let [normal, batch_mean, batch_variance] = normalise(x);
                let t = self.statistics[&steps][0] + 1.0;
                for (name, observed) in [(&mean, batch_mean), (&variance, batch_variance)] {
                    let running = self.statistics.get_mut(name).expect("statistics of every layer");
                    running.iter_mut().zip(host(observed)).for_each(|(average, new)| *average = averaged(*average, new, t));
                }
                self.statistics.insert(steps, vec![t]);
                normal
            }
            Mode::Evaluate => {
                let running = |name: &String| self.plain(self.statistics[name].clone(), [1, 1, channels, 1]);
                standardise(x, running(&mean), running(&variance))
            }
        };
        scaled(normal.reshape(dims), affine)
    }

    fn dense(&self, x: ValueId, weight: ParameterId, bias: Option<ParameterId>) -> Tensor<2> {
        let weight: Tensor<2> = self.parameters.get(weight);
        // A sequence is multiplied position by position.
        let y = self.rows(x).reshape([-1, weight.dims()[0] as i64]).matmul(weight);
        let y = bias.map_or(y.clone(), |bias| y + self.parameters.get::<1>(bias).unsqueeze());
        y.reshape([self.samples as i64, -1])
    }

    fn embed(&self, tokens: ParameterId, positions: Option<ParameterId>) -> Tensor<2> {
        let symbols = self.symbols();
        let [_, length] = symbols.dims();
        let vectors = embedding(self.parameters.get(tokens), symbols);
        flat(match positions {
            Some(positions) => vectors + self.parameters.get::<2>(positions).narrow(0, 0, length).unsqueeze_dim(0),
            None => vectors,
        })
    }

    fn equilibrium(&mut self, injection: ValueId, cell: &Cell, settings: &Equilibrium) -> Tensor<2> {
        let (cell, x) = self.cell(injection, cell);
        let start = self.pass.start.as_ref().map_or_else(|| cell.start(&x.0), |state| self.plain(state.clone(), x.0.dims()));
        let settled = settings.forward(&cell, &x, start.without_autodiff());
        self.solved = Some((settled.fixed_point, settled.report));
        settled.z
    }

    fn cell(&self, injection: ValueId, cell: &Cell) -> (FlatCell, Injection) {
        let shape = self.graph.shape(injection);
        let cell = FlatCell::new(self.parameters.clone(), cell.clone(), shape);
        let masks = cell.stack().and_then(|stack| self.masks(stack, self.sequence(injection).dims()));
        let x = (self.rows(injection), self.symbols.clone(), masks);
        (cell, x)
    }

    fn symbols(&self) -> Tensor<2, Int> {
        self.symbols.clone().expect("a sound network reads symbols where its task has them")
    }

    /// The multipliers of dropout of a stack, if there is any.
    fn masks(&self, stack: &Transformer, [samples, length, width]: [usize; 3]) -> Option<Tensor<4>> {
        let seed = self.pass.dropout.filter(|_| stack.dropout.rate > 0.0 && !stack.layers.is_empty())?;
        let dims = [samples, 2 * stack.layers.len(), length, width];
        let values = stack.dropout.multipliers(seed, dims.iter().product());
        Some(self.plain(values.into_iter().map(f64::from).collect(), dims))
    }

    /// A constant.
    fn plain<const D: usize>(&self, values: Vec<f64>, dims: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, dims), (&Device::default(), self.dtype))
    }
}

/// The average of all `t` batches so far with weights that fall by 0.9 a step into the past, from that of the first `t - 1`.
fn averaged(average: f64, new: f64, t: f64) -> f64 {
    let total = 1.0 - DECAY.powf(t);
    DECAY * (1.0 - DECAY.powf(t - 1.0)) / total * average + (1.0 - DECAY) / total * new
}

fn flat<const D: usize>(x: Tensor<D>) -> Tensor<2> {
    x.flatten(1, D - 1)
}
