//! A solve in a workspace that has served one of its size allocates nothing, if the workspace gets the report back. (One test only: the counter belongs to the whole process.)
mod problems;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use fedeq_equilibrium::{HostStates, LinearSolver, SolveOptions, SolveWorkspace, Stop, solve_into};
use problems::{Recurrent, SIZE, solvers, uniform};

static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

/// Passes everything on to the system and counts requests.
// SAFETY: every call is forwarded unchanged to `System`, which upholds the contract; counting touches only an atomic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: usize = 6;
fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.load(Ordering::Relaxed);
    work();
    COUNT.load(Ordering::Relaxed) - before
}

#[test]
fn a_second_solve_allocates_nothing() {
    let cell = Recurrent::uneven(ROWS, 2.5, 3);
    let start = HostStates::new(uniform(ROWS * SIZE, 5), ROWS, SIZE);
    for (name, solver) in solvers() {
        let mut workspace = SolveWorkspace::default();
        let (mut z, mut image) = (start.clone(), HostStates::default());
        let counts: Vec<usize> = [12, 12, 48, 48]
            .map(|steps| {
                z.values_mut().copy_from_slice(start.values());
                // A map that leaves no sample out itself, so that only the solver's memory is counted.
                let mut keeping = Keeping(cell.clone(), (0..ROWS).collect());
                let (stop, options) = (Stop::relative(1e-6, steps), SolveOptions::default());
                allocations(|| {
                    let report = solve_into(&mut keeping, &mut z, &mut image, &solver, &stop, &options, &mut workspace);
                    workspace.reuse(report);
                })
            })
            .to_vec();
        // More steps may fill slots that fewer did not.
        assert!(counts[0] > 0 && counts[1] == 0 && counts[3] == 0, "{name}: {counts:?}");
    }
    let z = HostStates::new(uniform(ROWS * SIZE, 8), ROWS, SIZE);
    let solvers = [
        LinearSolver::Gmres { memory: 3 },
        LinearSolver::Anderson { memory: 5 },
        LinearSolver::Broyden { memory: 5 },
        LinearSolver::Neumann,
    ];
    for solver in solvers {
        let (mut workspace, mut u) = (SolveWorkspace::default(), HostStates::default());
        let mut transposed = cell.transposed(&z);
        let counts: Vec<usize> = [40, 40]
            .map(|steps| {
                allocations(|| {
                    let report = solver.solve(&mut transposed, &start, &mut u, &Stop::relative(1e-6, steps), &mut workspace);
                    workspace.reuse(report);
                })
            })
            .to_vec();
        assert!(counts[0] > 0 && counts[1] == 0, "{solver:?}: {counts:?}");
    }
}

/// Follows which rows are left without copying anything.
struct Keeping(Recurrent, Vec<usize>);

impl fedeq_equilibrium::Map<HostStates> for Keeping {
    fn apply(&mut self, z: &HostStates, out: &mut HostStates) {
        for (at, &row) in self.1.iter().enumerate() {
            let (z, x) = (z.row(at), self.0.input.row(row));
            for (i, out) in out.row_mut(at).iter_mut().enumerate() {
                let sum: f32 = self.0.weight[i * SIZE..(i + 1) * SIZE].iter().zip(z).map(|(w, z)| w * z).sum();
                *out = (sum + x[i]).tanh();
            }
        }
    }

    fn keep(&mut self, rows: &[usize]) -> bool {
        for (to, &from) in rows.iter().enumerate() {
            self.1[to] = self.1[from];
        }
        self.1.truncate(rows.len());
        true
    }
}
