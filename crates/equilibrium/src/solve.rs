//! The one loop: every solver, every map.
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::host::{norm_column, row_indices, row_mask, to_host};
use crate::map::Map;
use crate::rows::Rows;
use crate::solution::{Outcome, Report, Solution};
use crate::solver::{Evaluation, Iteration, Solver};
use crate::stop::Stop;
use crate::vectors::{HostRows, difference_with_norms};

/// What a solve does besides solving.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SolveOptions {
    /// Finished samples are left out of the work once no more than this share of the rows is still being solved; 0 never does.
    /// Leaving them out copies the solver's memory once, so it pays where the map costs more than that: nearly always on a CPU.
    /// Devices that compile or tune for each new shape may prefer 0.
    pub shrink_below: f64,
    /// Record the residual of every sample after every step.
    pub trace: bool,
}

impl Default for SolveOptions {
    fn default() -> Self {
        Self { shrink_below: 0.75, trace: false }
    }
}

/// Finds `z = f(z)` for every sample of a batch of states of any shape, from `z0`.
///
/// Each sample stops on its own; finished samples are frozen. The result holds, sample by sample, the best iterate seen.
/// Run it on tensors without autodiff: a graph recorded here would grow with every step.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use fedeq_equilibrium::{SolveOptions, Solver, Stop, solve};
///
/// let z0 = Tensor::<2>::zeros([3, 4], &Device::default());
/// let cosine = |z: Tensor<2>| z.cos();
/// let solution = solve(cosine, z0, &Solver::anderson(3), &Stop::relative(1e-6, 50), &SolveOptions::default());
/// assert!(solution.report.all_converged());
/// assert!((solution.z.mean().into_scalar::<f32>() - 0.739_085).abs() < 1e-5);
/// ```
///
/// # Panics
///
/// If the map changes the shape of the state.
pub fn solve<const D: usize>(
    mut map: impl Map<D>,
    z0: Tensor<D>,
    solver: &Solver,
    stop: &Stop,
    options: &SolveOptions,
) -> Solution<D> {
    let shape = z0.dims();
    if shape.contains(&0) {
        return Solution {
            image: z0.clone(),
            z: z0,
            report: Report { trace: options.trace.then(Vec::new), ..Report::default() },
        };
    }
    let mut flat = Flat { map: &mut map, shape };
    let z0 = z0.reshape([shape[0], shape[1..].iter().product()]);
    let mut run = Run::new(z0.clone(), stop, options);
    let mut iteration = solver.start(&z0);
    let mut z = z0;
    loop {
        let image = flat.apply(z.clone());
        let (residual, norms) = residual_with_norms(&image, &z);
        if run.judge(&z, &image, norms) {
            break;
        }
        z = iteration.next(&Evaluation { z: &z, image: &image, residual: &residual });
        z = run.freeze(z, &mut flat, iteration.as_mut());
    }
    let (z, image, report) = run.finish();
    Solution { z: z.reshape(shape), image: image.reshape(shape), report }
}

/// A map on states of any shape, acting on flat rows.
struct Flat<'a, const D: usize, M: Map<D>> {
    map: &'a mut M,
    shape: [usize; D],
}

impl<const D: usize, M: Map<D>> Map<2> for Flat<'_, D, M> {
    fn apply(&mut self, z: Tensor<2>) -> Tensor<2> {
        let flat = z.dims();
        self.shape[0] = flat[0];
        let image = self.map.apply(z.reshape(self.shape));
        assert_eq!(image.dims(), self.shape, "the map must keep the shape of the state");
        image.reshape(flat)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>) -> bool {
        self.map.keep(rows)
    }
}

/// The state of a solve: who is still at work, and the best of everybody so far.
struct Run<'a> {
    stop: &'a Stop,
    options: &'a SolveOptions,
    /// Original index of each present row.
    rows: Vec<usize>,
    /// Of the present rows.
    best: Best,
    /// Those that left: original indices and their best.
    gone: Vec<(Vec<usize>, Best)>,
    /// Of all samples, by original index.
    samples: Vec<Sample>,
    evaluated_rows: usize,
    can_shrink: bool,
}

/// The best iterates seen and their images, `[rows, n]` each.
#[derive(Clone)]
struct Best {
    z: Tensor<2>,
    image: Tensor<2>,
}

#[derive(Clone)]
struct Sample {
    steps: usize,
    /// `||f(z) - z||` at the best iterate.
    smallest: f64,
    /// The same, relative to `||f(z)||`.
    relative: f64,
    outcome: Option<Outcome>,
    trace: Vec<f64>,
}

impl<'a> Run<'a> {
    fn new(z0: Tensor<2>, stop: &'a Stop, options: &'a SolveOptions) -> Self {
        let count = z0.dims()[0];
        let fresh = Sample { steps: 0, smallest: f64::INFINITY, relative: f64::INFINITY, outcome: None, trace: Vec::new() };
        Self {
            stop,
            options,
            rows: (0..count).collect(),
            best: Best { z: z0.clone(), image: z0 },
            gone: Vec::new(),
            samples: vec![fresh; count],
            evaluated_rows: 0,
            can_shrink: options.shrink_below > 0.0,
        }
    }

    /// Takes note of one evaluation; says whether everybody is finished.
    fn judge(&mut self, z: &Tensor<2>, image: &Tensor<2>, norms: Vec<(f64, f64)>) -> bool {
        self.evaluated_rows += self.rows.len();
        let mut improved = Vec::with_capacity(self.rows.len());
        for (&row, (residual, scale)) in self.rows.iter().zip(norms) {
            improved.push(self.samples[row].judge(residual, scale, self.stop, self.options.trace));
        }
        self.best.update(&improved, z, image);
        self.samples.iter().all(|sample| sample.outcome.is_some())
    }

    /// Holds finished samples at their best, or leaves them out of the work if that pays.
    fn freeze(&mut self, z: Tensor<2>, map: &mut impl Map<2>, iteration: &mut dyn Iteration) -> Tensor<2> {
        let done: Vec<bool> = self.rows.iter().map(|&row| self.samples[row].outcome.is_some()).collect();
        let alive: Vec<usize> = (0..done.len()).filter(|&row| !done[row]).collect();
        if alive.len() == done.len() {
            return z;
        }
        let few = alive.len() as f64 <= self.options.shrink_below * done.len() as f64;
        if few && self.can_shrink {
            let indices = row_indices(&alive, &z);
            self.can_shrink = map.keep(&indices);
            if self.can_shrink {
                iteration.keep(&indices, &alive);
                return self.shrink(z, &done, &alive, &indices);
            }
        }
        let mask = row_mask(&done, &z);
        z.mask_where(mask, self.best.z.clone())
    }

    fn shrink(&mut self, z: Tensor<2>, done: &[bool], alive: &[usize], indices: &Tensor<1, Int>) -> Tensor<2> {
        let leaving: Vec<usize> = (0..done.len()).filter(|&row| done[row]).collect();
        let left = self.best.pick(&row_indices(&leaving, &z));
        self.gone.push((leaving.iter().map(|&row| self.rows[row]).collect(), left));
        self.best = self.best.pick(indices);
        self.rows = alive.iter().map(|&row| self.rows[row]).collect();
        z.select(0, indices.clone())
    }

    /// Puts everybody back in the original order.
    fn finish(mut self) -> (Tensor<2>, Tensor<2>, Report) {
        let best = if self.gone.is_empty() {
            self.best
        } else {
            self.gone.push((self.rows, self.best));
            in_original_order(self.gone)
        };
        let outcome = self.samples.iter().map(|sample| sample.outcome.expect("everybody is finished")).collect();
        let report = Report {
            steps: self.samples.iter().map(|sample| sample.steps).collect(),
            residual: self.samples.iter().map(|sample| sample.relative).collect(),
            outcome,
            evaluated_rows: self.evaluated_rows,
            trace: self.options.trace.then(|| self.samples.into_iter().map(|sample| sample.trace).collect()),
        };
        (best.z, best.image, report)
    }
}

impl Sample {
    /// One more evaluation with the given residual norm; says whether it is the best so far.
    fn judge(&mut self, residual: f64, scale: f64, stop: &Stop, trace: bool) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        self.steps += 1;
        let relative = if residual == 0.0 { 0.0 } else { residual / scale };
        if trace {
            self.trace.push(relative);
        }
        if !(residual.is_finite() && scale.is_finite()) {
            self.outcome = Some(Outcome::NotFinite);
            return false;
        }
        let improved = residual < self.smallest;
        if improved {
            (self.smallest, self.relative) = (residual, relative);
        }
        if stop.is_met(residual, scale) {
            self.outcome = Some(Outcome::Converged);
        } else if self.steps >= stop.max_steps {
            self.outcome = Some(Outcome::StepLimit);
        }
        improved
    }
}

impl Best {
    fn update(&mut self, improved: &[bool], z: &Tensor<2>, image: &Tensor<2>) {
        if improved.iter().all(|&each| each) {
            *self = Self { z: z.clone(), image: image.clone() }; // The usual case costs no copy.
        } else if improved.contains(&true) {
            let mask = row_mask(improved, z);
            self.z.inplace(|best| best.mask_where(mask.clone(), z.clone()));
            self.image.inplace(|best| best.mask_where(mask, image.clone()));
        }
    }

    fn pick(&self, rows: &Tensor<1, Int>) -> Self {
        Self { z: self.z.pick(rows), image: self.image.pick(rows) }
    }
}

fn in_original_order(parts: Vec<(Vec<usize>, Best)>) -> Best {
    let order: Vec<usize> = parts.iter().flat_map(|(rows, _)| rows.iter().copied()).collect();
    let mut position = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &row)| position[row] = at);
    let (z, image) = parts.into_iter().map(|(_, best)| (best.z, best.image)).unzip();
    let all = Best { z: Tensor::cat(z, 0), image: Tensor::cat(image, 0) };
    let position = row_indices(&position, &all.z);
    all.pick(&position)
}

/// `image - z`, and `(||image - z||, ||image||)` of every row on the host.
fn residual_with_norms(image: &Tensor<2>, z: &Tensor<2>) -> (Tensor<2>, Vec<(f64, f64)>) {
    if let (Some(image_rows), Some(z_rows)) = (HostRows::of(image), HostRows::of(z)) {
        let (difference, norms) = difference_with_norms(&image_rows, &z_rows);
        return (Tensor::from_data(TensorData::new(difference, z.dims()), &z.device()), norms);
    }
    let residual = image.clone() - z.clone();
    let norms = to_host(Tensor::cat(vec![norm_column(&residual), norm_column(image)], 1));
    (residual, norms.chunks(2).map(|pair| (pair[0], pair[1])).collect())
}
