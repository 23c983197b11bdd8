//! Solves on tensors of any shape: rows in this process's memory where that is where they are, rows on a device otherwise.
use burn::tensor::{Device, Tensor};

use super::host::row_indices;
use super::map::TensorMap;
use super::states::{DeviceStates, TensorStates, is_on_host};
use crate::adjoint::Adjoint;
use crate::diagnose::spectral_radius_of;
use crate::map::Map;
use crate::solution::{Solution, SolveReport};
use crate::solve::{SolveOptions, SolveWorkspace, solve};
use crate::solver::Solver;
use crate::states::HostStates;
use crate::stop::Stop;

/// Finds `z = f(z)` for every sample of a batch of states of any shape, from `z0`: [`solve`](crate::solve()) on tensors.
///
/// Run it on tensors without autodiff: a graph recorded here would grow with every step.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use fedeq_equilibrium::{SolveOptions, Solver, Stop, solve_tensors};
///
/// let z0 = Tensor::<2>::zeros([3, 4], &Device::default());
/// let cosine = |z: Tensor<2>| z.cos();
/// let solution = solve_tensors(cosine, z0, &Solver::anderson(3), &Stop::relative(1e-6, 50), &SolveOptions::default());
/// assert!(solution.report.all_converged());
/// assert!((solution.z.mean().into_scalar::<f32>() - 0.739_085).abs() < 1e-5);
/// ```
///
/// # Panics
///
/// If the map changes the shape of the state.
pub fn solve_tensors<const D: usize>(
    mut map: impl TensorMap<D>,
    z0: Tensor<D>,
    solver: &Solver,
    stop: &Stop,
    options: &SolveOptions,
) -> Solution<Tensor<D>> {
    if is_on_host(&z0) {
        solve_as::<HostStates, D>(&mut map, z0, solver, stop, options)
    } else {
        solve_as::<DeviceStates, D>(&mut map, z0, solver, stop, options)
    }
}

fn solve_as<S: TensorStates, const D: usize>(
    map: &mut dyn TensorMap<D>,
    z0: Tensor<D>,
    solver: &Solver,
    stop: &Stop,
    options: &SolveOptions,
) -> Solution<Tensor<D>> {
    let (shape, device) = (z0.dims(), z0.device());
    if shape.contains(&0) {
        let report = SolveReport { trace: options.trace.then(Vec::new), ..SolveReport::default() };
        return Solution { image: z0.clone(), z: z0, report };
    }
    let mut flat = Flat::new(map, &z0);
    let Solution { z, image, report } = solve(&mut flat, S::from_tensor(rows_of(z0)), solver, stop, options);
    let shaped = |states: S| states.into_tensor(&device).reshape(shape);
    Solution { z: shaped(z), image: shaped(image), report }
}

/// What an adjoint makes of a gradient that arrives at an equilibrium, see [`Adjoint::correct`].
pub(super) fn correct<const D: usize>(
    adjoint: &Adjoint,
    transposed: &mut dyn TensorMap<D>,
    v: Tensor<D>,
) -> (Tensor<D>, Option<SolveReport>) {
    if is_on_host(&v) {
        correct_as::<HostStates, D>(adjoint, transposed, v)
    } else {
        correct_as::<DeviceStates, D>(adjoint, transposed, v)
    }
}

fn correct_as<S: TensorStates, const D: usize>(
    adjoint: &Adjoint,
    transposed: &mut dyn TensorMap<D>,
    v: Tensor<D>,
) -> (Tensor<D>, Option<SolveReport>) {
    let (shape, device) = (v.dims(), v.device());
    let mut flat = Flat::new(transposed, &v);
    let mut rows = S::from_tensor(rows_of(v));
    let report = adjoint.correct(&mut flat, &mut rows, &mut SolveWorkspace::default());
    (rows.into_tensor(&device).reshape(shape), report)
}

/// See [`spectral_radius_of`].
pub(super) fn spectral_radius_of_tensors<const D: usize>(map: &mut dyn TensorMap<D>, probe: Tensor<D>, steps: usize) -> Vec<f64> {
    let mut flat = Flat::new(map, &probe);
    if is_on_host(&probe) {
        spectral_radius_of(&mut flat, HostStates::from_tensor(rows_of(probe)), steps)
    } else {
        spectral_radius_of(&mut flat, DeviceStates::from_tensor(rows_of(probe)), steps)
    }
}

/// A state of any shape as a row.
fn rows_of<const D: usize>(states: Tensor<D>) -> Tensor<2> {
    let shape = states.dims();
    states.reshape([shape[0], shape[1..].iter().product()])
}

/// A map on tensors of any shape, acting on rows.
struct Flat<'a, const D: usize> {
    map: &'a mut dyn TensorMap<D>,
    shape: [usize; D],
    device: Device,
}

impl<'a, const D: usize> Flat<'a, D> {
    fn new(map: &'a mut dyn TensorMap<D>, like: &Tensor<D>) -> Self {
        Self { map, shape: like.dims(), device: like.device() }
    }
}

impl<S: TensorStates, const D: usize> Map<S> for Flat<'_, D> {
    fn apply(&mut self, z: &S, out: &mut S) {
        self.shape[0] = z.rows();
        let image = self.map.apply(z.to_tensor(&self.device).reshape(self.shape));
        assert_eq!(image.dims(), self.shape, "the map must keep the shape of the state");
        *out = S::from_tensor(rows_of(image));
    }

    fn keep(&mut self, rows: &[usize]) -> bool {
        self.map.keep(&row_indices(rows, &self.device))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use proptest::prelude::*;

    use super::*;
    use crate::linear::LinearSolver;
    use crate::solver::Anderson;

    const SIZE: usize = 6;

    fn tensor(rows: usize, seed: usize, scale: f32) -> Tensor<2> {
        let number = |at: usize| (((at + 1) * 7919 + (seed + 1) * 104_729) % 2003) as f32 / 1001.5 - 1.0;
        let values: Vec<f32> = (0..rows * SIZE).map(|at| scale * number(at)).collect();
        Tensor::from_data(TensorData::new(values, [rows, SIZE]), &Device::default())
    }

    /// `tanh(z W + x)`, able to leave samples out.
    struct Recurrent {
        weight: Tensor<2>,
        x: Tensor<2>,
    }

    impl Recurrent {
        fn new(rows: usize, seed: usize) -> Self {
            Self { weight: tensor(SIZE, seed, 0.3), x: tensor(rows, seed + 1, 2.0) }
        }

        fn transposed(&self, z: Tensor<2>) -> impl FnMut(Tensor<2>) -> Tensor<2> {
            let slope = (z.matmul(self.weight.clone()) + self.x.clone()).tanh().square().neg() + 1.0;
            let weight = self.weight.clone().transpose();
            move |u| (u * slope.clone()).matmul(weight.clone())
        }
    }

    impl TensorMap<2> for Recurrent {
        fn apply(&mut self, z: Tensor<2>) -> Tensor<2> {
            (z.matmul(self.weight.clone()) + self.x.clone()).tanh()
        }

        fn keep(&mut self, rows: &Tensor<1, burn::tensor::Int>) -> bool {
            self.x = self.x.clone().select(0, rows.clone());
            true
        }
    }

    fn host(tensor: Tensor<2>) -> Vec<f32> {
        tensor.try_into_vec_as().expect("floats")
    }

    fn close(a: Tensor<2>, b: Tensor<2>) -> bool {
        host(a).iter().zip(host(b)).all(|(a, b)| (a - b).abs() < 2e-4)
    }

    fn solvers(memory: usize) -> [Solver; 5] {
        [
            Solver::fixed_point(),
            Solver::FixedPoint { damping: 0.3 },
            Solver::anderson(memory),
            Solver::Anderson(Anderson { memory, mixing: 0.5, restart: Some(6), ..Anderson::default() }),
            Solver::broyden(memory),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn solves_in_memory_and_on_a_device_agree(rows in 1usize..7, seed in 0usize..1000, memory in 1usize..8) {
            let (stop, options) = (Stop::relative(1e-5, 200), SolveOptions { shrink_below: 0.9, trace: false });
            for solver in solvers(memory) {
                let z0 = tensor(rows, seed + 2, 1.0);
                let in_memory = solve_as::<HostStates, 2>(&mut Recurrent::new(rows, seed), z0.clone(), &solver, &stop, &options);
                let on_device = solve_as::<DeviceStates, 2>(&mut Recurrent::new(rows, seed), z0, &solver, &stop, &options);
                prop_assert!(in_memory.report.all_converged(), "{:?}: {:?}", solver, in_memory.report);
                prop_assert_eq!(&in_memory.report.outcome, &on_device.report.outcome);
                prop_assert!(close(in_memory.z, on_device.z), "{:?}", solver);
                prop_assert!(close(in_memory.image, on_device.image), "{:?}", solver);
            }
        }

        #[test]
        fn adjoints_in_memory_and_on_a_device_agree(rows in 1usize..7, seed in 0usize..1000, memory in 2usize..8) {
            let linear = [
                LinearSolver::Gmres { memory },
                LinearSolver::Anderson { memory },
                LinearSolver::Broyden { memory },
                LinearSolver::Neumann,
            ];
            let (cell, z, v) = (Recurrent::new(rows, seed), tensor(rows, seed + 2, 1.0), tensor(rows, seed + 3, 1.0));
            for solver in linear {
                let adjoint = Adjoint::Implicit { solver, stop: Stop::relative(1e-5, 200) };
                let (in_memory, report) = correct_as::<HostStates, 2>(&adjoint, &mut cell.transposed(z.clone()), v.clone());
                let (on_device, other) = correct_as::<DeviceStates, 2>(&adjoint, &mut cell.transposed(z.clone()), v.clone());
                let (report, other) = (report.expect("a system"), other.expect("a system"));
                prop_assert!(report.all_converged() && report.outcome == other.outcome, "{:?}: {:?}", adjoint, report);
                prop_assert!(close(in_memory, on_device), "{:?}", adjoint);
            }
        }

        #[test]
        fn spectral_radii_in_memory_and_on_a_device_agree(rows in 1usize..7, seed in 0usize..1000) {
            let (cell, z, probe) = (Recurrent::new(rows, seed), tensor(rows, seed + 2, 1.0), tensor(rows, seed + 3, 1.0));
            let mut map = cell.transposed(z);
            let mut flat = Flat::new(&mut map, &probe);
            let in_memory = spectral_radius_of(&mut flat, HostStates::from_tensor(probe.clone()), 20);
            let on_device = spectral_radius_of(&mut flat, DeviceStates::from_tensor(probe), 20);
            prop_assert!(in_memory.iter().zip(&on_device).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + a)));
        }
    }
}
