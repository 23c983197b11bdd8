//! What shape a layer gives, and whether a list of layers makes a network.
use crate::error::{ModelError, Result, ensure_parameters};
use crate::graph::{Affine, Cell, Fusion, Graph, Layer, NormScope, ParameterId, Shape, Transformer, ValueId};
use crate::task::{InputShape, Task};

impl Graph {
    /// Refuses a list of layers that cannot be run: values read before they are computed, parameters of other shapes than the layers need,
    /// logits that are not one number a class, and settings that mean nothing.
    pub fn validate(&self) -> Result<()> {
        self.task.validate()?;
        ensure_parameters(self.parameters.iter().map(|parameter| &parameter.shape))?;
        if self.values.first() != Some(&Shape::of_input(&self.task)) {
            return Err(unsound("the first value is not the input"));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let ValueId(y) = layer.output();
            let known = |value: ValueId| value.0 == 0 || self.layers[..index].iter().any(|before| before.output() == value);
            if !layer.inputs().into_iter().all(known) {
                return Err(unsound(format!("layer `{index}` reads a value that no layer before it gives")));
            }
            if y == 0 || self.values.get(y) != Some(&self.output_shape(layer)?) || known(ValueId(y)) {
                return Err(unsound(format!("layer `{index}` does not fit the value it gives")));
            }
        }
        if self.layers.iter().filter(|layer| matches!(layer, Layer::Equilibrium { .. })).count() > 1 {
            return Err(unsound("it has more than one equilibrium"));
        }
        match (self.values.get(self.logits.0), self.values.get(self.embedding.0)) {
            (Some(Shape::Vector(classes) | Shape::Sequence(classes)), Some(_)) if *classes == self.task.classes => Ok(()),
            (Some(shape), Some(_)) => Err(unsound(format!("its logits are `{shape:?}` for {} classes", self.task.classes))),
            _ => Err(unsound("its logits or its embedding are not among its values")),
        }
    }

    /// The shape of what a layer gives, from what it reads; a layer that does not fit what it reads is refused.
    pub(crate) fn output_shape(&self, layer: &Layer) -> Result<Shape> {
        match layer {
            Layer::Conv { x, weight, stride, .. } => self.conv_shape(*x, *weight, *stride),
            Layer::Norm { x, affine, over, fusion, .. } => self.norm_shape(*x, affine, *over, *fusion),
            Layer::MaxPool { x, .. } => {
                let [height, width, channels] = self.image(*x)?;
                Ok(Shape::Image([height.div_ceil(2), width.div_ceil(2), channels]))
            }
            Layer::MeanPool { x, .. } => self.image(*x).map(|[_, _, channels]| Shape::Vector(channels)),
            Layer::Widen { x, y } => self.widened_shape(*x, *y),
            Layer::Dense { x, weight, bias, .. } => self.dense_shape(*x, *weight, *bias),
            Layer::Embed { tokens, positions, .. } => self.embedded_shape(*tokens, *positions),
            Layer::Scale { factor, .. } if !factor.is_finite() => Err(unsound(format!("a factor is `{factor}`"))),
            Layer::Scale { x, .. } => match self.value(*x)? {
                Shape::Symbols => Err(unsound("symbols are no numbers, and cannot be scaled")),
                shape => Ok(shape),
            },
            Layer::Transformer { h, injection, layers, .. } => {
                let shape = self.transformer_shape(*injection, layers)?;
                let same = h.is_none_or(|h| self.values.get(h.0) == Some(&shape));
                same.then_some(shape).ok_or_else(|| unsound("a transformer layer adds sequences of different widths"))
            }
            Layer::LayerNorm { x, affine, .. } => {
                let width = self.sequence(*x)?;
                self.expect_affine(affine, width)?;
                Ok(Shape::Sequence(width))
            }
            Layer::Equilibrium { injection, cell, settings, .. } => {
                settings.validate()?;
                self.cell_shape(*injection, cell)
            }
            Layer::Repeat { times: 0, .. } => Err(unsound("a cell is applied no times")),
            Layer::Repeat { injection, cell, .. } => self.cell_shape(*injection, cell),
        }
    }

    fn conv_shape(&self, x: ValueId, weight: ParameterId, stride: usize) -> Result<Shape> {
        let [height, width, from] = self.image(x)?;
        match *self.parameter_shape(weight)? {
            [to, inputs, window, same] if inputs == from && window == same && window > 0 && stride > 0 => {
                Ok(Shape::Image([height.div_ceil(stride), width.div_ceil(stride), to]))
            }
            ref other => Err(unsound(format!("a convolution of {from} channels has kernels of shape `{other:?}`"))),
        }
    }

    fn norm_shape(&self, x: ValueId, affine: &Affine, over: NormScope, fusion: Fusion) -> Result<Shape> {
        let shape = self.value(x)?;
        let (Shape::Vector(channels) | Shape::Image([_, _, channels])) = shape else {
            return Err(unsound("a sequence is normalised by a layer normalisation only"));
        };
        self.expect_affine(affine, channels)?;
        match over {
            NormScope::Batch { statistics }
                if self.statistics.get(statistics).is_none_or(|running| running.channels != channels) =>
            {
                return Err(unsound("a batch normalisation has no running statistics of its size"));
            }
            NormScope::Groups(groups) | NormScope::RowGroups(groups) => expect_groups(groups, channels)?,
            NormScope::Batch { .. } => {}
        }
        match fusion {
            Fusion::AddThen(shortcut, _) if self.value(shortcut)? != shape => {
                Err(unsound("a shortcut has another shape than what it is added to"))
            }
            _ => Ok(shape),
        }
    }

    fn widened_shape(&self, x: ValueId, y: ValueId) -> Result<Shape> {
        let [height, width, channels] = self.image(x)?;
        match self.image(y)? {
            [h, w, wider] if [h, w] == [height.div_ceil(2), width.div_ceil(2)] && wider > channels => {
                Ok(Shape::Image([h, w, wider]))
            }
            _ => Err(unsound("a shortcut without parameters halves the plane and adds channels")),
        }
    }

    fn dense_shape(&self, x: ValueId, weight: ParameterId, bias: Option<ParameterId>) -> Result<Shape> {
        let shape = self.value(x)?;
        let [from, to] = self.matrix(weight)?;
        if let Some(bias) = bias {
            self.expect(bias, &[to])?;
        }
        match shape {
            Shape::Sequence(width) if width == from => Ok(Shape::Sequence(to)),
            Shape::Vector(_) | Shape::Image(_) if shape.count(1) == from => Ok(Shape::Vector(to)),
            _ => Err(unsound(format!("a dense layer of `{from}` inputs reads `{shape:?}`"))),
        }
    }

    fn embedded_shape(&self, tokens: ParameterId, positions: Option<ParameterId>) -> Result<Shape> {
        let InputShape::Symbols { length, vocabulary } = self.task.input else {
            return Err(unsound(format!("it embeds symbols, and its inputs are {}", self.task.input)));
        };
        let [symbols, width] = self.matrix(tokens)?;
        if symbols < vocabulary {
            return Err(unsound(format!("it has vectors for `{symbols}` of {vocabulary} symbols")));
        }
        if let Some(positions) = positions {
            self.expect(positions, &[length, width])?;
        }
        Ok(Shape::Sequence(width))
    }

    fn transformer_shape(&self, injection: ValueId, stack: &Transformer) -> Result<Shape> {
        let (width, hidden) = (self.sequence(injection)?, stack.hidden);
        if stack.heads == 0 || !width.is_multiple_of(stack.heads) {
            return Err(unsound(format!("attention cannot divide a width of `{width}` among {} heads", stack.heads)));
        }
        if !(0.0..1.0).contains(&stack.dropout.rate) {
            let problem = format!("dropout `{}` is out of range", stack.dropout.rate);
            return Err(ModelError::unfitting(problem, "choose a dropout of at least 0 and below 1"));
        }
        let (vector, matrix) = (&[width][..], &[width, width][..]);
        let mut expected = vec![vector, vector];
        expected.extend([matrix, vector].repeat(4));
        let (widen, hidden_bias, narrow) = ([width, hidden], [hidden], [hidden, width]);
        expected.extend([vector, vector, &widen, &hidden_bias, &narrow, vector]);
        for layer in &stack.layers {
            layer.iter().zip(&expected).try_for_each(|(&id, shape)| self.expect(id, shape))?;
        }
        Ok(Shape::Sequence(width))
    }

    fn cell_shape(&self, u: ValueId, cell: &Cell) -> Result<Shape> {
        let shape = self.value(u)?;
        match (cell, shape) {
            (Cell::Dense { weight, .. }, Shape::Vector(width)) => self.expect(*weight, &[width, width])?,
            (Cell::Residual { conv_a, norm_1, conv_b, norm_2, norm_3, over, .. }, Shape::Image([_, _, channels])) => {
                self.expect(*conv_a, &[2 * channels, channels, 3, 3])?;
                self.expect(*conv_b, &[channels, 2 * channels, 3, 3])?;
                self.expect_affine(norm_1, 2 * channels)?;
                self.expect_affine(norm_2, channels)?;
                self.expect_affine(norm_3, channels)?;
                let (NormScope::Groups(groups) | NormScope::RowGroups(groups)) = *over else {
                    return Err(unsound("the cell of an equilibrium cannot be normalised over the batch"));
                };
                expect_groups(groups, channels)?;
            }
            (Cell::Transformer { layers, norm }, Shape::Sequence(width)) => {
                self.transformer_shape(u, layers)?;
                self.expect_affine(norm, width)?;
            }
            (_, other) => return Err(unsound(format!("its cell is none for states of `{other:?}`"))),
        }
        Ok(shape)
    }

    fn value(&self, value: ValueId) -> Result<Shape> {
        self.values.get(value.0).copied().ok_or_else(|| unsound(format!("there is no value `{}`", value.0)))
    }

    fn image(&self, value: ValueId) -> Result<[usize; 3]> {
        match self.value(value)? {
            Shape::Image(shape) => Ok(shape),
            other => Err(unsound(format!("a layer for pictures reads `{other:?}`"))),
        }
    }

    fn sequence(&self, value: ValueId) -> Result<usize> {
        match self.value(value)? {
            Shape::Sequence(width) => Ok(width),
            other => Err(unsound(format!("a layer for sequences reads `{other:?}`"))),
        }
    }

    fn parameter_shape(&self, id: ParameterId) -> Result<&[usize]> {
        let parameter = self.parameters.get(id.0).ok_or_else(|| unsound(format!("there is no parameter `{}`", id.0)))?;
        Ok(&parameter.shape)
    }

    fn matrix(&self, id: ParameterId) -> Result<[usize; 2]> {
        match *self.parameter_shape(id)? {
            [from, to] => Ok([from, to]),
            ref other => Err(unsound(format!("a matrix has the shape `{other:?}`"))),
        }
    }

    fn expect(&self, id: ParameterId, shape: &[usize]) -> Result<()> {
        let found = self.parameter_shape(id)?;
        if found == shape {
            return Ok(());
        }
        Err(unsound(format!("`{}` has the shape `{found:?}` instead of {shape:?}", self.parameters[id.0].path)))
    }

    fn expect_affine(&self, affine: &Affine, channels: usize) -> Result<()> {
        self.expect(affine.scale, &[channels])?;
        self.expect(affine.offset, &[channels])
    }
}

impl Shape {
    /// The shape of one input of a task.
    pub(crate) fn of_input(task: &Task) -> Self {
        match task.input {
            InputShape::Image { height, width, channels } => Self::Image([height, width, channels]),
            InputShape::Vector { width } => Self::Vector(width),
            InputShape::Symbols { .. } => Self::Symbols,
        }
    }
}

impl Layer {
    /// The value it gives.
    pub fn output(&self) -> ValueId {
        match self {
            Self::Conv { y, .. }
            | Self::Norm { y, .. }
            | Self::MaxPool { y, .. }
            | Self::MeanPool { y, .. }
            | Self::Widen { y, .. }
            | Self::Dense { y, .. }
            | Self::Embed { y, .. }
            | Self::Scale { y, .. }
            | Self::Transformer { y, .. }
            | Self::LayerNorm { y, .. }
            | Self::Equilibrium { y, .. }
            | Self::Repeat { y, .. } => *y,
        }
    }

    /// The values it reads. (Those that deal with symbols also read the input.)
    pub fn inputs(&self) -> Vec<ValueId> {
        match self {
            Self::Norm { x, fusion: Fusion::AddThen(shortcut, _), .. } => vec![*x, *shortcut],
            Self::Conv { x, .. }
            | Self::Norm { x, .. }
            | Self::MaxPool { x, .. }
            | Self::MeanPool { x, .. }
            | Self::Widen { x, .. }
            | Self::Dense { x, .. }
            | Self::Scale { x, .. }
            | Self::LayerNorm { x, .. } => vec![*x],
            Self::Embed { .. } => Vec::new(),
            Self::Transformer { h, injection, .. } => h.iter().copied().chain([*injection]).collect(),
            Self::Equilibrium { injection, .. } | Self::Repeat { injection, .. } => vec![*injection],
        }
    }

    /// The parameters that it has; those of tied layers once for each of them.
    pub fn parameters(&self) -> Vec<ParameterId> {
        let of = |affine: &Affine| [affine.scale, affine.offset];
        match self {
            Self::Conv { weight, .. } => vec![*weight],
            Self::Norm { affine, .. } | Self::LayerNorm { affine, .. } => of(affine).to_vec(),
            Self::MaxPool { .. } | Self::MeanPool { .. } | Self::Widen { .. } | Self::Scale { .. } => Vec::new(),
            Self::Dense { weight, bias, .. } => [*weight].into_iter().chain(*bias).collect(),
            Self::Embed { tokens, positions, .. } => [*tokens].into_iter().chain(*positions).collect(),
            Self::Transformer { layers, .. } => layers.layers.concat(),
            Self::Equilibrium { cell, .. } | Self::Repeat { cell, .. } => match cell {
                Cell::Dense { weight, .. } => vec![*weight],
                Cell::Residual { conv_a, norm_1, conv_b, norm_2, norm_3, .. } => {
                    let norms = [norm_1, norm_2, norm_3].into_iter().flat_map(of);
                    [*conv_a, *conv_b].into_iter().chain(norms).collect()
                }
                Cell::Transformer { layers, norm } => [layers.layers.concat(), of(norm).to_vec()].concat(),
            },
        }
    }
}

fn expect_groups(groups: usize, channels: usize) -> Result<()> {
    if groups > 0 && channels.is_multiple_of(groups) {
        return Ok(());
    }
    Err(unsound(format!("group normalisation cannot make {groups} groups out of `{channels}` channels")))
}

/// A mistake of whoever wrote the network.
pub(crate) fn unsound(problem: impl std::fmt::Display) -> ModelError {
    ModelError::unfitting(
        format!("this is not a sound network: {problem}"),
        "correct the layers of the network, or choose one by name",
    )
}
