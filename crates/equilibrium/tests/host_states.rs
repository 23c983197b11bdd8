//! Solves and adjoints on plain memory, without burn.
mod problems;

use fedeq_equilibrium::{
    Adjoint, Anderson, Equilibrium, HostStates, LinearSolver, Map, Outcome, Ridge, SolveOptions, SolveWorkspace, Solver, Stop,
    WarmMemory, WarmStart, diagnose, solve, solve_into,
};
use problems::{Recurrent, SIZE, distance, solvers, uniform};
use proptest::prelude::*;

const ROWS: usize = 5;

fn stop() -> Stop {
    Stop::relative(1e-6, 400)
}

fn worst_residual(cell: &Recurrent, z: &HostStates) -> f64 {
    let image = cell.image(z);
    (0..z.rows()).map(|row| distance(image.row(row), z.row(row))).fold(0.0, f64::max)
}

#[test]
fn every_solver_finds_the_fixed_point_of_a_nonlinear_map() {
    for (name, solver) in solvers() {
        let cell = Recurrent::random(ROWS, 1.5, 3);
        let solution = solve(&mut cell.clone(), HostStates::zeros(ROWS, SIZE), &solver, &stop(), &SolveOptions::default());
        assert!(solution.report.all_converged(), "{name}: {:?}", solution.report);
        assert!(worst_residual(&cell, &solution.z) < 1e-5, "{name}");
        assert_eq!(solution.image, cell.image(&solution.z), "{name}: the image belongs to the state");
    }
}

#[test]
fn leaving_finished_samples_out_changes_the_work_and_not_the_result() {
    for (name, solver) in solvers() {
        let run = |shrink_below: f64| {
            let mut cell = Recurrent::uneven(ROWS, 2.5, 3);
            let options = SolveOptions { shrink_below, trace: true };
            solve(&mut cell, HostStates::zeros(ROWS, SIZE), &solver, &stop(), &options)
        };
        let (whole, shrinking) = (run(0.0), run(0.9));
        assert!(shrinking.report.evaluated_rows < whole.report.evaluated_rows, "{name}");
        assert_eq!(shrinking.report.steps, whole.report.steps, "{name}");
        assert_eq!(shrinking.report.trace, whole.report.trace, "{name}");
        assert_eq!((shrinking.z, shrinking.image), (whole.z, whole.image), "{name}");
    }
}

#[test]
fn a_workspace_that_has_served_other_solves_changes_nothing() {
    let mut workspace = SolveWorkspace::default();
    for rows in [3, 7, 1, 5] {
        for (name, solver) in solvers() {
            let cell = Recurrent::uneven(rows, 2.5, rows as u64);
            let fresh = solve(&mut cell.clone(), HostStates::zeros(rows, SIZE), &solver, &stop(), &SolveOptions::default());
            let (mut z, mut image) = (HostStates::zeros(rows, SIZE), HostStates::default());
            let options = SolveOptions::default();
            let report = solve_into(&mut cell.clone(), &mut z, &mut image, &solver, &stop(), &options, &mut workspace);
            assert_eq!((report, z, image), (fresh.report, fresh.z, fresh.image), "{name}, {rows} rows");
        }
    }
}

#[test]
fn a_workspace_solves_in_memory_that_it_is_lent_and_gives_all_of_it_back() {
    let rows = 5;
    let cell = Recurrent::uneven(rows, 2.5, 4);
    for (name, solver) in solvers() {
        let layer = Equilibrium { solver, stop: stop(), ..Equilibrium::default() };
        let fresh = layer.solve(&mut cell.clone(), HostStates::zeros(rows, SIZE));
        let (mut workspace, mut lent, mut back) = (SolveWorkspace::default(), 0, Vec::new());
        layer.lend_for_solve(rows * SIZE, &mut workspace, &mut |len| {
            lent += 1;
            vec![f32::NAN; len]
        });
        let (mut z, mut image) = (HostStates::zeros(rows, SIZE), HostStates::zeros(rows, SIZE));
        let report = layer.solve_into(&mut cell.clone(), &mut z, &mut image, &mut workspace);
        assert_eq!((report, z, image), (fresh.report, fresh.z, fresh.image), "{name}");
        workspace.release(|memory| back.push(memory.capacity()));
        assert!(back.len() == lent && back.iter().all(|&size| size >= rows * SIZE), "{name}: {lent} lent, {back:?} back");
    }
}

#[test]
fn a_sample_that_produces_nan_does_not_disturb_the_others() {
    for (name, solver) in solvers() {
        // Row 0 takes the root of a negative number as soon as it has moved; the others converge.
        let mut map = |z: &HostStates, out: &mut HostStates| {
            let width = z.width();
            for (at, (out, z)) in out.values_mut().iter_mut().zip(z.values()).enumerate() {
                *out = (0.5 * z + if at < width { -0.9 } else { 0.5 }).sqrt();
            }
        };
        let z0 = HostStates::new(vec![2.0; 3 * SIZE], 3, SIZE);
        let solution = solve(&mut map, z0, &solver, &stop(), &SolveOptions::default());
        assert_eq!(solution.report.outcome[0], Outcome::NotFinite, "{name}");
        assert_eq!(solution.report.outcome[1..], [Outcome::Converged; 2], "{name}");
        assert!(solution.z.values().iter().all(|value| value.is_finite()), "{name}");
    }
}

#[test]
fn a_start_that_is_not_finite_is_returned_as_it_came() {
    for (name, solver) in solvers() {
        let z0 = HostStates::new(vec![f32::NAN; SIZE], 1, SIZE);
        let solution = solve(&mut Recurrent::random(1, 0.5, 1), z0, &solver, &Stop::default(), &SolveOptions::default());
        assert_eq!((&*solution.report.outcome, &*solution.report.steps), (&[Outcome::NotFinite][..], &[1][..]), "{name}");
        assert!(solution.z.values().iter().all(|value| value.is_nan()), "{name}");
    }
}

#[test]
fn an_empty_batch_is_solved_without_asking_the_map() {
    let mut map = |_: &HostStates, _: &mut HostStates| panic!("no sample to evaluate");
    for z0 in [HostStates::zeros(0, SIZE), HostStates::zeros(3, 0)] {
        let solution = Equilibrium::default().solve(&mut map, z0.clone());
        assert!(solution.report.is_empty() && solution.z == z0 && solution.image == z0);
    }
}

#[test]
#[should_panic(expected = "the map must keep the shape of the state")]
fn a_map_that_changes_the_shape_is_refused() {
    let mut map = |_: &HostStates, out: &mut HostStates| out.resize(1, 1);
    Equilibrium::default().solve(&mut map, HostStates::zeros(2, 3));
}

#[test]
fn every_linear_solver_solves_the_adjoint_system() {
    let mut workspace = SolveWorkspace::default();
    let cell = Recurrent::random(ROWS, 1.5, 3);
    let z = Equilibrium { stop: stop(), ..Equilibrium::default() }.solve(&mut cell.clone(), HostStates::zeros(ROWS, SIZE)).z;
    let v = HostStates::new(uniform(ROWS * SIZE, 9), ROWS, SIZE);
    let solvers = [
        LinearSolver::Gmres { memory: 4 },
        LinearSolver::Gmres { memory: 20 },
        LinearSolver::Anderson { memory: 5 },
        LinearSolver::Broyden { memory: 20 },
        LinearSolver::Neumann,
    ];
    for solver in solvers {
        let adjoint = Adjoint::Implicit { solver: solver.clone(), stop: stop() };
        let mut u = v.clone();
        let report = adjoint.correct(&mut cell.transposed(&z), &mut u, &mut workspace).expect("a system is solved");
        assert!(report.all_converged() && report.len() == ROWS, "{solver:?}: {report:?}");
        // u - J^T u = v
        let mut product = HostStates::zeros(ROWS, SIZE);
        cell.transposed(&z).apply(&u, &mut product);
        let back: Vec<f32> = u.values().iter().zip(product.values()).map(|(u, product)| u - product).collect();
        assert!(distance(&back, v.values()) < 1e-4, "{solver:?}");
    }
}

#[test]
fn only_the_implicit_gradient_solves_a_system() {
    let mut products = |_: &HostStates, _: &mut HostStates| panic!("nothing to solve");
    let v = HostStates::new(vec![1.0, 2.0], 1, 2);
    for (adjoint, steps) in [(Adjoint::JacobianFree, (1, 0.0)), (Adjoint::Phantom { steps: 3, damping: 0.25 }, (3, 0.25))] {
        let mut u = v.clone();
        assert_eq!(adjoint.correct(&mut products, &mut u, &mut SolveWorkspace::default()), None);
        assert_eq!((u, adjoint.differentiated_steps(), adjoint.solves_a_system()), (v.clone(), steps, false));
    }
    assert!(Adjoint::implicit().solves_a_system() && Adjoint::implicit().differentiated_steps() == (1, 0.0));
}

#[test]
fn the_spectral_radius_of_a_triangular_map_is_its_largest_diagonal_entry() {
    let mut triangular = |z: &HostStates, out: &mut HostStates| {
        for row in 0..z.rows() {
            let [a, b, c] = [0, 1, 2].map(|at| z.row(row)[at]);
            out.row_mut(row).copy_from_slice(&[0.9 * a + 0.3 * b - 0.2 * c, -0.5 * b + 0.4 * c, 0.1 * c]);
        }
    };
    for radius in diagnose::spectral_radius_of(&mut triangular, HostStates::new(uniform(6, 7), 2, 3), 100) {
        assert!((radius - 0.9).abs() < 1e-5, "{radius}");
    }
    let mut zero = |_: &HostStates, out: &mut HostStates| out.values_mut().fill(0.0);
    assert_eq!(diagnose::spectral_radius_of(&mut zero, HostStates::new(vec![1.0, 2.0], 1, 2), 10), [0.0]);
}

#[test]
fn a_warm_start_shortens_the_solve() {
    let cell = Recurrent::uneven(ROWS, 2.5, 3);
    let layer = Equilibrium { stop: stop(), ..Equilibrium::default() };
    let cold = layer.solve(&mut cell.clone(), HostStates::zeros(ROWS, SIZE));
    let samples: Vec<u64> = (10..10 + ROWS as u64).collect();
    let mut memory = WarmMemory::new(WarmStart::by_sample());
    memory.remember(&samples, &cold.z);
    let mut start = HostStates::zeros(ROWS, SIZE);
    memory.recall(&samples, &mut start);
    let warm = layer.solve(&mut cell.clone(), start);
    assert!(warm.report.mean_steps() < 0.8 * cold.report.mean_steps());
}

#[test]
fn a_memory_passes_over_batches_that_do_not_fit() {
    let mut memory = WarmMemory::new(WarmStart::by_sample());
    memory.remember(&[1, 2], &HostStates::zeros(3, 4));
    memory.remember(&[1, 2], &HostStates::zeros(2, 0));
    assert!(memory.is_empty());
    memory.remember(&[1, 2], &HostStates::new(vec![1.0; 8], 2, 4));
    let mut other = HostStates::zeros(3, 4);
    memory.recall(&[1, 2], &mut other);
    let mut wider = HostStates::zeros(2, 5);
    memory.recall(&[1, 2], &mut wider);
    assert_eq!((other, wider), (HostStates::zeros(3, 4), HostStates::zeros(2, 5)));
}

#[test]
fn a_refused_setting_can_say_where_it_is_written() {
    let layer = Equilibrium { solver: Solver::anderson(1_000), ..Equilibrium::default() };
    let refusal = layer.validate().expect_err("too much").under("model.equilibrium");
    assert_eq!(
        refusal.to_string(),
        "`model.equilibrium.solver.anderson.memory` is `1000`, but must be a whole number from 1 to 200"
    );
    let stop = Stop::relative(1e-3, 0);
    let adjoint = Adjoint::Implicit { solver: LinearSolver::Neumann, stop };
    assert_eq!(adjoint.validate().expect_err("no steps").name, "adjoint.implicit.stop.max_steps");
}

proptest! {
    #[test]
    fn solving_together_or_alone_gives_the_same_bits(seed in 0u64..1000, rows in 1usize..6, memory in 1usize..12) {
        let settings = Anderson { memory, ridge: Ridge::Relative(1e-6), ..Anderson::default() };
        for solver in [Solver::Anderson(settings), Solver::broyden(memory), Solver::FixedPoint { damping: 0.2 }] {
            let cell = Recurrent::uneven(rows, 2.0, seed);
            let run = |mut cell: Recurrent, rows| {
                solve(&mut cell, HostStates::zeros(rows, SIZE), &solver, &Stop::relative(1e-5, 60), &SolveOptions::default())
            };
            let together = run(cell.clone(), rows);
            for row in 0..rows {
                let alone = run(cell.only(row), 1);
                prop_assert_eq!(alone.z.row(0), together.z.row(row));
                prop_assert_eq!(alone.report.steps[0], together.report.steps[row]);
            }
        }
    }
}
