//! Functions applied to every number on its own.
use burn::tensor::{Tensor, activation};
use fedeq_kernels::activation as kernels;
use serde::{Deserialize, Serialize};

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

impl Activation {
    /// Applies the function to every entry.
    pub(crate) fn apply<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Relu => activation::relu(x),
            Self::Softplus => activation::softplus(x, 1.0),
        }
    }
}

/// The tanh form of the Gaussian error linear unit, `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    const SQRT_2_OVER_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
    // x * x * x and not a power function, which some devices compute through a logarithm.
    let cube = x.clone() * x.clone() * x.clone();
    let inner = (x.clone() + cube * 0.044715) * SQRT_2_OVER_PI;
    x * (inner.tanh() + 1.0) * 0.5
}
