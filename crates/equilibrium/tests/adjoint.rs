//! Gradients through the equilibrium, against central differences and closed forms.
mod common;

use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor};
use common::{Tanh, host, relative_error, tensor, uniform};
use fedeq_equilibrium::{Adjoint, Cell, Equilibrium, LinearSolver, Solver, Stop};

const ROWS: usize = 4;
const SIZE: usize = 5;

/// The numbers of a small network: a linear map into the layer, the cell, a linear read-out.
#[derive(Clone)]
struct Weights {
    before: Vec<f64>,
    inside: Vec<f64>,
    after: Vec<f64>,
}

impl Weights {
    fn random(gain: f64) -> Self {
        let scaled = |seed, gain: f64| uniform(SIZE * SIZE, seed).into_iter().map(|value| value * gain).collect();
        Self { before: scaled(1, 1.0), inside: scaled(2, gain / SIZE as f64), after: scaled(3, 1.0) }
    }
}

fn data(dtype: DType) -> Tensor<2> {
    tensor(uniform(ROWS * SIZE, 4), [ROWS, SIZE], dtype)
}

fn tight(dtype: DType) -> Stop {
    if dtype == DType::F64 { Stop::relative(1e-13, 400) } else { Stop::relative(1e-6, 100) }
}

fn layer(adjoint: Adjoint, dtype: DType) -> Equilibrium {
    Equilibrium { solver: Solver::anderson(5), stop: tight(dtype), adjoint, ..Equilibrium::default() }
}

fn implicit(solver: LinearSolver, dtype: DType) -> Adjoint {
    Adjoint::Implicit { solver, stop: tight(dtype) }
}

fn linear_solvers() -> [LinearSolver; 4] {
    [
        LinearSolver::Gmres { memory: 4 },
        LinearSolver::Anderson { memory: 5 },
        LinearSolver::Broyden { memory: 20 },
        LinearSolver::Neumann,
    ]
}

/// The loss and, if asked for, its gradients with respect to the three matrices.
fn loss_and_gradients(weights: &Weights, adjoint: Adjoint, dtype: DType) -> (f64, [Vec<f64>; 3]) {
    let leaf = |values: &[f64]| tensor::<2>(values.to_vec(), [SIZE, SIZE], dtype).autodiff().require_grad();
    let (before, after) = (leaf(&weights.before), leaf(&weights.after));
    let cell = Tanh { weight: Param::from_tensor(leaf(&weights.inside)) };
    let x = data(dtype).autodiff().matmul(before.clone());
    let settled = layer(adjoint, dtype).forward(&cell, &x, x.clone().zeros_like());
    assert!(settled.report.residual.iter().all(|&residual| residual < 1e-5));
    let loss = settled.z.matmul(after.clone()).sin().sum();
    let gradients = loss.backward();
    let of = |leaf: &Tensor<2>| host(leaf.grad(&gradients).expect("the leaf takes part"));
    let inside = cell.weight.val();
    (loss.into_scalar::<f64>(), [of(&before), of(&inside), of(&after)])
}

/// The same loss, in f64 and without any autodiff.
fn loss(weights: &Weights) -> f64 {
    let plain = |values: &[f64]| tensor::<2>(values.to_vec(), [SIZE, SIZE], DType::F64);
    let x = data(DType::F64).matmul(plain(&weights.before));
    let cell = Tanh::from_weight(plain(&weights.inside));
    let settled = layer(Adjoint::JacobianFree, DType::F64).forward(&cell, &x, x.clone().zeros_like());
    settled.z.matmul(plain(&weights.after)).sin().sum().into_scalar::<f64>()
}

fn central_differences(weights: &Weights, part: impl Fn(&mut Weights) -> &mut Vec<f64>) -> Vec<f64> {
    let step = 1e-5;
    let at = |index: usize, shift: f64| {
        let mut moved = weights.clone();
        part(&mut moved)[index] += shift;
        loss(&moved)
    };
    (0..SIZE * SIZE).map(|index| (at(index, step) - at(index, -step)) / (2.0 * step)).collect()
}

fn all_central_differences(weights: &Weights) -> [Vec<f64>; 3] {
    [
        central_differences(weights, |weights| &mut weights.before),
        central_differences(weights, |weights| &mut weights.inside),
        central_differences(weights, |weights| &mut weights.after),
    ]
}

#[test]
fn implicit_gradients_before_inside_and_after_the_layer_equal_central_differences() {
    let weights = Weights::random(2.0);
    let expected = all_central_differences(&weights);
    for (dtype, tolerance) in [(DType::F64, 1e-6), (DType::F32, 1e-3)] {
        for solver in linear_solvers() {
            let (_, found) = loss_and_gradients(&weights, implicit(solver.clone(), dtype), dtype);
            for (found, expected) in found.iter().zip(&expected) {
                let error = relative_error(found, expected);
                assert!(error < tolerance, "{solver:?} in {dtype:?}: {error:e}");
            }
        }
    }
}

#[test]
fn gmres_and_anderson_give_the_implicit_gradient_of_a_cell_that_does_not_contract() {
    // A negative definite matrix with eigenvalues below -1: plain iteration and the Neumann series diverge.
    let mut weights = Weights::random(1.0);
    weights.inside = (0..SIZE * SIZE).map(|at| if at % (SIZE + 1) == 0 { -2.5 } else { weights.inside[at] }).collect();
    let expected = all_central_differences(&weights);
    for solver in [LinearSolver::Gmres { memory: 10 }, LinearSolver::Anderson { memory: 5 }] {
        let (_, found) = loss_and_gradients(&weights, implicit(solver.clone(), DType::F64), DType::F64);
        let error = relative_error(&found[1], &expected[1]);
        assert!(error < 1e-6, "{solver:?}: {error:e}");
    }
}

#[test]
fn the_jacobian_free_gradient_is_the_first_term_of_the_series() {
    let weights = Weights::random(2.0);
    let (_, found) = loss_and_gradients(&weights, Adjoint::JacobianFree, DType::F64);
    // v^T dg/dW at the fixed point, by hand: dL/dW = z^T diag(1 - z^2) v.
    let plain = |values: &[f64]| tensor::<2>(values.to_vec(), [SIZE, SIZE], DType::F64);
    let x = data(DType::F64).matmul(plain(&weights.before));
    let cell = Tanh::from_weight(plain(&weights.inside));
    let z = layer(Adjoint::JacobianFree, DType::F64).forward(&cell, &x, x.clone().zeros_like()).z;
    let after = plain(&weights.after);
    let arriving = z.clone().matmul(after.clone()).cos().matmul(after.transpose());
    let local = arriving * (z.clone().square().neg() + 1.0);
    let inside = host(z.transpose().matmul(local.clone()));
    let before = host(data(DType::F64).transpose().matmul(local));
    assert!(relative_error(&found[1], &inside) < 1e-9);
    assert!(relative_error(&found[0], &before) < 1e-9);
}

#[test]
fn the_phantom_gradient_approaches_the_implicit_one_as_its_steps_grow() {
    let weights = Weights::random(2.0);
    let gradient = |adjoint| loss_and_gradients(&weights, adjoint, DType::F64).1[1].clone();
    let implicit = gradient(implicit(LinearSolver::default(), DType::F64));
    for damping in [0.0, 0.5] {
        let errors: Vec<f64> =
            [1, 4, 16, 64].map(|steps| relative_error(&gradient(Adjoint::Phantom { steps, damping }), &implicit)).to_vec();
        assert!(errors.windows(2).all(|pair| pair[1] < 0.8 * pair[0]), "{errors:?}");
        assert!(errors[3] < 1e-6, "{errors:?}");
    }
    let one_step = gradient(Adjoint::Phantom { steps: 1, damping: 0.0 });
    assert!(relative_error(&one_step, &gradient(Adjoint::JacobianFree)) < 1e-12);
}

#[test]
fn the_value_is_the_same_whether_or_not_a_gradient_is_wanted() {
    let weights = Weights::random(2.0);
    for adjoint in [Adjoint::JacobianFree, Adjoint::implicit()] {
        let (with, _) = loss_and_gradients(&weights, adjoint, DType::F64);
        assert_eq!(with, loss(&weights));
    }
}

#[test]
fn nothing_is_attached_when_neither_the_cell_nor_the_input_wants_a_gradient() {
    let x = data(DType::F32).autodiff();
    let cell = Tanh::random(SIZE, 1.0, 2, DType::F32).train().no_grad();
    let settled = Equilibrium::default().forward(&cell, &x, x.clone().zeros_like());
    assert!(!settled.z.is_tracked());
    let cell = cell.set_require_grad(true);
    assert!(Equilibrium::default().forward(&cell, &x, x.clone().zeros_like()).z.is_tracked());
}

#[test]
fn the_backward_pass_reports_how_its_own_solve_went() {
    let x = data(DType::F64).autodiff().require_grad();
    let cell = Tanh::random(SIZE, 2.0, 2, DType::F64);
    let layer = layer(Adjoint::implicit(), DType::F64);
    let settled = layer.forward(&cell, &x, x.clone().zeros_like());
    assert_eq!(settled.adjoint.report(), None);
    settled.z.sum().backward();
    let report = settled.adjoint.report().expect("the backward pass has run");
    assert!(report.all_converged() && report.len() == ROWS);
}

/// A cell with a state of rank three, an optional mask and a pair as input.
#[derive(Module, Debug)]
struct Masked {
    gain: Param<Tensor<1>>,
}

impl Cell<3> for Masked {
    type Input = (Tensor<3>, Option<Tensor<3>>);

    fn step(&self, z: Tensor<3>, (x, mask): &Self::Input) -> Tensor<3> {
        let z = (z * self.gain.val().reshape([1, 1, -1]) + x.clone()).sin();
        mask.iter().fold(z, |z, mask| z * mask.clone())
    }
}

#[test]
fn states_of_any_rank_with_structured_inputs_are_differentiated() {
    let shape = [ROWS, 2, 3];
    let values = |seed| uniform(ROWS * 6, seed);
    let mask = tensor(values(9).iter().map(|value| f64::from(u8::from(*value > 0.0))).collect(), shape, DType::F64);
    let run = |gain: Vec<f64>| {
        let cell = Masked { gain: Param::from_tensor(tensor(gain, [3], DType::F64).autodiff().require_grad()) };
        let input = (tensor(values(8), shape, DType::F64), Some(mask.clone()));
        let z0 = tensor(vec![0.0; ROWS * 6], shape, DType::F64);
        let loss = layer(Adjoint::implicit(), DType::F64).forward(&cell, &input, z0).z.square().sum();
        let gradients = loss.backward();
        (loss.into_scalar::<f64>(), host(cell.gain.val().grad(&gradients).expect("takes part")))
    };
    let gain = vec![0.5, -0.4, 0.8];
    let (_, found) = run(gain.clone());
    let moved = |index: usize, shift: f64| {
        let mut gain = gain.clone();
        gain[index] += shift;
        run(gain).0
    };
    let expected: Vec<f64> = (0..3).map(|index| (moved(index, 1e-5) - moved(index, -1e-5)) / 2e-5).collect();
    // The default stopping rule of the adjoint is 1e-3; central differences are far better than that.
    assert!(relative_error(&found, &expected) < 1e-3);
}
