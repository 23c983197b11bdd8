//! The parts of a model that are sent, kept and computed with on their own.
use std::ops::Range;

use fedeq_core::{Params, Weights};
use fedeq_models::graph::Graph;
use fedeq_models::{Part, graph::Parameter};

use crate::layout::Layout;

/// A part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Shared,
    Personal,
    /// The running statistics of batch normalisations.
    Statistics,
}

impl Section {
    pub(crate) const ALL: [Self; 3] = [Self::Shared, Self::Personal, Self::Statistics];
    pub(crate) const PARAMETERS: [Self; 2] = [Self::Shared, Self::Personal];

    /// The part of the parameters it is; none for statistics.
    pub(crate) fn part(self) -> Option<Part> {
        match self {
            Self::Shared => Some(Part::Shared),
            Self::Personal => Some(Part::Personal),
            Self::Statistics => None,
        }
    }

    /// Where it is in a lane of parameters, or in one of statistics.
    pub(crate) fn range(self, layout: &Layout) -> Range<usize> {
        self.part().map_or(0..layout.statistics_stride(), |part| layout.range(part))
    }

    /// Whether a network has anything of it.
    pub(crate) fn is_in(self, graph: &Graph) -> bool {
        match self.part() {
            Some(part) => graph.parameters_of(part).next().is_some(),
            None => !graph.statistics.is_empty(),
        }
    }

    /// The first name that host arrays have for it.
    pub(crate) fn first_name(self, graph: &Graph) -> Option<String> {
        match self.part() {
            Some(part) => graph.parameters_of(part).map(|parameter| parameter.path.clone()).min(),
            None => graph.statistics.iter().flat_map(|running| running.names()).min(),
        }
    }
}

/// Something for every part of a model that there is: numbers on the device, a client's buffers, or nothing but the fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts<T>([Option<T>; 3]);

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self([None, None, None])
    }
}

impl<T> Parts<T> {
    pub(crate) fn get(&self, section: Section) -> Option<&T> {
        self.0[section as usize].as_ref()
    }

    pub(crate) fn set(&mut self, section: Section, value: Option<T>) {
        self.0[section as usize] = value;
    }

    /// What there is, in the order of the sections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Section, &T)> {
        Section::ALL.into_iter().filter_map(|section| Some((section, self.get(section)?)))
    }

    /// Something made of each.
    pub(crate) fn map<U, E>(&self, mut change: impl FnMut(Section, &T) -> Result<U, E>) -> Result<Parts<U>, E> {
        let mut changed = Parts::default();
        for (section, value) in self.iter() {
            changed.set(section, Some(change(section, value)?));
        }
        Ok(changed)
    }

    /// What is there, without what it is.
    pub(crate) fn present(&self) -> Parts<()> {
        Parts([0, 1, 2].map(|at| self.0[at].as_ref().map(|_| ())))
    }
}

impl<T: Clone> Parts<T> {
    /// The same with whatever the other has in its place.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self([0, 1, 2].map(|at| other.0[at].clone().or_else(|| self.0[at].clone())))
    }

    /// The parameters of one part, with all statistics.
    pub(crate) fn only(&self, part: Part) -> Self {
        let mut only = self.without_parameters();
        let section = if part == Part::Shared { Section::Shared } else { Section::Personal };
        only.set(section, self.get(section).cloned());
        only
    }

    /// The parameters.
    pub(crate) fn without_statistics(&self) -> Self {
        Self([self.0[0].clone(), self.0[1].clone(), None])
    }

    fn without_parameters(&self) -> Self {
        Self([None, None, self.0[2].clone()])
    }
}

/// Which parts of a network host arrays hold: a part is there if any of it is.
pub(crate) fn parts_of(graph: &Graph, weights: &Weights) -> Parts<()> {
    let mut parts = parts_of_params(graph, &weights.params);
    let has = |name: &String| weights.statistics.get(name).is_some();
    let any = graph.statistics.iter().any(|running| running.names().iter().any(has));
    parts.set(Section::Statistics, any.then_some(()));
    parts
}

/// The same for parameters alone.
pub(crate) fn parts_of_params(graph: &Graph, params: &Params) -> Parts<()> {
    let mut parts = Parts::default();
    for section in Section::PARAMETERS {
        let here = |parameter: &&Parameter| Some(parameter.part) == section.part() && params.get(&parameter.path).is_some();
        parts.set(section, graph.parameters.iter().find(here).map(|_| ()));
    }
    parts
}
