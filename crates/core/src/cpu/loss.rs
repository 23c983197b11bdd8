//! The losses: cross-entropy for classes and symbols, squared error for numbers.
use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use fedeq_data::shard::{Batch, Inputs, Targets};

use super::bridge::ints;

/// What a batch should have given, one goal a row of logits.
#[allow(clippy::large_enum_variant, reason = "there is one of these to a batch")]
pub(crate) enum Goal {
    /// A class a row; rows that are padding do not count.
    Classes {
        /// `[rows]`.
        targets: Tensor<1, Int>,
        /// `[rows]`, where not all of them count.
        padding: Option<Tensor<1, Bool>>,
        /// How many count.
        count: usize,
    },
    /// A number a row, `[rows, 1]`.
    Numbers(Tensor<2>),
}

impl Goal {
    pub(crate) fn of(batch: &Batch, device: &Device) -> Self {
        match &batch.targets {
            Targets::Classes(classes) => {
                Self::Classes { targets: ints(classes, [classes.len()], device), padding: None, count: classes.len() }
            }
            Targets::Numbers(numbers) => {
                Self::Numbers(Tensor::from_data(TensorData::new(numbers.clone(), [numbers.len(), 1]), device))
            }
            Targets::Symbols { values, .. } => {
                let padding = padding_of(&batch.inputs, values.len());
                let count = padding.iter().filter(|&&padded| !padded).count();
                let mask = Tensor::from_data(TensorData::new(padding, [values.len()]), device);
                Self::Classes { targets: ints(values, [values.len()], device), padding: Some(mask), count }
            }
        }
    }
}

/// Which positions are padding: those whose input symbol is 0.
pub(crate) fn padding_of(inputs: &Inputs, positions: usize) -> Vec<bool> {
    match inputs {
        Inputs::Symbols { values, .. } => values.iter().map(|&symbol| symbol == 0).collect(),
        Inputs::Dense { .. } => vec![false; positions],
    }
}

/// The loss of a batch.
pub(crate) struct Loss {
    /// Mean over what counts: what is trained.
    pub(crate) mean: Tensor<1>,
    /// How many predictions count.
    pub(crate) count: usize,
}

/// The loss of logits, or of predicted numbers, `[rows, n]`.
pub(crate) fn loss_of(logits: &Tensor<2>, goal: &Goal) -> Loss {
    match goal {
        Goal::Numbers(numbers) => {
            let count = numbers.dims()[0];
            Loss { mean: (logits.clone() - numbers.clone()).square().mean(), count }
        }
        Goal::Classes { targets, padding, count } => {
            let chosen = log_softmax(logits.clone(), 1).gather(1, targets.clone().unsqueeze_dim(1)).squeeze_dim::<1>(1);
            let counted = match padding {
                Some(padding) => chosen.mask_fill(padding.clone(), 0.0),
                None => chosen,
            };
            Loss { mean: counted.sum().neg().div_scalar((*count).max(1) as f64), count: *count }
        }
    }
}
