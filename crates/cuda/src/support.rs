//! Which networks the kernels can run. What they cannot is refused by the name of the layer, before anything is computed.
use fedeq_core::{Error, Result};
use fedeq_models::graph::{Affine, Cell, Graph, Layer, NormScope, ParameterId, Shape, Transformer, ValueId};

use crate::op::layer_norm::WIDTH;
use crate::op::{equilibrium, norm};
use crate::plan::Precision;

/// Symbols of the longest text for which there are kernels, and numbers of a head of attention.
const LONGEST: usize = 128;
const HEAD: usize = 16;

/// Refuses a network with a layer that the kernels do not have. Needs no GPU.
pub fn ensure_supported(graph: &Graph, precision: Precision) -> Result<()> {
    let support = Support { graph, precision };
    graph.layers.iter().try_for_each(|layer| support.check(layer))
}

struct Support<'a> {
    graph: &'a Graph,
    precision: Precision,
}

impl Support<'_> {
    fn check(&self, layer: &Layer) -> Result<()> {
        match *layer {
            Layer::Conv { x, weight, stride, y } => {
                self.used_once(&[weight])?;
                self.conv(x, weight, stride, y)
            }
            Layer::Norm { x, affine, over, .. } => {
                self.used_once(&[affine.scale, affine.offset])?;
                self.norm(x, affine, over)
            }
            Layer::MaxPool { x, .. } | Layer::MeanPool { x, .. } => self.channels("pooling", x, 2),
            Layer::Widen { x, y } => [x, y].into_iter().try_for_each(|value| self.channels("a widening shortcut", value, 2)),
            Layer::Dense { x, weight, bias, .. } => {
                self.used_once(&[Some(weight), bias].into_iter().flatten().collect::<Vec<_>>())?;
                if matches!(self.graph.shape(x), Shape::Sequence(_)) { self.positions(weight, x) } else { Ok(()) }
            }
            Layer::Embed { tokens, positions, y } => {
                self.used_once(positions.as_slice())?;
                self.positions(tokens, y)
            }
            Layer::Scale { x, .. } => self.channels("a factor on every number", x, 2),
            Layer::LayerNorm { x, affine, .. } => {
                self.used_once(&[affine.scale, affine.offset])?;
                self.positions(affine.scale, x)
            }
            Layer::Transformer { ref layers, y, .. } => {
                self.used_once(&layer.parameters())?;
                self.stack(layers, y)
            }
            Layer::Equilibrium { ref cell, ref settings, y, .. } => {
                self.used_once(&layer.parameters())?;
                self.cell(cell, y)?;
                equilibrium::ensure_settings(settings)
            }
            Layer::Repeat { ref cell, y, .. } => {
                self.used_once(&layer.parameters())?;
                self.cell(cell, y)
            }
        }
    }

    /// A cell on states of this value's shape.
    fn cell(&self, cell: &Cell, value: ValueId) -> Result<()> {
        if let Cell::Transformer { layers, norm } = cell {
            self.stack(layers, value)?;
            self.positions(norm.scale, value)?;
        }
        equilibrium::ensure_cell(cell, self.graph.shape(value), self.precision)
    }

    /// The layer of a parameter.
    fn name(&self, id: ParameterId) -> String {
        let path = &self.graph.parameter(id).path;
        format!("`{}`", path.rsplit_once('.').map_or(path.as_str(), |(layer, _)| layer))
    }

    /// A gradient is written by one layer alone, or by the tied ones of one stack.
    fn used_once(&self, ids: &[ParameterId]) -> Result<()> {
        let all: Vec<Vec<ParameterId>> = self.graph.layers.iter().map(Layer::parameters).collect();
        match ids.iter().find(|id| all.iter().filter(|others| others.contains(id)).count() > 1) {
            Some(&id) => Err(refused(
                format!("{} shares its parameters with another layer", self.name(id)),
                "give each a layer of its own",
            )),
            None => Ok(()),
        }
    }

    fn conv(&self, x: ValueId, weight: ParameterId, stride: usize, y: ValueId) -> Result<()> {
        let (name, window) = (self.name(weight), self.graph.parameter(weight).shape[2]);
        if self.precision == Precision::Exact {
            return [x, y]
                .into_iter()
                .filter(|value| *value != self.graph.input())
                .try_for_each(|value| self.channels(&name, value, 2));
        }
        if ![1, 3].contains(&window) || ![1, 2].contains(&stride) {
            let problem = format!("{name} is a convolution of {window}x{window} moved by {stride}");
            return Err(refused(problem, "use windows of 1x1 or 3x3 moved by 1 or 2, or `exact` precision"));
        }
        // The input's channels are padded.
        let values = [x, y].into_iter().filter(|value| *value != self.graph.input());
        values.into_iter().try_for_each(|value| self.channels(&name, value, 8))
    }

    fn norm(&self, x: ValueId, affine: Affine, over: NormScope) -> Result<()> {
        let (name, [height, width, channels]) = (self.name(affine.scale), self.shape(x));
        if self.graph.parameter(affine.scale).part != self.graph.parameter(affine.offset).part {
            return Err(refused(format!("{name} shares its scale or its offset alone"), "share both or none"));
        }
        let (groups, by_row) = match over {
            NormScope::Batch { .. } => return self.channels(&name, x, 4),
            NormScope::Groups(groups) => (groups, false),
            NormScope::RowGroups(groups) => (groups, true),
        };
        if norm::cut([height, width], channels, groups, by_row).is_some() {
            return Ok(());
        }
        let problem = format!("{name} normalises {groups} groups of {channels} channels over {height}x{width} pixels");
        Err(refused(problem, "use groups with an even number of channels and at most 16,384 numbers, or batch normalisation"))
    }

    /// A layer over the positions of texts, with so many numbers a position.
    fn positions(&self, of: ParameterId, value: ValueId) -> Result<()> {
        let (longest, [_, _, width]) = (self.graph.longest(), self.shape(value));
        if longest > LONGEST {
            return Err(refused(format!("texts have `{longest}` symbols"), &format!("cut them into {LONGEST} or fewer")));
        }
        if width != WIDTH {
            let problem = format!("{} has `{width}` numbers a position", self.name(of));
            return Err(refused(problem, &format!("use {WIDTH}")));
        }
        Ok(())
    }

    /// Transformer layers on states of this value's shape.
    fn stack(&self, stack: &Transformer, value: ValueId) -> Result<()> {
        let Some([scale, ..]) = stack.layers.first() else { return Ok(()) };
        self.positions(*scale, value)?;
        let name = self.name(*scale);
        let mut own: Vec<ParameterId> = stack.layers.concat();
        own.sort_unstable();
        if !stack.is_tied() && own.windows(2).any(|two| two[0] == two[1]) {
            let problem = format!("some layers of the stack that begins with {name} share their parameters and others do not");
            return Err(refused(problem, "give each layer its own, or all of them the same"));
        }
        if stack.heads * HEAD != WIDTH {
            let problem = format!("the attention behind {name} has `{}` heads", stack.heads);
            return Err(refused(problem, &format!("use {}, of {HEAD} numbers each", WIDTH / HEAD)));
        }
        if !stack.hidden.is_multiple_of(8) {
            let problem = format!("the MLP of the layer with {name} is `{}` wide", stack.hidden);
            return Err(refused(problem, "choose a multiple of 8"));
        }
        Ok(())
    }

    /// Refuses channels that are no multiple of so many.
    fn channels(&self, name: &str, value: ValueId, of: usize) -> Result<()> {
        let [_, _, channels] = self.shape(value);
        if channels.is_multiple_of(of) {
            return Ok(());
        }
        Err(refused(format!("{name} has {channels} channels"), &format!("choose a multiple of {of}")))
    }

    fn shape(&self, value: ValueId) -> [usize; 3] {
        match self.graph.shape(value) {
            Shape::Image(shape) => shape,
            Shape::Vector(width) | Shape::Sequence(width) => [1, 1, width],
            Shape::Symbols => [1, 1, 1],
        }
    }
}

/// What kernels cannot do, and what to do about it.
pub(crate) fn refused(problem: impl Into<String>, remedy: &str) -> Error {
    let problem: String = problem.into();
    Error::invalid(format!("{problem}, which the GPU's kernels cannot compute"), format!("{remedy}, or compute on the CPU"))
}

#[cfg(test)]
mod tests {
    use fedeq_core::{Schedule, Search, Training};
    use fedeq_data::shard::Augmentation;
    use fedeq_models::graph::{Ends, Fusion};
    use fedeq_models::{Activation, DeqTransformerOptions, ModelConfig, NormKind, Personal, Task, TransformerOptions};

    use super::*;

    #[test]
    fn settings_that_need_the_host_are_refused_by_name() {
        let watched = Training { watch_fixed_points: Some(Search::default()), ..Training::default() };
        let refused = crate::ensure_training_supported(&watched).expect_err("refused").to_string();
        assert!(refused.contains("`training.watch_fixed_points`"), "{refused}");
        let everything_else = Training {
            local_schedule: Some(Schedule::default()),
            schedule: Some(Schedule::default()),
            momentum: Some(0.9),
            clip_gradient: Some(1.0),
            augment: Some(Augmentation { flip: true, crop: None }),
            ..Training::default()
        };
        assert!(crate::ensure_training_supported(&everything_else).is_ok());
    }

    #[test]
    fn explicit_networks_of_images_are_supported_in_both_precisions() {
        let tasks = [Task::image(32, 32, 3, 10), Task::image(28, 28, 1, 62), Task::image(8, 8, 1, 10)];
        for (name, task) in [
            "linear",
            "mlp",
            "resnet-xs",
            "resnet-14",
            "resnet-34",
            "tied-resnet-m",
            "untied-resnet-m",
            "tied-resnet-xs",
            "untied-resnet-xs",
        ]
        .into_iter()
        .flat_map(|name| tasks.map(|task| (name, task)))
        {
            let graph = name.parse::<ModelConfig>().and_then(|config| config.graph(&task)).expect("a network");
            for precision in [Precision::Mixed, Precision::Exact] {
                ensure_supported(&graph, precision).expect("supported");
            }
        }
    }

    #[test]
    fn networks_of_texts_are_supported_up_to_their_longest_text() {
        let names = ["transformer-4", "transformer-8", "transformer-12", "deq-transformer"];
        for (name, length) in names.into_iter().flat_map(|name| [1, 80, 128, 129].map(|length| (name, length))) {
            let task = Task::next_symbol(length, 90);
            let graph = name.parse::<ModelConfig>().and_then(|config| config.graph(&task)).expect("a network");
            for precision in [Precision::Mixed, Precision::Exact] {
                let checked = ensure_supported(&graph, precision);
                if length <= LONGEST {
                    checked.expect("supported");
                } else {
                    assert!(checked.expect_err("refused").to_string().contains("`129` symbols"));
                }
            }
        }
    }

    #[test]
    fn every_choice_of_networks_of_texts_is_supported_but_layers_of_which_some_are_tied() {
        let task = Task::next_symbol(16, 90);
        let (personal, usual) = (Personal::Output, DeqTransformerOptions::default);
        let scaled = DeqTransformerOptions { injection: 8.0, injection_norm: true, state_scale: 16.0, ..usual() };
        for config in [
            ModelConfig::DeqTransformer(scaled),
            ModelConfig::DeqTransformer(DeqTransformerOptions { layers: 1, personal, ..usual() }),
            ModelConfig::DeqTransformer(DeqTransformerOptions { tied: true, ..usual() }),
            ModelConfig::Transformer4(TransformerOptions { personal, ..TransformerOptions::default() }),
        ] {
            for precision in [Precision::Mixed, Precision::Exact] {
                ensure_supported(&config.graph(&task).expect("fits"), precision).expect("supported");
            }
        }
        let mut some = ModelConfig::DeqTransformer(usual()).graph(&task).expect("fits");
        for layer in &mut some.layers {
            if let Layer::Equilibrium { cell: Cell::Transformer { layers, .. }, .. } = layer {
                layers.layers[2] = layers.layers[0];
            }
        }
        let problem = ensure_supported(&some, Precision::Mixed).expect_err("refused").to_string();
        assert!(problem.contains("begins with `cell.layers.0.norm_1` share their parameters and others do not"), "{problem}");
    }

    #[test]
    fn other_heads_and_widths_of_transformers_are_refused() {
        let task = Task::next_symbol(16, 90);
        let graph = "transformer-4".parse::<ModelConfig>().and_then(|config| config.graph(&task)).expect("a network");
        let refusal = |change: &dyn Fn(&mut Transformer)| {
            let mut graph = graph.clone();
            for layer in &mut graph.layers {
                if let Layer::Transformer { layers, .. } = layer {
                    change(layers);
                }
            }
            ensure_supported(&graph, Precision::Mixed).expect_err("refused").to_string()
        };
        assert!(refusal(&|stack| stack.heads = 8).contains("behind `layers.0.norm_1` has `8` heads"));
        assert!(refusal(&|stack| stack.hidden = 100).contains("is `100` wide"));
        let mut narrow = graph.clone();
        narrow
            .values
            .iter_mut()
            .filter(|shape| matches!(shape, Shape::Sequence(64)))
            .for_each(|shape| *shape = Shape::Sequence(32));
        let problem = ensure_supported(&narrow, Precision::Exact).expect_err("refused").to_string();
        assert!(problem.contains("`embedding.tokens` has `32` numbers a position"), "{problem}");
    }

    /// A convolution to so many channels, normalised.
    fn network(channels: usize, kind: NormKind, side: usize) -> Graph {
        let network = Graph::build(&Task::image(side, side, 3, 10), |net| {
            let x = net.input();
            let x = net.at("stem").conv("conv", x, channels, 3, 1);
            let x = net.at("stem").norm("norm", x, kind, Fusion::After(Activation::Relu));
            let x = net.mean_pool(x);
            Ends { logits: net.personal_dense(x), embedding: x }
        });
        network.expect("a network")
    }

    #[test]
    fn what_kernels_cannot_do_is_refused_by_the_name_of_the_layer() {
        let refusal = |graph: &Graph, precision| ensure_supported(graph, precision).expect_err("refused").to_string();
        assert!(refusal(&network(12, NormKind::Batch, 8), Precision::Mixed).contains("`stem.conv` has 12 channels"));
        assert!(refusal(&network(6, NormKind::Batch, 8), Precision::Exact).contains("`stem.norm` has 6 channels"));
        assert!(refusal(&network(128, NormKind::Group, 64), Precision::Mixed).contains("`stem.norm` normalises 8 groups"));
        assert!(ensure_supported(&network(16, NormKind::Group, 16), Precision::Exact).is_ok());
    }
}
