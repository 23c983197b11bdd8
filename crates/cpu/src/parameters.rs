//! The parameters of a network in one piece of memory, and their gradients in another.
use std::ops::Range;

use fedeq_models::graph::{Graph, Parameter, ParameterId};

/// Where each parameter is: `[parameters of the graph]`, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterLayout {
    ranges: Vec<Range<usize>>,
}

impl ParameterLayout {
    /// All parameters of a graph.
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
        Self { ranges: graph.parameters.iter().map(range).collect() }
    }

    /// How many numbers there are in all.
    pub fn len(&self) -> usize {
        self.ranges.last().map_or(0, |range| range.end)
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

/// The values of all parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'a> {
    pub(crate) layout: &'a ParameterLayout,
    pub(crate) values: &'a [f32],
}

impl<'a> Values<'a> {
    pub(crate) fn get(&self, id: ParameterId) -> &'a [f32] {
        &self.values[self.layout.range(id)]
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
