//! The numbers of a model: its parameters and the running statistics that go with them.
use fedeq_models::graph::{Graph, Parameter};
use fedeq_models::{Part, is_normalisation};

use crate::error::Result;
use crate::params::{Array, Params};

/// Where what is sent beside a model stands among its parameters.
const CONTROL: &str = "control";

/// Whether a name is that of a number beside a model.
fn is_beside(name: &str) -> bool {
    name.strip_prefix(CONTROL).is_some_and(|rest| rest.starts_with('/'))
}

/// Parameters by path, and normalisation statistics by name. A whole model, or the part of one that is shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    /// `theta`, `w`, or both; [`Part::of`] tells a path's side.
    pub params: Params,
    /// Means, variances and step counts of normalisation layers.
    pub statistics: Params,
}

impl Weights {
    /// The first numbers of a network. The same seed gives the same ones, bit for bit.
    pub fn initial(graph: &Graph, seed: u64) -> Self {
        let drawn =
            |parameter: &Parameter| (parameter.path.clone(), Array::new(parameter.shape.clone(), parameter.initial_values(seed)));
        let flat = |(name, values): (String, Vec<f32>)| (name, Array::new(vec![values.len()], values));
        Self {
            params: graph.parameters.iter().map(drawn).collect(),
            statistics: graph.initial_statistics().into_iter().map(flat).collect(),
        }
    }

    /// Only the parameters of the parts wanted, with all statistics.
    pub fn only(&self, wanted: impl Fn(Part) -> bool) -> Self {
        Self { params: self.params.filter(|path| wanted(Part::of(path))), statistics: self.statistics.clone() }
    }

    /// The shared parameters, `theta`.
    pub fn theta(&self) -> Params {
        self.params.filter(|path| Part::of(path) == Part::Shared)
    }

    /// The personal parameters, `w`.
    pub fn head(&self) -> Params {
        self.params.filter(|path| Part::of(path) == Part::Personal)
    }

    /// The model alone, without what is sent beside it.
    pub fn model(&self) -> Self {
        Self { params: self.params.filter(|path| !is_beside(path)), statistics: self.statistics.clone() }
    }

    /// What is sent beside a model, under the names of the model's parameters.
    pub fn control(&self) -> Self {
        Self { params: self.params.below(CONTROL), ..Self::default() }
    }

    /// This model with other numbers for its parameters beside it.
    pub fn beside(&self, control: &Params) -> Self {
        let mut both = self.clone();
        both.params.overwrite(&control.under(CONTROL));
        both
    }

    /// The parameters that do not belong to normalisations, without statistics.
    pub fn without_norms(&self) -> Self {
        Self { params: self.params.filter(|path| !is_normalisation(path)), ..Self::default() }
    }

    /// The same model with whatever `received` holds in place of its own.
    pub fn with(&self, received: &Self) -> Self {
        let mut changed = self.clone();
        changed.params.overwrite(&received.params);
        changed.statistics.overwrite(&received.statistics);
        changed
    }

    /// Whether every number is finite.
    pub fn is_finite(&self) -> bool {
        self.params.is_finite() && self.statistics.is_finite()
    }

    /// The weighted mean, in the order given.
    pub fn mean<'a>(items: impl IntoIterator<Item = (&'a Self, f64)> + Clone) -> Self {
        let params = items.clone().into_iter().map(|(item, weight)| (&item.params, weight));
        let statistics = items.clone().into_iter().map(|(item, weight)| (&item.statistics, weight));
        Self { params: Params::mean(params.collect::<Vec<_>>()), statistics: Params::mean(statistics.collect::<Vec<_>>()) }
    }

    /// Refuses another layout than that of `expected`, and numbers that are not finite.
    pub fn ensure_like(&self, expected: &Self) -> Result<()> {
        self.params.ensure_like(&expected.params)?;
        self.statistics.ensure_like(&expected.statistics)
    }

    /// Both in one, each under its own prefix: the form in which weights are sent and stored.
    pub fn packed(&self) -> Params {
        let mut packed = self.params.under("params");
        packed.overwrite(&self.statistics.under("statistics"));
        packed
    }

    /// The inverse of [`packed`](Self::packed).
    pub fn unpacked(packed: &Params) -> Self {
        Self { params: packed.below("params"), statistics: packed.below("statistics") }
    }

    /// The same for what stands in a file, perhaps one of an older version; refuses another layout than that of `expected`.
    pub(crate) fn stored(packed: &Params, expected: &Self) -> Result<Self> {
        let Self { params, statistics } = Self::unpacked(packed);
        let weights =
            Self { params: params.named_like(&expected.params), statistics: statistics.named_like(&expected.statistics) };
        weights.ensure_like(expected)?;
        Ok(weights)
    }
}
