//! The choices that layers leave to a configuration.
use fedeq_kernels::activation as kernels;
use serde::{Deserialize, Serialize};

/// How many groups group normalisation makes of the channels.
pub(crate) const GROUPS: usize = 8;

/// The nonlinearity of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `log(1 + e^x)`, a smooth version of it.
    Softplus,
}

impl From<Activation> for kernels::Activation {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::Relu => Self::Relu,
            Activation::Softplus => Self::Softplus,
        }
    }
}

/// Which normalisation a network uses outside its equilibrium cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Over the batch, with running statistics that travel between clients and server.
    #[default]
    Batch,
    /// Over groups of channels of one sample, without any state.
    Group,
}

/// What group normalisation takes its statistics over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The whole plane of a group of channels, as in textbooks.
    #[default]
    Textbook,
    /// One image row of a group of channels, as in the authors' code.
    RowWise,
}
