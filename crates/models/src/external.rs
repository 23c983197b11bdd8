//! Networks that are computed outside of fedeq: the names and shapes of their parameters, and nothing of what they compute.
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::ModelConfig;
use crate::error::{ModelError, Result, ensure_parameters};
use crate::graph::{Graph, Parameter, Shape, ValueId};
use crate::init::Initializer;
use crate::part::{Part, is_normalisation};
use crate::task::{InputShape, Task};

/// What an experiment says of a network that is computed outside of fedeq. It is set by whoever brings the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalOptions {
    /// What people call it.
    pub network: String,
    /// A fingerprint of the names and shapes of its parameters.
    pub layout: String,
}

impl ExternalOptions {
    /// The refusal of whatever needs to know what the network computes.
    pub fn not_ours(&self) -> ModelError {
        let name = if self.network.is_empty() { ModelConfig::EXTERNAL } else { &self.network };
        ModelError::unfitting(
            format!("the network `{name}` is computed outside of fedeq"),
            "give it in Python: `fedeq.run(network=...)` begins a run and `fedeq.resume(folder, network=...)` continues one",
        )
    }
}

impl Graph {
    /// A network of which only the parameters are known. It has no layers, so no engine of fedeq can run it: whoever brings it computes it. Its first values are
    /// given too, and not drawn.
    ///
    /// ```
    /// use fedeq_models::{Graph, Part, Task};
    ///
    /// let parameters = [("conv.weight".into(), vec![4, 1, 3, 3]), ("head.fc.bias".into(), vec![10])];
    /// let graph = Graph::external(&Task::image(8, 8, 1, 10), parameters)?;
    /// assert_eq!((graph.count(Part::Shared), graph.count(Part::Personal)), (36, 10));
    /// # Ok::<(), fedeq_models::ModelError>(())
    /// ```
    pub fn external(task: &Task, parameters: impl IntoIterator<Item = (String, Vec<usize>)>) -> Result<Self> {
        task.validate()?;
        let parameters: Vec<Parameter> = parameters.into_iter().map(external).collect();
        ensure_parameters(parameters.iter().map(|parameter| &parameter.shape))?;
        ensure_named(&parameters)?;
        let (input, logits) = match task.input {
            InputShape::Image { height, width, channels } => {
                (Shape::Image([height, width, channels]), Shape::Vector(task.classes))
            }
            InputShape::Vector { width } => (Shape::Vector(width), Shape::Vector(task.classes)),
            InputShape::Symbols { .. } => (Shape::Symbols, Shape::Sequence(task.classes)),
        };
        Ok(Self {
            task: *task,
            parameters,
            statistics: Vec::new(),
            values: vec![input, logits],
            layers: Vec::new(),
            logits: ValueId(1),
            embedding: ValueId(1),
        })
    }
}

fn external((path, shape): (String, Vec<usize>)) -> Parameter {
    let (part, normalises) = (Part::of(&path), is_normalisation(&path));
    Parameter { path, shape, part, init: Initializer::Zeros, normalises }
}

/// Refuses a network without parameters, empty ones, and names that are no names or taken twice.
fn ensure_named(parameters: &[Parameter]) -> Result<()> {
    if parameters.is_empty() {
        return Err(ModelError::unfitting("the network has no parameters", "give one that can be trained"));
    }
    let mut seen = BTreeSet::new();
    for Parameter { path, shape, .. } in parameters {
        // What is sent beside a model has a slash in its name.
        let is_name = !path.is_empty() && path.split('.').all(|part| !part.is_empty()) && !path.contains('/');
        if !is_name {
            let remedy = "name parameters by words with dots between, such as `conv.weight`";
            return Err(ModelError::unfitting(format!("`{path}` is no name of a parameter"), remedy));
        }
        if !seen.insert(path) {
            return Err(ModelError::unfitting(format!("two parameters are called `{path}`"), "give each a name of its own"));
        }
        if shape.contains(&0) {
            let problem = format!("the parameter `{path}` of shape `{shape:?}` holds no numbers");
            return Err(ModelError::unfitting(problem, "leave it out"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_without_numbers_or_names_of_their_own_are_refused() {
        let task = Task::vector(3, 2);
        let graph = |parameters: &[(&str, &[usize])]| {
            Graph::external(&task, parameters.iter().map(|(path, shape)| ((*path).to_owned(), shape.to_vec())))
        };
        assert!(graph(&[("w", &[2]), ("b", &[])]).is_ok(), "a single number has no shape");
        for (wrong, words) in [
            (&[][..], "has no parameters"),
            (&[("w", &[2][..]), ("w", &[2])], "two parameters are called `w`"),
            (&[("w", &[2, 0])], "`w` of shape `[2, 0]` holds no numbers"),
            (&[("control/w", &[2])], "`control/w` is no name"),
            (&[("a..b", &[2])], "`a..b` is no name"),
            (&[("", &[2])], "`` is no name"),
            (&[("w", &[1 << 20, 1 << 20])], "parameters"),
        ] {
            let problem = graph(wrong).expect_err("refused").to_string();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
