//! Peak tensor memory does not grow with the number of solver steps. The CPU backend allocates through the global allocator, so
//! what it holds can be counted there. (One test only: the counter belongs to the whole process.)
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::Module;
use burn::tensor::{DType, Tensor};
use common::{Tanh, tensor, uniform};
use fedeq_equilibrium::{Adjoint, Equilibrium, LinearSolver, SolveOptions, Solver, Stop};

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

/// Passes everything on to the system and keeps count.
// SAFETY: every call is forwarded unchanged to `System`, which upholds the contract; counting touches only atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: usize = 16;
const SIZE: usize = 512;

/// Bytes held at the most, above what was held before, by one training step of a layer that uses up its step limit.
fn peak_of_training_step(solver: &Solver, adjoint: &Adjoint, steps: usize) -> usize {
    let never = Stop::relative(0.0, steps);
    let adjoint = match adjoint {
        Adjoint::Implicit { solver, .. } => Adjoint::Implicit { solver: solver.clone(), stop: never },
        other => other.clone(),
    };
    let layer = Equilibrium { solver: solver.clone(), stop: never, adjoint, options: SolveOptions::default() };
    // With such a gain the cell is chaotic: no solver reaches a residual of exactly 0 and stops early.
    let cell = Tanh::random(SIZE, 60.0, 1, DType::F32).train();
    let x = tensor(uniform(ROWS * SIZE, 2), [ROWS, SIZE], DType::F32).autodiff().require_grad();
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let settled = layer.forward(&cell, &x, Tensor::zeros_like(&x));
    assert!(settled.report.steps.iter().all(|&taken| taken == steps));
    let gradients = settled.z.square().sum().backward();
    assert!(x.grad(&gradients).is_some());
    PEAK.load(Ordering::Relaxed) - before
}

#[test]
fn peak_memory_at_100_solver_steps_equals_that_at_10() {
    let state = ROWS * SIZE * size_of::<f32>();
    let implicit = Adjoint::Implicit { solver: LinearSolver::Gmres { memory: 5 }, stop: Stop::default() };
    for solver in [Solver::fixed_point(), Solver::anderson(5), Solver::broyden(5)] {
        for adjoint in [Adjoint::JacobianFree, Adjoint::Phantom { steps: 3, damping: 0.0 }, implicit.clone()] {
            peak_of_training_step(&solver, &adjoint, 10); // Thread pools and lazily made tables are paid for here.
            let few = peak_of_training_step(&solver, &adjoint, 10);
            let many = peak_of_training_step(&solver, &adjoint, 100);
            assert!(few > 3 * state, "the counter sees tensors: {few} bytes");
            assert!(many <= few + state / 2, "{solver:?}, {adjoint:?}: {few} bytes at 10 steps, {many} at 100");
        }
    }
}
