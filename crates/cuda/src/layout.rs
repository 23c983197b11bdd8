//! Where the parameters of a network are in a lane.
//!
//! All lanes of a cohort lie one after the other, `stride` numbers apart: parameters of one [kind](Kind) after those of the other. Kernels want some parameters in another
//! order or with more room than files and messages have them in; what is too much stays zero, since its gradient is zero. Sums, differences and norms of lanes need to know
//! nothing of that.
use std::collections::HashMap;
use std::ops::Range;

use fedeq_core::{Array, Error, Params, Result, Weights};
use fedeq_models::graph::{Graph, Layer, Parameter, ParameterId, Shape, Transformer};
use fedeq_models::{Part, graph};
use rayon::prelude::*;

use crate::plan::Precision;

/// Numbers that parameters begin at a multiple of, so that kernels can read 16 bytes at once.
const ALIGNMENT: usize = 64;

/// Where everything is.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    places: Vec<Place>,
    /// Where the parameters of every kind are.
    ranges: [Range<usize>; 4],
    stride: usize,
    statistics: Vec<usize>,
    statistics_stride: usize,
}

/// Parameters that go together: those of a part that belong to normalisations, which some methods leave with their clients, and those that do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Shared,
    SharedNorms,
    Personal,
    PersonalNorms,
}

impl Kind {
    /// In the order in which they lie in a lane.
    pub(crate) const ALL: [Self; 4] = [Self::Shared, Self::SharedNorms, Self::Personal, Self::PersonalNorms];

    pub(crate) fn of(parameter: &Parameter) -> Self {
        match (parameter.part, parameter.normalises) {
            (Part::Shared, false) => Self::Shared,
            (Part::Shared, true) => Self::SharedNorms,
            (Part::Personal, false) => Self::Personal,
            (Part::Personal, true) => Self::PersonalNorms,
        }
    }

    pub(crate) fn part(self) -> Part {
        match self {
            Self::Shared | Self::SharedNorms => Part::Shared,
            Self::Personal | Self::PersonalNorms => Part::Personal,
        }
    }

    pub(crate) fn is_norms(self) -> bool {
        matches!(self, Self::SharedNorms | Self::PersonalNorms)
    }

    /// Its parameters, in the order of the network.
    pub(crate) fn parameters(self, graph: &Graph) -> impl Iterator<Item = &Parameter> {
        graph.parameters.iter().filter(move |parameter| Self::of(parameter) == self)
    }
}

/// Where a parameter is in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its first number.
    pub(crate) start: usize,
    /// Numbers from one row to the next.
    pub(crate) pitch: usize,
    order: Order,
}

/// The order of a parameter's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// `rows` times `columns` numbers as they are; rows are `pitch` apart.
    Rows { rows: usize, columns: usize },
    /// `[out][in][taps]` in files, `[out][taps][in]` here, with `pitch` numbers for `in`.
    ChannelsLast { out: usize, channels: usize, taps: usize },
}

/// How a parameter lies that does not simply follow the one before it.
#[derive(Clone, Copy, Debug)]
enum Arrangement {
    /// A convolution's weights, their input channels padded to so many.
    Conv { padded: usize },
    /// A matrix or a vector whose columns are padded to so many.
    Columns { padded: usize },
    /// Columns of a matrix that has several parameters side by side: the first of them, and how many come before this one.
    Beside { first: ParameterId, before: usize, of: usize },
}

impl Layout {
    /// That of a network.
    pub(crate) fn new(graph: &Graph, precision: Precision) -> Self {
        let arrangements = arrangements(graph, precision);
        let mut places = vec![Place { start: 0, pitch: 0, order: Order::Rows { rows: 0, columns: 0 } }; graph.parameters.len()];
        let mut end = 0;
        let ranges = Kind::ALL.map(|kind| {
            let start = end;
            for (index, parameter) in graph.parameters.iter().enumerate().filter(|(_, parameter)| Kind::of(parameter) == kind) {
                let (place, room) = place(&parameter.shape, arrangements.get(&index).copied(), end, &places);
                places[index] = place;
                end = (end + room).next_multiple_of(ALIGNMENT);
            }
            start..end
        });
        let mut statistics_stride = 0;
        let statistics = graph.statistics.iter().map(|running| {
            let start = statistics_stride;
            statistics_stride = (start + 2 * running.channels + 1).next_multiple_of(4);
            start
        });
        Self { places, ranges, stride: end, statistics: statistics.collect(), statistics_stride }
    }

    /// Numbers of a lane.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Where the parameters of a kind are in a lane.
    pub(crate) fn range(&self, kind: Kind) -> Range<usize> {
        self.ranges[kind as usize].clone()
    }

    /// Where a parameter is.
    pub(crate) fn place(&self, id: ParameterId) -> Place {
        self.places[id.0]
    }

    /// Numbers of a lane of statistics. It may be 0.
    pub(crate) fn statistics_stride(&self) -> usize {
        self.statistics_stride
    }

    /// Where the means of a batch normalisation begin in a lane of statistics; its variances follow, then the number of batches seen.
    pub(crate) fn statistics(&self, index: usize) -> usize {
        self.statistics[index]
    }

    /// Writes the parameters of a part of a network, or of all of it, into a lane. Those that are not there are left as they are.
    #[cfg(test)]
    pub(crate) fn write(&self, graph: &Graph, params: &Params, lane: &mut [f32]) -> Result<()> {
        for (parameter, place) in graph.parameters.iter().zip(&self.places) {
            if let Some(array) = params.get(&parameter.path) {
                ensure_count(&parameter.path, array, parameter.count())?;
                place.write(&array.values, lane);
            }
        }
        Ok(())
    }

    /// Reads the parameters that are wanted from a lane.
    pub(crate) fn read(&self, graph: &Graph, lane: &[f32], wanted: impl Fn(Part) -> bool) -> Params {
        let chosen = graph.parameters.iter().zip(&self.places).filter(|(parameter, _)| wanted(parameter.part));
        let array = |(parameter, place): (&graph::Parameter, &Place)| {
            let mut values = vec![0.0; parameter.count()];
            place.read(lane, &mut values);
            (parameter.path.clone(), Array::new(parameter.shape.clone(), values))
        };
        chosen.map(array).collect()
    }

    /// Writes the parameters of one kind into its [range](Self::range) of a lane, which is all that `numbers` is.
    pub(crate) fn write_kind(&self, graph: &Graph, params: &Params, kind: Kind, numbers: &mut [f32]) -> Result<()> {
        let start = self.range(kind).start;
        for (parameter, place) in self.of_kind(graph, kind) {
            let Some(array) = params.get(&parameter.path) else {
                return Err(Error::message(format!("`{}` is missing", parameter.path)));
            };
            ensure_count(&parameter.path, array, parameter.count())?;
            place.from(start).write(&array.values, numbers);
        }
        Ok(())
    }

    fn of_kind<'g>(&'g self, graph: &'g Graph, kind: Kind) -> impl Iterator<Item = (&'g Parameter, &'g Place)> {
        graph.parameters.iter().zip(&self.places).filter(move |(parameter, _)| Kind::of(parameter) == kind)
    }

    /// Reads the parameters of one kind from its range of a lane, on all cores.
    pub(crate) fn read_kind(&self, graph: &Graph, numbers: &[f32], kind: Kind) -> Params {
        let start = self.range(kind).start;
        let array = |(parameter, place): (&Parameter, &Place)| {
            let mut values = vec![0.0; parameter.count()];
            place.from(start).read(numbers, &mut values);
            (parameter.path.clone(), Array::new(parameter.shape.clone(), values))
        };
        let arrays: Vec<(String, Array)> = self.of_kind(graph, kind).collect::<Vec<_>>().into_par_iter().map(array).collect();
        arrays.into_iter().collect()
    }

    /// Writes running statistics into a lane of them; fresh ones where there are none.
    pub(crate) fn write_statistics(&self, graph: &Graph, weights: &Weights, lane: &mut [f32]) -> Result<()> {
        let fresh = graph.initial_statistics();
        for (running, &start) in graph.statistics.iter().zip(&self.statistics) {
            let mut at = start;
            for (name, count) in running.names().into_iter().zip([running.channels, running.channels, 1]) {
                match weights.statistics.get(&name) {
                    Some(array) => {
                        ensure_count(&name, array, count)?;
                        lane[at..at + count].copy_from_slice(&array.values);
                    }
                    None => lane[at..at + count].copy_from_slice(&fresh[&name]),
                }
                at += count;
            }
        }
        Ok(())
    }

    /// Reads running statistics from a lane of them.
    pub(crate) fn read_statistics(&self, graph: &Graph, lane: &[f32]) -> Params {
        let of = |(running, &start): (&graph::RunningStatistics, &usize)| {
            let channels = running.channels;
            let parts = [(0, channels), (channels, channels), (2 * channels, 1)];
            let values = parts.map(|(at, count)| Array::new(vec![count], lane[start + at..start + at + count].to_vec()));
            running.names().into_iter().zip(values)
        };
        graph.statistics.iter().zip(&self.statistics).flat_map(of).collect()
    }
}

fn ensure_count(name: &str, array: &Array, count: usize) -> Result<()> {
    if array.values.len() == count {
        return Ok(());
    }
    Err(Error::invalid(
        format!("`{name}` has shape `{:?}`, which is not {count} numbers", array.shape),
        "use weights of the same network",
    ))
}

impl Place {
    /// Where it ends: behind its last number.
    pub(crate) fn end(&self) -> usize {
        match self.order {
            Order::Rows { rows, columns } => self.start + rows.saturating_sub(1) * self.pitch + columns,
            Order::ChannelsLast { out, taps, .. } => self.start + out * taps * self.pitch,
        }
    }

    /// Input channels of a convolution with those that are padding, or columns of a matrix with those that are.
    pub(crate) fn padded(&self) -> usize {
        self.pitch
    }

    /// The same place, counted from some number of the lane on.
    fn from(self, start: usize) -> Self {
        Self { start: self.start - start, ..self }
    }

    /// The same number of neighbouring numbers in a file and in a lane, again and again: where they begin in each, and how many they are.
    fn runs(&self, mut visit: impl FnMut(usize, usize, usize)) {
        if let Order::Rows { rows, columns } = self.order {
            (0..rows).for_each(|row| visit(row * columns, self.start + row * self.pitch, columns));
        }
    }

    /// From a file's order into a lane.
    fn write(&self, values: &[f32], lane: &mut [f32]) {
        match self.order {
            Order::Rows { .. } => self.runs(|outside, inside, count| {
                lane[inside..inside + count].copy_from_slice(&values[outside..outside + count]);
            }),
            Order::ChannelsLast { channels, taps, .. } => {
                let kernels = lane[self.start..].chunks_exact_mut(taps * self.pitch);
                for (inside, outside) in kernels.zip(values.chunks_exact(channels * taps)) {
                    transpose(outside, inside, [channels, taps], [taps, self.pitch]);
                }
            }
        }
    }

    /// From a lane into a file's order.
    fn read(&self, lane: &[f32], values: &mut [f32]) {
        match self.order {
            Order::Rows { .. } => self.runs(|outside, inside, count| {
                values[outside..outside + count].copy_from_slice(&lane[inside..inside + count]);
            }),
            Order::ChannelsLast { channels, taps, .. } => {
                let kernels = lane[self.start..].chunks_exact(taps * self.pitch);
                for (inside, outside) in kernels.zip(values.chunks_exact_mut(channels * taps)) {
                    transpose(inside, outside, [taps, channels], [self.pitch, taps]);
                }
            }
        }
    }
}

/// `to[column][row] = from[row][column]`; rows of `from` and of `to` are so many numbers apart.
fn transpose(from: &[f32], to: &mut [f32], [rows, columns]: [usize; 2], [from_pitch, to_pitch]: [usize; 2]) {
    for row in 0..rows {
        for column in 0..columns {
            to[column * to_pitch + row] = from[row * from_pitch + column];
        }
    }
}

/// A parameter's place, and how much room it takes after what is there; nothing beside another one.
fn place(shape: &[usize], arrangement: Option<Arrangement>, end: usize, places: &[Place]) -> (Place, usize) {
    let columns = shape.last().copied().unwrap_or(1);
    let rows = shape.iter().product::<usize>() / columns.max(1);
    match arrangement {
        None => (Place { start: end, pitch: columns, order: Order::Rows { rows, columns } }, rows * columns),
        Some(Arrangement::Columns { padded }) => {
            (Place { start: end, pitch: padded, order: Order::Rows { rows, columns } }, rows * padded)
        }
        Some(Arrangement::Conv { padded }) => {
            let (out, channels) = (shape[0], shape[1]);
            let taps = shape[2..].iter().product();
            (Place { start: end, pitch: padded, order: Order::ChannelsLast { out, channels, taps } }, out * taps * padded)
        }
        Some(Arrangement::Beside { first, before, of }) => {
            let start = if before == 0 { end } else { places[first.0].start + before * columns };
            let room = if before == 0 { rows * columns * of } else { 0 };
            (Place { start, pitch: columns * of, order: Order::Rows { rows, columns } }, room)
        }
    }
}

/// What layers want of their parameters.
fn arrangements(graph: &Graph, precision: Precision) -> HashMap<usize, Arrangement> {
    let padded = |channels: usize| if precision == Precision::Mixed { channels.next_multiple_of(8) } else { channels };
    let mut arrangements = HashMap::new();
    for layer in &graph.layers {
        match layer {
            Layer::Conv { weight, .. } => {
                let channels = graph.parameter(*weight).shape[1];
                arrangements.insert(weight.0, Arrangement::Conv { padded: padded(channels) });
            }
            Layer::Dense { weight, bias, y, .. } if matches!(graph.shape(*y), Shape::Sequence(_)) => {
                let columns = padded(graph.parameter(*weight).shape[1]);
                arrangements.extend(
                    [Some(*weight), *bias].into_iter().flatten().map(|id| (id.0, Arrangement::Columns { padded: columns })),
                );
            }
            // Their gradients come from one sum over samples.
            Layer::Norm { affine, .. } => {
                let ids = [affine.scale, affine.offset].into_iter().enumerate();
                arrangements.extend(ids.map(|(before, id)| (id.0, Arrangement::Beside { first: affine.scale, before, of: 2 })));
            }
            Layer::Transformer { layers, .. } => beside(layers, &mut arrangements),
            Layer::Equilibrium { cell: graph::Cell::Transformer { layers, .. }, .. }
            | Layer::Repeat { cell: graph::Cell::Transformer { layers, .. }, .. } => beside(layers, &mut arrangements),
            Layer::Equilibrium { cell: graph::Cell::Residual { conv_a, conv_b, norm_1, norm_2, norm_3, .. }, .. }
            | Layer::Repeat { cell: graph::Cell::Residual { conv_a, conv_b, norm_1, norm_2, norm_3, .. }, .. } => {
                // Their gradients come from one sum over samples.
                for affine in [norm_1, norm_2, norm_3] {
                    for (before, id) in [affine.scale, affine.offset].into_iter().enumerate() {
                        arrangements.insert(id.0, Arrangement::Beside { first: affine.scale, before, of: 2 });
                    }
                }
                for weight in [conv_a, conv_b] {
                    let channels = graph.parameter(*weight).shape[1];
                    arrangements.insert(weight.0, Arrangement::Conv { padded: padded(channels) });
                }
            }
            _ => {}
        }
    }
    arrangements
}

/// Queries, keys and values are computed by one product: their matrices stand side by side, and so do their biases.
fn beside(layers: &Transformer, arrangements: &mut HashMap<usize, Arrangement>) {
    for [_, _, q_weight, q_bias, k_weight, k_bias, v_weight, v_bias, ..] in &layers.layers {
        for of in [[q_weight, k_weight, v_weight], [q_bias, k_bias, v_bias]] {
            for (before, id) in of.into_iter().enumerate() {
                arrangements.insert(id.0, Arrangement::Beside { first: *of[0], before, of: 3 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fedeq_models::{ModelConfig, Task, is_normalisation};

    use super::*;

    fn graphs() -> Vec<Graph> {
        let make = |name: &str, task: &Task| name.parse::<ModelConfig>().expect("known").graph(task).expect("fits");
        let colour = Task::image(32, 32, 3, 10);
        let text = Task::next_symbol(16, 90);
        let mut all: Vec<Graph> =
            ["mlp", "deq-mlp", "deq-resnet-m", "resnet-20", "resnet-xs"].map(|name| make(name, &colour)).into();
        all.extend(["deq-transformer", "transformer-4"].map(|name| make(name, &text)));
        all
    }

    #[test]
    fn weights_come_back_as_they_went() {
        for graph in graphs() {
            for precision in [Precision::Mixed, Precision::Exact] {
                let layout = Layout::new(&graph, precision);
                let weights = Weights::initial(&graph, 7);
                let mut lane = vec![0.0; layout.stride()];
                layout.write(&graph, &weights.params, &mut lane).expect("fits");
                assert_eq!(layout.read(&graph, &lane, |_| true), weights.params);
                for kind in Kind::ALL {
                    let mut numbers = vec![0.0; layout.range(kind).len()];
                    layout.write_kind(&graph, &weights.params, kind, &mut numbers).expect("fits");
                    assert_eq!(numbers, lane[layout.range(kind)]);
                    let wanted = |path: &str| Part::of(path) == kind.part() && is_normalisation(path) == kind.is_norms();
                    assert_eq!(layout.read_kind(&graph, &numbers, kind), weights.params.filter(wanted));
                }
                let mut statistics = vec![9.0; layout.statistics_stride()];
                layout.write_statistics(&graph, &weights, &mut statistics).expect("fits");
                assert_eq!(layout.read_statistics(&graph, &statistics), weights.statistics);
            }
        }
    }

    #[test]
    fn no_two_parameters_share_a_number_and_kinds_are_apart() {
        for graph in graphs() {
            let layout = Layout::new(&graph, Precision::Mixed);
            let mut taken = vec![false; layout.stride()];
            for (parameter, place) in graph.parameters.iter().zip(&layout.places) {
                let mut lane = vec![0.0; layout.stride()];
                place.write(&vec![1.0; parameter.count()], &mut lane);
                for inside in (0..lane.len()).filter(|&at| lane[at] == 1.0) {
                    assert!(!std::mem::replace(&mut taken[inside], true), "{}", parameter.path);
                    assert!(layout.range(Kind::of(parameter)).contains(&inside), "{}", parameter.path);
                }
                assert_eq!(place.start % 4, 0);
            }
        }
    }
}
