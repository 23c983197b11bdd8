//! A network and how its equilibrium is solved.
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fedeq_core::{Params, Weights};
use fedeq_cpu::Network;
use fedeq_equilibrium::{Equilibrium, Stop};
use fedeq_models::{ModelConfig, Task};
use serde::Deserialize;

use crate::Result;

/// Which network, on data of which kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    pub(crate) model: String,
    pub(crate) kind: Kind,
    /// Solver steps that are always taken; the model's own rule where nothing is said.
    #[serde(default)]
    pub(crate) solver_steps: Option<usize>,
    /// The share of numbers that dropout sets to zero.
    #[serde(default)]
    pub(crate) dropout: f64,
}

/// Shapes of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// 28x28x1, 62 classes.
    Femnist,
    /// 32x32x3, 10 classes.
    Cifar10,
    /// 16 of 90 symbols.
    Shakespeare,
}

impl Kind {
    pub(crate) fn task(self) -> Task {
        match self {
            Self::Femnist => Task::image(28, 28, 1, 62),
            Self::Cifar10 => Task::image(32, 32, 3, 10),
            Self::Shakespeare => Task::next_symbol(16, 90),
        }
    }
}

impl Setting {
    /// The network.
    pub(crate) fn network(&self) -> Result<Arc<Network>> {
        Ok(Arc::new(Network::new(self.config()?.graph(&self.kind.task())?)))
    }

    fn config(&self) -> Result<ModelConfig> {
        let mut config: ModelConfig = self.model.parse()?;
        match &mut config {
            ModelConfig::DeqResNetS(options) | ModelConfig::DeqResNetM(options) => self.fix_steps(&mut options.equilibrium),
            ModelConfig::DeqTransformer(options) => {
                options.dropout = self.dropout;
                self.fix_steps(&mut options.equilibrium);
            }
            _ => {}
        }
        Ok(config)
    }

    fn fix_steps(&self, equilibrium: &mut Equilibrium) {
        if let Some(steps) = self.solver_steps {
            equilibrium.stop = Stop::relative(0.0, steps);
        }
    }
}

/// The weights of a fresh network.
pub(crate) fn weights_of(network: &Network) -> Weights {
    Weights::initial(network.graph(), 7)
}

/// Writes weights as the one safetensors file that the other side reads too.
pub(crate) fn write_weights(folder: &Path, weights: &Weights) -> Result<()> {
    let mut all = weights.params.clone();
    all.overwrite(&weights.statistics);
    Ok(fs::write(folder.join(WEIGHTS), all.to_bytes(&Default::default())?)?)
}

/// Reads what [`write_weights`] wrote.
pub(crate) fn read_weights(folder: &Path, network: &Network) -> Result<Weights> {
    let (all, _) = Params::from_bytes(&fs::read(folder.join(WEIGHTS))?)?;
    let like = weights_of(network);
    let weights = Weights {
        params: all.filter(|path| like.params.get(path).is_some()),
        statistics: all.filter(|path| like.statistics.get(path).is_some()),
    };
    weights.ensure_like(&like)?;
    Ok(weights)
}

const WEIGHTS: &str = "weights.safetensors";
