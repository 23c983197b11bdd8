//! Every solver on every map of a grid.
mod common;

use burn::tensor::{DType, Tensor};
use common::{distance, host, tensor, uniform};
use fedeq_equilibrium::{Anderson, Outcome, Ridge, Solution, SolveOptions, Solver, Stop, solve_tensors};

const ROWS: usize = 3;
const SIZE: usize = 6;

fn solvers() -> Vec<(&'static str, Solver)> {
    vec![
        ("plain", Solver::fixed_point()),
        ("damped", Solver::FixedPoint { damping: 0.3 }),
        ("anderson", Solver::anderson(5)),
        ("anderson, short memory", Solver::anderson(1)),
        ("anderson, underrelaxed", Solver::Anderson(Anderson { mixing: 0.5, ..Anderson::default() })),
        ("anderson, restarted", Solver::Anderson(Anderson { restart: Some(8), ..Anderson::default() })),
        ("anderson, as in the authors' code", authors_anderson()),
        ("broyden", Solver::broyden(20)),
        ("broyden, short memory", Solver::broyden(8)),
    ]
}

fn authors_anderson() -> Solver {
    Solver::Anderson(Anderson { memory: 4, ridge: Ridge::Absolute(1e-4), delay: 5, ..Anderson::default() })
}

fn run(map: impl FnMut(Tensor<2>) -> Tensor<2>, solver: &Solver, steps: usize, dtype: DType) -> Solution<Tensor<2>> {
    let z0 = tensor(uniform(ROWS * SIZE, 1), [ROWS, SIZE], dtype);
    let tolerance = if dtype == DType::F64 { 1e-9 } else { 1e-5 };
    solve_tensors(map, z0, solver, &Stop::relative(tolerance, steps), &SolveOptions::default())
}

/// `z -> z A + b` and its fixed point; `A` is symmetric with the given eigenvalues.
fn linear(eigenvalues: [f64; SIZE], dtype: DType) -> (impl Fn(Tensor<2>) -> Tensor<2>, Vec<f64>) {
    let basis = orthogonal_basis();
    let a = matrix(|i, j| (0..SIZE).map(|k| basis[k][i] * eigenvalues[k] * basis[k][j]).sum());
    let inverse = matrix(|i, j| (0..SIZE).map(|k| basis[k][i] / (1.0 - eigenvalues[k]) * basis[k][j]).sum());
    let b = uniform(ROWS * SIZE, 2);
    let fixed = host(tensor(b.clone(), [ROWS, SIZE], DType::F64).matmul(tensor(inverse, [SIZE, SIZE], DType::F64)));
    let (a, b) = (tensor(a, [SIZE, SIZE], dtype), tensor(b, [ROWS, SIZE], dtype));
    (move |z: Tensor<2>| z.matmul(a.clone()) + b.clone(), fixed)
}

fn matrix(entry: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..SIZE * SIZE).map(|at| entry(at / SIZE, at % SIZE)).collect()
}

/// Gram-Schmidt on random vectors.
fn orthogonal_basis() -> Vec<Vec<f64>> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for seed in 0..SIZE as u64 {
        let mut vector = uniform(SIZE, 100 + seed);
        for other in &basis {
            let dot: f64 = vector.iter().zip(other).map(|(a, b)| a * b).sum();
            vector.iter_mut().zip(other).for_each(|(value, other)| *value -= dot * other);
        }
        let length = common::norm(&vector);
        basis.push(vector.into_iter().map(|value| value / length).collect());
    }
    basis
}

#[test]
fn every_solver_finds_the_fixed_point_of_a_contractive_linear_map() {
    for dtype in [DType::F32, DType::F64] {
        for (name, solver) in solvers() {
            let (map, fixed) = linear([0.8, 0.5, 0.1, -0.3, -0.6, -0.8], dtype);
            let solution = run(map, &solver, 300, dtype);
            assert!(solution.report.all_converged(), "{name}: {:?}", solution.report);
            let tolerance = if dtype == DType::F64 { 1e-7 } else { 1e-3 };
            assert!(distance(&host(solution.z), &fixed) < tolerance, "{name}");
        }
    }
}

#[test]
fn every_solver_finds_the_fixed_point_of_a_nonlinear_map() {
    for (name, solver) in solvers() {
        let cell = common::Tanh::random(SIZE, 1.5, 3, DType::F64);
        let x = tensor(uniform(ROWS * SIZE, 4), [ROWS, SIZE], DType::F64);
        let map = |z: Tensor<2>| (z.matmul(cell.weight.val()) + x.clone()).tanh();
        let solution = run(map, &solver, 300, DType::F64);
        assert!(solution.report.all_converged(), "{name}: {:?}", solution.report);
        let z = solution.z;
        assert!(distance(&host(map(z.clone())), &host(z)) < 1e-8, "{name}");
    }
}

#[test]
fn accelerated_solvers_finish_a_stiff_map_where_the_plain_iteration_does_not() {
    let stiff = || linear([0.999, 0.99, 0.5, 0.0, -0.5, -0.9], DType::F64);
    let (map, _) = stiff();
    assert_eq!(run(map, &Solver::fixed_point(), 100, DType::F64).report.count(Outcome::StepLimit), ROWS);
    for solver in [Solver::anderson(6), Solver::broyden(20)] {
        let (map, fixed) = stiff();
        let solution = run(map, &solver, 100, DType::F64);
        assert!(solution.report.all_converged(), "{solver:?}: {:?}", solution.report);
        // An error is at most the residual over 1 - 0.999, so a relative residual of 1e-9 allows 1e-6.
        assert!(common::relative_error(&host(solution.z), &fixed) < 1e-6, "{solver:?}");
    }
}

#[test]
fn accelerated_solvers_converge_on_a_linear_map_that_does_not_contract() {
    for solver in [Solver::anderson(6), Solver::broyden(20)] {
        let (map, fixed) = linear([-3.0, 2.0, 0.5, 0.0, -0.5, -0.9], DType::F64);
        let solution = run(map, &solver, 60, DType::F64);
        assert!(solution.report.all_converged(), "{solver:?}: {:?}", solution.report);
        assert!(distance(&host(solution.z), &fixed) < 1e-6, "{solver:?}");
    }
}

#[test]
fn a_badly_scaled_map_converges_in_the_sense_of_the_tolerance() {
    let scales = tensor(vec![1e-6, 1e-3, 1.0, 1e2, 1e4, 1e6], [1, SIZE], DType::F64);
    for (name, solver) in solvers() {
        let cell = common::Tanh::random(SIZE, 1.5, 3, DType::F64);
        let map = |z: Tensor<2>| {
            let unscaled = z / scales.clone();
            (unscaled.matmul(cell.weight.val()) + 0.5).tanh() * scales.clone()
        };
        let solution = run(map, &solver, 300, DType::F64);
        assert!(solution.report.all_converged(), "{name}: {:?}", solution.report);
        let z = solution.z;
        assert!(common::relative_error(&host(map(z.clone())), &host(z)) < 1e-8, "{name}");
    }
}

#[test]
fn a_map_without_a_fixed_point_gives_the_best_iterate_and_says_so() {
    for (name, solver) in solvers() {
        let mut smallest = [f64::INFINITY; ROWS];
        let grow = |z: Tensor<2>| z.clone().square() + 1.0;
        let watched = |z: Tensor<2>| {
            let image = grow(z.clone());
            let residual = host(image.clone() - z);
            for (row, smallest) in smallest.iter_mut().enumerate() {
                let size = common::norm(&residual[row * SIZE..(row + 1) * SIZE]);
                *smallest = if size < *smallest { size } else { *smallest };
            }
            image
        };
        let solution = run(watched, &solver, 40, DType::F32);
        assert_eq!(solution.report.count(Outcome::Converged), 0, "{name}");
        let z = host(solution.z.clone());
        assert!(z.iter().all(|value| value.is_finite()), "{name}");
        let residual = host(grow(solution.z.clone()) - solution.z);
        for row in 0..ROWS {
            let size = common::norm(&residual[row * SIZE..(row + 1) * SIZE]);
            assert!((size - smallest[row]).abs() <= 1e-5 * size, "{name}: the best iterate of row {row} is returned");
        }
    }
}

#[test]
fn a_sample_that_produces_nan_does_not_disturb_the_others() {
    for (name, solver) in solvers() {
        // Row 0 takes the root of a negative number as soon as it has moved; the others converge.
        let shift = tensor([vec![-0.9; SIZE], vec![0.5; 2 * SIZE]].concat(), [ROWS, SIZE], DType::F64);
        let map = |z: Tensor<2>| (z.mul_scalar(0.5) + shift.clone()).sqrt();
        let z0 = tensor(vec![2.0; ROWS * SIZE], [ROWS, SIZE], DType::F64);
        let solution = solve_tensors(map, z0, &solver, &Stop::relative(1e-9, 200), &SolveOptions::default());
        let outcome = &solution.report.outcome;
        assert_eq!(outcome[0], Outcome::NotFinite, "{name}");
        assert_eq!(outcome[1..], [Outcome::Converged; 2], "{name}");
        let z = host(solution.z);
        assert!(z.iter().all(|value| value.is_finite()), "{name}");
        let expected = (0.25 + (0.0625f64 + 0.5).sqrt()).abs(); // z^2 = z / 2 + 1 / 2
        assert!(z[SIZE..].iter().all(|value| (value - expected).abs() < 1e-7), "{name}");
    }
}

#[test]
fn a_start_that_is_not_finite_is_returned_as_it_came() {
    for (name, solver) in solvers() {
        let z0 = tensor(vec![f64::NAN; SIZE], [1, SIZE], DType::F64);
        let solution = solve_tensors(|z: Tensor<2>| z.cos(), z0, &solver, &Stop::default(), &SolveOptions::default());
        assert_eq!(solution.report.outcome, [Outcome::NotFinite], "{name}");
        assert_eq!(solution.report.steps, [1], "{name}");
    }
}

#[test]
fn an_empty_batch_is_solved_without_asking_the_map() {
    let map = |_: Tensor<2>| -> Tensor<2> { panic!("no sample to evaluate") };
    let z0 = tensor(Vec::new(), [0, SIZE], DType::F64);
    let solution = solve_tensors(map, z0, &Solver::default(), &Stop::default(), &SolveOptions::default());
    assert!(solution.report.is_empty());
}

#[test]
fn anderson_with_memory_m_solves_an_m_dimensional_linear_map_in_m_plus_one_steps() {
    let (map, fixed) = linear([0.95, 0.7, 0.3, -0.2, -0.6, -1.5], DType::F64);
    let exact = Anderson { memory: SIZE, ridge: Ridge::Relative(0.0), ..Anderson::default() };
    let z0 = tensor(uniform(ROWS * SIZE, 1), [ROWS, SIZE], DType::F64);
    // m + 1 residuals determine the solution; the next evaluation sees it.
    let solution = solve_tensors(map, z0, &Solver::Anderson(exact), &Stop::relative(0.0, SIZE + 2), &SolveOptions::default());
    assert!(distance(&host(solution.z), &fixed) < 1e-9, "{:?}", solution.report);
}

#[test]
fn a_singular_system_falls_back_to_a_plain_step() {
    // From the second step on all residuals are parallel, so the Gram matrix has rank one; without a ridge it is singular.
    let exact = Solver::Anderson(Anderson { ridge: Ridge::Relative(0.0), ..Anderson::default() });
    let halving = |z: Tensor<2>| z.mul_scalar(0.5);
    let solution = run(halving, &exact, 60, DType::F64);
    assert!(host(solution.z).iter().all(|value| value.is_finite()));
    let constant = |z: Tensor<2>| z.zeros_like() + 1.0;
    let solution = run(constant, &exact, 60, DType::F64);
    assert!(solution.report.all_converged());
}

#[test]
fn each_sample_stops_on_its_own_and_solving_together_changes_nothing() {
    let rates = [0.01, 0.5, 0.9, 0.99];
    let stop = Stop::relative(1e-8, 4000);
    for (name, solver) in solvers() {
        let map_of = |rates: &[f64]| {
            let rates = tensor(rates.to_vec(), [rates.len(), 1], DType::F64);
            move |z: Tensor<2>| (z * rates.clone() + 1.0).sin() + 1.0
        };
        let z0 = |rows| tensor(vec![0.3; rows * SIZE], [rows, SIZE], DType::F64);
        let together = solve_tensors(map_of(&rates), z0(rates.len()), &solver, &stop, &SolveOptions::default());
        for (row, rate) in rates.iter().enumerate() {
            let alone = solve_tensors(map_of(&[*rate]), z0(1), &solver, &stop, &SolveOptions::default());
            assert_eq!(alone.report.steps[0], together.report.steps[row], "{name}");
            assert_eq!(host(alone.z), host(together.z.clone())[row * SIZE..(row + 1) * SIZE], "{name}");
        }
    }
}

#[test]
fn states_of_any_shape_are_solved() {
    let z0 = tensor(vec![0.0; 2 * 3 * 4 * 5], [2, 3, 4, 5], DType::F32);
    let map = |z: Tensor<4>| {
        assert_eq!(z.dims()[1..], [3, 4, 5]);
        z.cos()
    };
    let solution = solve_tensors(map, z0, &Solver::default(), &Stop::relative(1e-6, 60), &SolveOptions::default());
    assert_eq!(solution.z.dims(), [2, 3, 4, 5]);
    assert!(host(solution.z).iter().all(|value| (value - 0.739_085).abs() < 1e-4));
}

#[test]
fn a_trace_holds_one_residual_a_step_and_ends_at_the_reported_one() {
    let (map, _) = linear([0.8, 0.5, 0.1, -0.3, -0.6, -0.8], DType::F64);
    let options = SolveOptions { trace: true, ..SolveOptions::default() };
    let z0 = tensor(uniform(ROWS * SIZE, 1), [ROWS, SIZE], DType::F64);
    let report = solve_tensors(map, z0, &Solver::fixed_point(), &Stop::relative(1e-6, 200), &options).report;
    let trace = report.trace.expect("asked for");
    for (row, residuals) in trace.iter().enumerate() {
        assert_eq!(residuals.len(), report.steps[row]);
        assert_eq!(residuals.last(), Some(&report.residual[row]));
    }
}
