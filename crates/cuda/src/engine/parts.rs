//! The parts of a model that are sent, kept and computed with on their own.
use std::ops::Range;

use fedeq_core::{Params, Weights};
use fedeq_models::Part;
use fedeq_models::graph::Graph;

use crate::layout::{Kind, Layout};

/// A part of a model, or of what is sent beside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Parameters(Kind),
    /// The running statistics of batch normalisations.
    Statistics,
    /// Numbers beside parameters of a kind, such as a control variate.
    Control(Kind),
}

impl Section {
    /// All parameters, in the order in which they lie in a lane.
    pub(crate) const PARAMETERS: [Self; 4] = [
        Self::Parameters(Kind::Shared),
        Self::Parameters(Kind::SharedNorms),
        Self::Parameters(Kind::Personal),
        Self::Parameters(Kind::PersonalNorms),
    ];

    /// A whole model.
    pub(crate) const MODEL: [Self; 5] = {
        let [shared, shared_norms, personal, personal_norms] = Self::PARAMETERS;
        [shared, shared_norms, personal, personal_norms, Self::Statistics]
    };

    const COUNT: usize = 9;

    /// All of them.
    fn all() -> impl Iterator<Item = Self> {
        Self::MODEL.into_iter().chain(Kind::ALL.map(Self::Control))
    }

    fn index(self) -> usize {
        match self {
            Self::Parameters(kind) => kind as usize,
            Self::Statistics => 4,
            Self::Control(kind) => 5 + kind as usize,
        }
    }

    /// The kind of parameters whose numbers it has, or that it stands beside; none for statistics.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Self::Parameters(kind) | Self::Control(kind) => Some(kind),
            Self::Statistics => None,
        }
    }

    /// The part of the model it belongs to; none for statistics.
    pub(crate) fn part(self) -> Option<Part> {
        self.kind().map(Kind::part)
    }

    /// Where it is in a lane of parameters, or in one of statistics.
    pub(crate) fn range(self, layout: &Layout) -> Range<usize> {
        self.kind().map_or(0..layout.statistics_stride(), |kind| layout.range(kind))
    }

    /// Whether a network has anything of it.
    pub(crate) fn is_in(self, graph: &Graph) -> bool {
        match self.kind() {
            Some(kind) => kind.parameters(graph).next().is_some(),
            None => !graph.statistics.is_empty(),
        }
    }

    /// The first name that host arrays have for it.
    pub(crate) fn first_name(self, graph: &Graph) -> Option<String> {
        match self.kind() {
            Some(kind) => kind.parameters(graph).map(|parameter| parameter.path.clone()).min(),
            None => graph.statistics.iter().flat_map(|running| running.names()).min(),
        }
    }
}

/// Something for every part of a model that there is: numbers on the device, a client's buffers, or nothing but the fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts<T>([Option<T>; Section::COUNT]);

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| None))
    }
}

impl<T> Parts<T> {
    pub(crate) fn get(&self, section: Section) -> Option<&T> {
        self.0[section.index()].as_ref()
    }

    pub(crate) fn set(&mut self, section: Section, value: Option<T>) {
        self.0[section.index()] = value;
    }

    /// What there is, in the order of the sections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Section, &T)> {
        Section::all().filter_map(|section| Some((section, self.get(section)?)))
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
        Parts(std::array::from_fn(|at| self.0[at].as_ref().map(|_| ())))
    }
}

impl<T: Clone> Parts<T> {
    /// The same with whatever the other has in its place.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| other.0[at].clone().or_else(|| self.0[at].clone())))
    }

    fn filter(&self, wanted: impl Fn(Section) -> bool) -> Self {
        self.renamed(|section| wanted(section).then_some(section))
    }

    /// The same as other sections, as far as they are wanted.
    fn renamed(&self, name: impl Fn(Section) -> Option<Section>) -> Self {
        let mut renamed = Self::default();
        for (section, value) in self.iter() {
            if let Some(section) = name(section) {
                renamed.set(section, Some(value.clone()));
            }
        }
        renamed
    }

    /// The parameters of one part, with all statistics.
    pub(crate) fn only(&self, part: Part) -> Self {
        self.filter(|section| match section {
            Section::Parameters(kind) => kind.part() == part,
            Section::Statistics => true,
            Section::Control(_) => false,
        })
    }

    /// All but statistics.
    pub(crate) fn without_statistics(&self) -> Self {
        self.filter(|section| section != Section::Statistics)
    }

    /// The parameters that do not belong to normalisations.
    pub(crate) fn without_norms(&self) -> Self {
        self.filter(|section| section.kind().is_some_and(|kind| !kind.is_norms()))
    }

    /// The model, without what stands beside it.
    pub(crate) fn model(&self) -> Self {
        self.filter(|section| !matches!(section, Section::Control(_)))
    }

    /// What stands beside a model, as if it were one.
    pub(crate) fn control(&self) -> Self {
        self.renamed(|section| if let Section::Control(kind) = section { Some(Section::Parameters(kind)) } else { None })
    }

    /// This model with the parameters of another beside it.
    pub(crate) fn beside(&self, control: &Self) -> Self {
        let beside = |section| if let Section::Parameters(kind) = section { Some(Section::Control(kind)) } else { None };
        self.with(&control.renamed(beside))
    }
}

/// Which parts of a network host arrays hold: a part is there if any of it is.
pub(crate) fn parts_of(graph: &Graph, weights: &Weights) -> Parts<()> {
    let control = parts_of_params(graph, &weights.control().params);
    let mut parts = parts_of_params(graph, &weights.params).beside(&control);
    let has = |name: &String| weights.statistics.get(name).is_some();
    let any = graph.statistics.iter().any(|running| running.names().iter().any(has));
    parts.set(Section::Statistics, any.then_some(()));
    parts
}

/// The same for parameters alone.
pub(crate) fn parts_of_params(graph: &Graph, params: &Params) -> Parts<()> {
    let mut parts = Parts::default();
    for kind in Kind::ALL {
        let here = kind.parameters(graph).any(|parameter| params.get(&parameter.path).is_some());
        parts.set(Section::Parameters(kind), here.then_some(()));
    }
    parts
}
