//! A gradient step on a parameter.
use burn::tensor::Tensor;

use super::host;
use crate::InstructionSet;
use crate::sgd::SgdStep;

/// A force on a parameter beside its gradient: `strength p + offset`.
#[derive(Clone, Debug)]
pub struct Pull {
    /// How strongly the parameter is pulled towards zero.
    pub strength: f64,
    /// What does not depend on the parameter; as many numbers, flat.
    pub offset: Tensor<1>,
}

/// `p - rate (gradient + strength p + offset)`, in place where nobody else holds `p`; all without autodiff.
pub fn descend<const D: usize>(p: Tensor<D>, gradient: Tensor<D>, pull: Option<&Pull>, rate: f64) -> Tensor<D> {
    let shape = p.dims();
    let offset = pull.map(|pull| pull.offset.clone().into_dispatch());
    let (here, there) = (p.clone().into_dispatch(), gradient.clone().into_dispatch());
    if ![Some(&here), Some(&there), offset.as_ref()].into_iter().flatten().all(host::is_here) {
        return composed(p, gradient, pull, rate);
    }
    drop(here);
    let (gradient, offset) = (host::plain(there), offset.map(host::plain));
    let step = SgdStep {
        learning_rate: rate as f32,
        decay: pull.map_or(0.0, |pull| pull.strength as f32),
        gradient: host::numbers(&gradient),
        offset: offset.as_ref().map(host::numbers),
    };
    let mut values = host::plain(p.into_dispatch()).into_data().try_into_vec::<f32>().expect("32-bit floats");
    step.run(InstructionSet::best(), &mut values);
    Tensor::from_dispatch(host::constant(host::tensor(values, shape.to_vec())))
}

/// The same by burn's own operations.
fn composed<const D: usize>(p: Tensor<D>, gradient: Tensor<D>, pull: Option<&Pull>, rate: f64) -> Tensor<D> {
    let force = match pull {
        Some(pull) => gradient + p.clone().mul_scalar(pull.strength) + pull.offset.clone().reshape(p.dims()),
        None => gradient,
    };
    p - force.mul_scalar(rate)
}
