//! The layer in use: shrinking batches, warm starts, settings.
mod common;

use burn::tensor::{DType, Device, Tensor};
use common::{Tanh, host, tensor, uniform};
use fedeq_equilibrium::{
    Adjoint, Anderson, Equilibrium, Ridge, SolveOptions, Solver, Stop, StoredPrecision, WarmMemory, WarmStart,
};

const ROWS: usize = 8;
const SIZE: usize = 6;

/// Rows that need very different numbers of steps: large inputs saturate the cell, and saturated cells converge at once.
fn uneven_inputs() -> Tensor<2> {
    let values = uniform(ROWS * SIZE, 5).into_iter().enumerate();
    let scale = |row: usize| if row.is_multiple_of(4) { 0.05 } else { 30.0 };
    tensor(values.map(|(at, value)| value * scale(at / SIZE)).collect(), [ROWS, SIZE], DType::F64)
}

#[test]
fn leaving_finished_samples_out_changes_the_work_and_not_the_result() {
    let cell = Tanh::random(SIZE, 3.0, 2, DType::F64);
    let x = uneven_inputs();
    for solver in [Solver::fixed_point(), Solver::anderson(5), Solver::broyden(10)] {
        let run = |shrink_below: f64| {
            let options = SolveOptions { shrink_below, trace: true };
            let layer =
                Equilibrium { solver: solver.clone(), stop: Stop::relative(1e-8, 200), adjoint: Adjoint::default(), options };
            layer.forward(&cell, &x, x.zeros_like())
        };
        let (whole, shrinking) = (run(0.0), run(0.9));
        assert!(whole.report.all_converged());
        assert!(shrinking.report.evaluated_rows < whole.report.evaluated_rows, "{solver:?}");
        assert_eq!(shrinking.report.steps, whole.report.steps, "{solver:?}");
        assert_eq!(shrinking.report.trace, whole.report.trace, "{solver:?}");
        assert_eq!(host(shrinking.z), host(whole.z), "{solver:?}");
        assert_eq!(host(shrinking.fixed_point), host(whole.fixed_point), "{solver:?}");
    }
}

#[test]
fn a_warm_start_shortens_the_solve() {
    let cell = Tanh::random(SIZE, 3.0, 2, DType::F64);
    let x = uneven_inputs();
    let layer = Equilibrium { stop: Stop::relative(1e-6, 200), ..Equilibrium::default() };
    let cold = layer.forward(&cell, &x, x.zeros_like());
    let ids: Vec<u64> = (0..ROWS as u64).collect();
    for precision in [StoredPrecision::Single, StoredPrecision::Half] {
        let mut memory = WarmMemory::new(WarmStart::BySample { capacity: None, precision, lasting: false });
        memory.remember_tensor(&ids, &cold.fixed_point);
        let warm = layer.forward(&cell, &x, memory.recall_tensor(&ids, x.zeros_like()));
        assert!(warm.report.mean_steps() < 0.8 * cold.report.mean_steps(), "{precision:?}");
    }
}

fn ones(rows: usize) -> Tensor<2> {
    Tensor::ones([rows, 4], &Device::default())
}

fn bounded(capacity: usize, precision: StoredPrecision) -> WarmMemory {
    WarmMemory::new(WarmStart::BySample { capacity: Some(capacity), precision, lasting: false })
}

#[test]
fn a_memory_without_a_bound_holds_every_sample() {
    let mut memory = WarmMemory::new(WarmStart::by_sample());
    let ids: Vec<u64> = (0..500).collect();
    memory.remember_tensor(&ids, &Tensor::<2>::ones([500, 32_768], &Device::default())); // A client of CIFAR-10 with the paper's network.
    assert_eq!((memory.len(), memory.knows(&ids, 32_768), memory.knows(&ids, 7)), (500, 500, 0));
    assert_eq!(memory.bytes(), WarmStart::by_sample().bytes(500, 32_768));
    assert_eq!(memory.bytes(), 500 * 32_768 * 2);
}

#[test]
fn a_full_memory_keeps_whom_it_has_so_that_as_many_start_warm_as_fit() {
    let mut memory = bounded(3 * 16, StoredPrecision::Single);
    memory.remember_tensor(&[1, 2], &ones(2));
    memory.remember_tensor(&[3, 1], &ones(2));
    memory.remember_tensor(&[4], &ones(1));
    assert_eq!(memory.bytes(), 48);
    let ids: Vec<u64> = memory.entries().map(|(id, _)| id).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(memory.knows(&[5, 4, 3, 2, 1, 0], 4), 3);
    let mut memory = bounded(3 * 16, StoredPrecision::Half);
    memory.remember_tensor(&[1, 2, 3, 4, 5, 6], &ones(6));
    assert_eq!((memory.len(), memory.bytes()), (6, 48));
    memory.remember_tensor(&[6], &Tensor::<2>::zeros([1, 4], &Device::default())); // Whoever is in is brought up to date.
    assert_eq!(memory.entries().last(), Some((6, vec![0.0; 4])));
}

#[test]
fn states_outlast_a_stretch_of_training_only_if_they_are_meant_to() {
    for (lasting, left) in [(false, 0), (true, 2)] {
        let mut memory = WarmMemory::new(WarmStart::BySample { capacity: None, precision: StoredPrecision::Half, lasting });
        memory.remember_tensor(&[1, 2], &ones(2));
        memory.end_phases();
        assert_eq!((memory.len(), memory.bytes()), (left, 8 * left));
    }
    let mut memory = WarmMemory::new(WarmStart::PreviousBatch);
    memory.remember_tensor(&[1, 2], &ones(2));
    memory.end_phases();
    assert_eq!(memory.knows(&[1, 2], 4), 0);
}

#[test]
fn states_too_large_for_the_memory_or_not_finite_are_not_stored() {
    let mut memory = bounded(8, StoredPrecision::Single);
    memory.remember_tensor(&[1], &ones(1));
    assert!(memory.is_empty());
    let mut memory = bounded(1 << 10, StoredPrecision::Half);
    memory.remember_tensor(&[1, 2, 3], &Tensor::<2>::from_floats([[f32::NAN], [1e6], [1.0]], &Device::default()));
    assert_eq!(memory.entries().collect::<Vec<_>>(), [(3, vec![1.0])]);
}

#[test]
fn the_previous_batch_is_recalled_by_position_and_only_if_it_fits() {
    let mut memory = WarmMemory::new(WarmStart::PreviousBatch);
    let zeros = |rows| ones(rows).zeros_like();
    assert_eq!(host(memory.recall_tensor(&[7, 8], zeros(2))), host(zeros(2)));
    memory.remember_tensor(&[1, 2], &ones(2));
    assert_eq!(host(memory.recall_tensor(&[7, 8], zeros(2))), host(ones(2)));
    assert_eq!(host(memory.recall_tensor(&[7, 8, 9], zeros(3))), host(zeros(3)));
    let wider = Tensor::<2>::zeros([2, 5], &Device::default());
    assert_eq!(host(memory.recall_tensor(&[1, 2], wider.clone())), host(wider));
}

#[test]
fn a_memory_that_is_off_remembers_nothing() {
    let mut memory = WarmMemory::new(WarmStart::Off);
    memory.remember_tensor(&[1], &ones(1));
    assert!(memory.is_empty() && memory.bytes() == 0);
}

#[test]
fn settings_travel_through_a_configuration_file_and_unknown_keys_are_refused() {
    let layer = Equilibrium {
        solver: Solver::Anderson(Anderson { ridge: Ridge::Absolute(1e-4), restart: Some(7), ..Anderson::default() }),
        adjoint: Adjoint::implicit(),
        ..Equilibrium::default()
    };
    let text = serde_json::to_string(&layer).expect("plain data");
    assert_eq!(serde_json::from_str::<Equilibrium>(&text).expect("what was written can be read"), layer);
    let short: Equilibrium = serde_json::from_str(r#"{"solver": {"broyden": {}}, "adjoint": "jacobian-free"}"#).expect("valid");
    assert_eq!(short.solver, Solver::broyden(20));
    assert!(serde_json::from_str::<Equilibrium>(r#"{"slover": {}}"#).is_err());
}

#[test]
fn settings_that_mean_nothing_are_refused_by_name() {
    let refused = |layer: Equilibrium| layer.validate().expect_err("means nothing").to_string();
    let with_solver = |solver| Equilibrium { solver, ..Equilibrium::default() };
    let expected = "`solver.anderson.memory` is `0`, but must be a whole number from 1 to 200";
    assert_eq!(refused(with_solver(Solver::anderson(0))), expected);
    // More than there is memory for.
    for solver in [Solver::anderson(1_000_000_000), Solver::broyden(usize::MAX)] {
        assert!(refused(with_solver(solver)).contains(".memory"));
    }
    let endless = Stop::relative(1e-3, usize::MAX);
    assert!(refused(Equilibrium { stop: endless, ..Equilibrium::default() }).contains("stop.max_steps"));
    assert!(refused(with_solver(Solver::FixedPoint { damping: 1.0 })).contains("solver.fixed-point.damping"));
    assert!(refused(Equilibrium { stop: Stop::relative(-1.0, 5), ..Equilibrium::default() }).contains("stop.relative"));
    assert!(refused(Equilibrium { stop: Stop::relative(f64::NAN, 5), ..Equilibrium::default() }).contains("NaN"));
    let phantom = Adjoint::Phantom { steps: 0, damping: 0.0 };
    assert!(refused(Equilibrium { adjoint: phantom, ..Equilibrium::default() }).contains("adjoint.phantom.steps"));
    assert!(Equilibrium::default().validate().is_ok());
}
