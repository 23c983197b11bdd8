//! The parameters of a network, and their gradients in one piece of memory.
use std::ops::Range;
use std::sync::Arc;

use fedeq_models::graph::{Graph, Parameter, ParameterId};

/// Where the gradient of each parameter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterLayout {
    ranges: Vec<Range<usize>>,
    len: usize,
}

impl ParameterLayout {
    /// All parameters of a graph, one after the other.
    pub fn of(graph: &Graph) -> Self {
        Self::of_some(graph, |_| true)
    }

    /// Some parameters of a graph; the others have no place.
    pub fn of_some(graph: &Graph, wanted: impl Fn(&Parameter) -> bool) -> Self {
        let mut end = 0;
        let range = |parameter: &Parameter| {
            let start = end;
            if wanted(parameter) {
                end += parameter.shape.iter().product::<usize>();
            }
            start..end
        };
        Self { ranges: graph.parameters.iter().map(range).collect(), len: end }
    }

    /// Gradients that share memory where they do not live at the same time. `lives` says of every parameter with a gradient from which to which layer that is, both
    /// included.
    pub(crate) fn shared(graph: &Graph, lives: &[Option<[usize; 2]>]) -> Self {
        let count = |index: usize| graph.parameters[index].count();
        let mut order: Vec<usize> = (0..lives.len()).filter(|&index| lives[index].is_some()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(count(index)));
        let overlap = |[a, b]: [usize; 2], [c, d]: [usize; 2]| a <= d && c <= b;
        let (mut ranges, mut placed) = (vec![0..0; lives.len()], Vec::<usize>::new());
        for index in order {
            // The first gap between those that live at the same time.
            let at_once = |&other: &usize| lives[index].zip(lives[other]).is_some_and(|(one, other)| overlap(one, other));
            let mut taken: Vec<Range<usize>> =
                placed.iter().copied().filter(at_once).map(|other| Range::clone(&ranges[other])).collect();
            taken.sort_by_key(|range| range.start);
            let mut start = 0;
            for range in taken {
                if start + count(index) <= range.start {
                    break;
                }
                start = start.max(range.end);
            }
            ranges[index] = start..start + count(index);
            placed.push(index);
        }
        let len = ranges.iter().map(|range| range.end).max().unwrap_or_default();
        Self { ranges, len }
    }

    /// How many numbers there are in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a parameter is; an empty range for one that has no place.
    pub fn range(&self, id: ParameterId) -> Range<usize> {
        self.ranges[id.0].clone()
    }

    /// Whether a parameter has a place.
    pub fn has(&self, id: ParameterId) -> bool {
        !self.ranges[id.0].is_empty()
    }
}

/// The values of all parameters, in the order of the graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'a>(pub(crate) &'a [Arc<Vec<f32>>]);

impl<'a> Values<'a> {
    pub(crate) fn get(&self, id: ParameterId) -> &'a [f32] {
        &self.0[id.0]
    }
}

/// The gradients of the parameters that are trained.
#[derive(Debug)]
pub(crate) struct Gradients<'a> {
    pub(crate) layout: &'a ParameterLayout,
    pub(crate) values: &'a mut [f32],
    /// Memory for a second gradient of the same parameter.
    pub(crate) spare: &'a mut Vec<f32>,
}

/// Where the gradient of a parameter goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParameterTarget {
    pub(crate) id: ParameterId,
    /// Whether another layer has written its part already.
    pub(crate) accumulate: bool,
}

impl ParameterTarget {
    /// The same, added to what is there also if `adding`.
    pub(crate) fn adding(self, adding: bool) -> Self {
        Self { accumulate: self.accumulate || adding, ..self }
    }
}

impl Gradients<'_> {
    /// Whether a parameter's gradient goes here.
    pub(crate) fn has(&self, target: ParameterTarget) -> bool {
        self.layout.has(target.id)
    }

    /// Lets `fill` write the gradient of a parameter, if it is wanted.
    pub(crate) fn write(&mut self, target: Option<ParameterTarget>, fill: impl FnOnce(&mut [f32])) {
        let Some(ParameterTarget { id, accumulate }) = target else { return };
        let to = &mut self.values[self.layout.range(id)];
        if !accumulate {
            return fill(to);
        }
        self.spare.clear();
        self.spare.resize(to.len(), 0.0);
        fill(self.spare);
        crate::memory::add(to, self.spare);
    }

    /// Lets `fill` write the gradients of several parameters at once, as far as they are wanted.
    pub(crate) fn write_some<const N: usize>(
        &mut self,
        targets: [Option<ParameterTarget>; N],
        fill: impl FnOnce([Option<&mut [f32]>; N]),
    ) {
        let wanted = targets.map(|target| target.is_some());
        self.write_pieces(targets, |pieces| {
            let mut wanted = wanted.into_iter();
            fill(pieces.map(|piece| wanted.next().unwrap_or_default().then_some(piece)));
        });
    }

    /// The same for parameters that are trained together; `fill` is told if they are not wanted.
    pub(crate) fn write_all<const N: usize>(
        &mut self,
        targets: [Option<ParameterTarget>; N],
        fill: impl FnOnce(Option<[&mut [f32]; N]>),
    ) {
        if targets.iter().all(Option::is_none) {
            return fill(None);
        }
        assert!(targets.iter().all(Option::is_some), "the parameters of a cell are trained together");
        self.write_pieces(targets, |pieces| fill(Some(pieces)));
    }

    /// Nothing for those that are not wanted.
    fn write_pieces<const N: usize>(&mut self, targets: [Option<ParameterTarget>; N], fill: impl FnOnce([&mut [f32]; N])) {
        const APART: &str = "every parameter has a place of its own";
        if !targets.iter().flatten().any(|target| target.accumulate) {
            let ranges = targets.map(|target| target.map_or(0..0, |target| self.layout.range(target.id)));
            return fill(self.values.get_disjoint_mut(ranges).expect(APART));
        }
        // Some are to be added: one after the other in memory of their own.
        let lengths = targets.map(|target| target.map_or(0, |target| self.layout.range(target.id).len()));
        self.spare.clear();
        self.spare.resize(lengths.iter().sum(), 0.0);
        let mut end = 0;
        let ranges = lengths.map(|len| {
            end += len;
            end - len..end
        });
        fill(self.spare.get_disjoint_mut(ranges.clone()).expect(APART));
        for (target, range) in targets.into_iter().zip(ranges) {
            let Some(target) = target else { continue };
            let to = &mut self.values[self.layout.range(target.id)];
            if !target.accumulate {
                to.fill(0.0);
            }
            crate::memory::add(to, &self.spare[range]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedeq_models::{ModelConfig, Task};

    #[test]
    fn gradients_share_memory_unless_they_live_at_the_same_time() {
        let config: ModelConfig = "mlp".parse().expect("a network");
        let graph = config.graph(&Task::vector(5, 3)).expect("fits");
        let counts: Vec<usize> = graph.parameters.iter().map(Parameter::count).collect();
        assert!(counts.len() >= 4);
        // The last is never written; of the others two and two live at once, and the first all the time.
        let lives: Vec<Option<[usize; 2]>> = (0..counts.len())
            .map(|index| match index {
                0 => Some([0, 9]),
                _ if index + 1 == counts.len() => None,
                _ => Some([index / 2, index / 2]),
            })
            .collect();
        let layout = ParameterLayout::shared(&graph, &lives);
        for (one, life) in lives.iter().enumerate() {
            let range = layout.range(ParameterId(one));
            assert_eq!(range.len(), if life.is_some() { counts[one] } else { 0 });
            for (other, second) in lives.iter().enumerate().filter(|(other, _)| *other != one) {
                if let (Some([a, b]), Some([c, d])) = (life, second)
                    && a <= d
                    && c <= b
                {
                    let other = layout.range(ParameterId(other));
                    assert!(range.end <= other.start || other.end <= range.start, "{range:?} and {other:?}");
                }
            }
        }
        assert!(layout.len() < counts.iter().sum());
    }
}
