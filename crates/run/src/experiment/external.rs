//! Networks that are computed outside of fedeq: what an experiment knows of them, and what they cannot do.
use std::fmt::Write as _;
use std::sync::Arc;

use fedeq_core::{Array, Error, InitialHeads, Params, Result, fingerprint};
use fedeq_cpu::ExternalNetwork;
use fedeq_models::{ExternalOptions, Graph, ModelConfig, Task, is_normalisation};

use super::{Device, Experiment, Override};

/// A network that is computed outside of fedeq, with the values it starts from. Everything under `head` is personal, the rest is shared.
#[derive(Clone)]
pub struct ExternalModel {
    /// What people call it.
    pub name: String,
    /// The parameters all clients start from, by path.
    pub initial: Params,
    /// Who computes it; nothing where a run is only looked at.
    pub network: Option<Arc<dyn ExternalNetwork>>,
}

impl ExternalModel {
    /// What an experiment says of it.
    pub fn options(&self) -> ExternalOptions {
        let mut layout = String::new();
        for (path, array) in self.initial.iter() {
            let _ = writeln!(layout, "{path} {:?}", array.shape); // A text takes whatever is written to it.
        }
        ExternalOptions { network: self.name.clone(), layout: fingerprint(layout.as_bytes()) }
    }

    /// Settings for [`Experiment::read`] with this network in place of one of ours; those of another one are refused.
    pub fn over(&self, settings: &[Override]) -> Result<Vec<Override>> {
        let ExternalOptions { network, layout } = self.options();
        if network.is_empty() || network.chars().any(char::is_control) {
            let problem = format!("the network is called `{}`", network.escape_debug());
            return Err(Error::invalid(problem, "give it a name that people can read"));
        }
        let is_model = |given: &&Override| given.path.first().is_some_and(|first| first == "model");
        if let Some(given) = settings.iter().find(is_model) {
            let problem = format!("`{}` does not go with a network of your own", given.path.join("."));
            return Err(Error::invalid(problem, "leave one of the two out"));
        }
        let own = [("model.name", ModelConfig::EXTERNAL), ("model.network", &network), ("model.layout", &layout)];
        Ok(settings.iter().cloned().chain(own.map(|(path, value)| Override::new(path, value))).collect())
    }

    /// Refuses another network than this one.
    pub(crate) fn ensure_same(&self, other: &Self) -> Result<()> {
        if other.name != self.name {
            let problem = format!("the network is called `{}`, and that of the run `{}`", other.name, self.name);
            return Err(Error::invalid(problem, "give the network with which the run began, under its name"));
        }
        let (ours, theirs) = (&self.initial, &other.initial);
        let differs = |one: &Params, two: &Params| {
            let shape = |array: &Array| array.shape.clone();
            one.iter().find(|(path, array)| two.get(path).map(shape) != Some(shape(array))).map(|(path, _)| path.to_owned())
        };
        match differs(ours, theirs).or_else(|| differs(theirs, ours)) {
            None => Ok(()),
            Some(path) => Err(Error::invalid(
                format!("the parameter `{path}` of the network `{}` is not as in the run", self.name),
                "give the network with which the run began: the same names and shapes, and the same ones personal",
            )),
        }
    }

    /// Its parameters for a task. Refuses a network that is not the experiment's.
    pub(super) fn graph(&self, options: &ExternalOptions, task: &Task) -> Result<Graph> {
        if self.options() != *options {
            let problem = format!("the network `{}` is not that of the experiment, `{}`", self.name, options.network);
            return Err(Error::invalid(problem, "read the experiment for this network"));
        }
        if !self.initial.is_finite() {
            let problem = format!("the first values of `{}` are not all finite", self.name);
            return Err(Error::invalid(problem, "initialise the network with finite numbers"));
        }
        let parameters = self.initial.iter().map(|(path, array)| (path.to_owned(), array.shape.clone()));
        Ok(Graph::external(task, parameters)?)
    }
}

impl Experiment {
    /// Refuses by name what needs a network of ours.
    pub(super) fn check_external(&self) -> Result<()> {
        let ModelConfig::External(options) = &self.model else { return Ok(()) };
        let refuse = |what: &str, why: &str, hint: &str| {
            Err(Error::invalid(format!("{what} does not go with the network `{}`, {why}", options.network), hint))
        };
        let outside = "which is computed outside of fedeq";
        if let Device::Cuda(_) = self.engine.place()? {
            let device = format!("`engine.device = {}`", self.engine.device);
            return refuse(&device, outside, "leave it out: the network itself may compute on a GPU");
        }
        if self.training.initial_heads == InitialHeads::Own {
            let why = "whose first values are given and not drawn";
            return refuse("`training.initial_heads = own`", why, "leave it out");
        }
        if self.training.warm_start != fedeq_equilibrium::WarmStart::Off {
            return refuse("`training.warm_start`", "whose fixed points are not known, if it has any", "leave it out");
        }
        Ok(())
    }

    /// Refuses a method that asks for what a network does not offer.
    pub(super) fn check_offers(&self, model: &ExternalModel) -> Result<()> {
        let (method, name, algorithm) = (self.method.name(), &model.name, self.method.algorithm());
        let is_lacking = model.network.as_ref().is_some_and(|network| !network.has_features());
        if algorithm.neighbours().is_some() && is_lacking {
            let problem = format!("`method = {method}` needs features, and the network `{name}` offers none");
            return Err(Error::invalid(problem, "give it a function `features(parameters, x)`, or choose another method"));
        }
        let has_no_gradient = |network: &Arc<dyn ExternalNetwork>| !network.has_features() || !network.has_feature_gradient();
        if algorithm.contrasts() && model.network.as_ref().is_some_and(has_no_gradient) {
            let problem = format!("`method = {method}` trains on features, and the network `{name}` offers no gradient of them");
            let hint = "give it functions `features(parameters, x)` and `features_and_pullback(parameters, x)`, or choose another method";
            return Err(Error::invalid(problem, hint));
        }
        // Nothing but their names tells normalisations of others.
        if algorithm.keeps_normalisations() && !model.initial.iter().any(|(path, _)| is_normalisation(path)) {
            let problem = format!(
                "`method = {method}` keeps normalisations with clients, and no parameter of the network `{name}` is called so"
            );
            return Err(Error::invalid(
                problem,
                "give their layers names that begin or end with `norm`, or choose another method",
            ));
        }
        Ok(())
    }
}
