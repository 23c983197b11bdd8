//! How contractive a cell of a burn model is at its fixed point.
use burn::tensor::{Distribution, Tensor};

use super::cell::Cell;
use super::host::to_host;
use super::rows::Rows;
use super::solve::spectral_radius_of_tensors;

/// The spectral radius of `J = dg/dz` at `(z, x)`, an estimate for every sample.
///
/// The power method on `J^T`, which has the same spectrum, with `steps` vector-Jacobian products: the mean growth of a vector over
/// the second half of them (a mean, since complex leading pairs make the growth of single steps swing). Below 1 the plain iteration converges
/// locally; a gradient by [`Adjoint::JacobianFree`](crate::Adjoint::JacobianFree) or a Neumann series is only trustworthy there.
///
/// `probe` is the starting vector, of the shape of `z`; draw it at random, so that it is not orthogonal to what is sought.
pub fn spectral_radius<const D: usize, C: Cell<D>>(
    cell: &C,
    x: &C::Input,
    z: Tensor<D>,
    probe: Tensor<D>,
    steps: usize,
) -> Vec<f64> {
    let (cell, x, z) = (cell.valid(), x.frozen(), z.without_autodiff());
    let mut transposed = cell.transposed(z, &x);
    spectral_radius_of_tensors(transposed.as_mut(), probe.without_autodiff(), steps)
}

/// Hutchinson's estimate of `||J||_F^2` for every sample: `||J^T e||^2` averaged over probes `e` with independent entries of
/// mean 0 and variance 1.
pub fn jacobian_frobenius_squared<const D: usize, C: Cell<D>>(
    cell: &C,
    x: &C::Input,
    z: Tensor<D>,
    probes: &[Tensor<D>],
) -> Vec<f64> {
    let (cell, x, z) = (cell.valid(), x.frozen(), z.without_autodiff());
    let mut sums = vec![0.0; z.dims()[0]];
    let mut transposed = cell.transposed(z, &x);
    for probe in probes {
        let image = transposed.apply(probe.clone().without_autodiff());
        let squares = to_host(image.flatten::<2>(1, D - 1).square().sum_dim(1));
        sums.iter_mut().zip(squares).for_each(|(sum, square)| *sum += square);
    }
    sums.into_iter().map(|sum| sum / probes.len().max(1) as f64).collect()
}

/// The same quantity as a differentiable penalty, averaged over samples and divided by the size of a state.
///
/// burn differentiates once, so `J e` is taken as the central difference `(g(z + h e) - g(z - h e)) / 2h`, which an ordinary backward
/// pass trains through; `E ||J e||^2 = ||J||_F^2` as well. `z` counts as a constant. Costs two applications of the cell.
pub fn jacobian_penalty<const D: usize, C: Cell<D>>(cell: &C, x: &C::Input, z: Tensor<D>, probe: Tensor<D>) -> Tensor<1> {
    const STEP: f64 = 1e-2;
    let z = z.without_autodiff();
    let shift = probe.without_autodiff().mul_scalar(STEP);
    let ahead = cell.step(z.clone() + shift.clone(), x);
    let behind = cell.step(z - shift, x);
    ((ahead - behind).div_scalar(2.0 * STEP)).square().mean()
}

/// A probe with independent normal entries, of the shape of `z`, from the device's generator.
pub fn normal_probe<const D: usize>(z: &Tensor<D>) -> Tensor<D> {
    z.clone().without_autodiff().random_like(Distribution::Normal(0.0, 1.0))
}
