//! The same seed gives the same bytes for any number of threads.
mod common;

use burn::module::Module;
use burn::tensor::DType;
use common::{Tanh, host, tensor, uniform};
use fedeq_equilibrium::{Adjoint, Equilibrium, Solver, Stop};

const ROWS: usize = 32;
const SIZE: usize = 256;

/// The bits of a layer's output and of its gradients.
fn training_step(solver: &Solver, adjoint: &Adjoint) -> Vec<u64> {
    let layer = Equilibrium {
        solver: solver.clone(),
        stop: Stop::relative(1e-5, 30),
        adjoint: adjoint.clone(),
        ..Equilibrium::default()
    };
    let cell = Tanh::random(SIZE, 3.0, 1, DType::F32).train();
    let x = tensor(uniform(ROWS * SIZE, 2), [ROWS, SIZE], DType::F32).autodiff().require_grad();
    let z = layer.forward(&cell, &x, x.clone().zeros_like()).z;
    let gradients = z.clone().square().sum().backward();
    let weight = cell.weight.val().grad(&gradients).expect("takes part");
    let x = x.grad(&gradients).expect("takes part");
    [host(z.inner()), host(weight), host(x)].concat().into_iter().map(f64::to_bits).collect()
}

#[test]
fn one_thread_and_two_give_the_same_bytes() {
    let with_threads = |count: usize, solver: &Solver, adjoint: &Adjoint| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(count).build().expect("a thread pool");
        pool.install(|| training_step(solver, adjoint))
    };
    for solver in [Solver::fixed_point(), Solver::anderson(5), Solver::broyden(10)] {
        for adjoint in [Adjoint::JacobianFree, Adjoint::implicit()] {
            let one = with_threads(1, &solver, &adjoint);
            assert_eq!(one, with_threads(2, &solver, &adjoint), "{solver:?}, {adjoint:?}");
            assert_eq!(one, with_threads(4, &solver, &adjoint), "{solver:?}, {adjoint:?}");
        }
    }
}
