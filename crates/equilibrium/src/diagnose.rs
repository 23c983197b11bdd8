//! How contractive a map is.
#[cfg(feature = "burn")]
pub use crate::tensor::diagnose::{jacobian_frobenius_squared, jacobian_penalty, normal_probe, spectral_radius};

use crate::map::Map;
use crate::states::States;

/// The spectral radius of a linear map, an estimate for every sample: of `u -> J^T u` for a cell's `J = dg/dz`, which has the spectrum of `J`.
///
/// The power method with `steps` applications: the mean growth of a vector over the second half of them (a mean, since complex leading pairs make
/// the growth of single steps swing). Below 1 the plain iteration converges locally; a gradient by
/// [`Adjoint::JacobianFree`](crate::Adjoint::JacobianFree) or a Neumann series is only trustworthy there.
///
/// `probe` is the starting vector; draw it at random, so that it is not orthogonal to what is sought.
///
/// ```
/// use fedeq_equilibrium::{HostStates, diagnose};
///
/// let mut halved = |z: &HostStates, out: &mut HostStates| {
///     out.values_mut().iter_mut().zip(z.values()).for_each(|(out, z)| *out = z / 2.0);
/// };
/// let radii = diagnose::spectral_radius_of(&mut halved, HostStates::new(vec![0.3, -0.7], 1, 2), 10);
/// assert!((radii[0] - 0.5).abs() < 1e-6);
/// ```
pub fn spectral_radius_of<S: States>(map: &mut (impl Map<S> + ?Sized), probe: S, steps: usize) -> Vec<f64> {
    let (mut v, mut image, mut norms) = (probe, S::default(), Vec::new());
    scale_to_unit_length(&mut v, &mut norms);
    let mut log_growth = vec![0.0; v.rows()];
    let ignored = steps / 2;
    for step in 0..steps {
        image.reserve_like(&v);
        map.apply(&v, &mut image);
        std::mem::swap(&mut v, &mut image);
        scale_to_unit_length(&mut v, &mut norms);
        if step >= ignored {
            log_growth.iter_mut().zip(&norms).for_each(|(sum, norm)| *sum += libm::log(*norm));
        }
    }
    log_growth.into_iter().map(|sum| libm::exp(sum / (steps - ignored).max(1) as f64)).collect()
}

/// Every sample scaled to unit length (zero stays zero); `norms` become the lengths they had.
fn scale_to_unit_length<S: States>(v: &mut S, norms: &mut Vec<f64>) {
    v.dots(v, norms);
    norms.iter_mut().for_each(|norm| *norm = norm.sqrt());
    let inverse: Vec<f64> = norms.iter().map(|&norm| if norm > 0.0 { norm.recip() } else { 0.0 }).collect();
    v.scale_rows(&inverse);
}
