//! GMRES with restarts, one Krylov space a sample, all of them advanced by the same batched products.
use crate::map::Map;
use crate::solution::{Outcome, SolveReport};
use crate::solve::borrow;
use crate::states::{HostStates, PerSlot, States, Window};
use crate::stop::Stop;

/// The memory of a solve, kept for the next one.
pub(crate) struct Gmres<S: States> {
    /// An orthonormal basis a sample.
    basis: S::Window,
    newest: S,
    image: S,
    columns: usize,
    memory: usize,
    samples: Vec<Sample>,
    /// At least as many as samples.
    spaces: Vec<Space>,
    first: PerSlot,
    second: PerSlot,
    norms: Vec<f64>,
    inverse: Vec<f64>,
    column: Vec<f64>,
}

impl<S: States> Default for Gmres<S> {
    fn default() -> Self {
        Self {
            basis: S::Window::default(),
            newest: S::default(),
            image: S::default(),
            columns: 0,
            memory: 0,
            samples: Vec::new(),
            spaces: Vec::new(),
            first: PerSlot::default(),
            second: PerSlot::default(),
            norms: Vec::new(),
            inverse: Vec::new(),
            column: Vec::new(),
        }
    }
}

impl<S: States> Gmres<S> {
    /// Solves `(I - J^T) u = v` for every row of `v` from `u = 0`.
    pub(super) fn solve(
        &mut self,
        transposed: &mut (impl Map<S> + ?Sized),
        v: &S,
        u: &mut S,
        memory: usize,
        stop: &Stop,
        old: SolveReport,
    ) -> SolveReport {
        norms_of(v, &mut self.norms);
        self.samples.clear();
        self.samples.extend(self.norms.iter().map(|&norm| Sample::new(norm, stop)));
        self.memory = memory;
        u.clear_like(v);
        self.image.copy_from(v);
        while self.anybody_open() {
            self.begin();
            while self.columns < self.memory && self.anybody_open() {
                self.advance(transposed, stop);
            }
            self.correct(u);
            if self.anybody_open() {
                multiply(transposed, u, &mut self.image);
                self.image.subtract_from(v);
            }
        }
        self.report(old)
    }

    fn anybody_open(&self) -> bool {
        self.samples.iter().any(Sample::is_open)
    }

    /// One cycle between restarts begins with the residual, which is in `image`.
    fn begin(&mut self) {
        norms_of(&self.image, &mut self.norms);
        if self.spaces.len() < self.norms.len() {
            self.spaces.resize_with(self.norms.len(), Space::default);
        }
        self.spaces.iter_mut().zip(&self.norms).for_each(|(space, &norm)| space.clear(norm));
        self.basis.clear(self.memory + 1, &self.image);
        self.columns = 0;
        self.add_to_basis(0);
    }

    /// One more product, orthogonalised against the basis (twice: once loses orthogonality in f32).
    fn advance(&mut self, transposed: &mut (impl Map<S> + ?Sized), stop: &Stop) {
        multiply(transposed, &self.newest, &mut self.image);
        self.basis.dots(&self.image, &mut self.first);
        self.basis.add_combination(&mut self.image, -1.0, &self.first);
        self.basis.dots(&self.image, &mut self.second);
        self.basis.add_combination(&mut self.image, -1.0, &self.second);
        norms_of(&self.image, &mut self.norms);
        for (row, (space, sample)) in self.spaces.iter_mut().zip(&mut self.samples).enumerate() {
            if sample.is_open() {
                let projections = self.first.row(row).iter().zip(self.second.row(row)).take(self.columns + 1);
                self.column.clear();
                self.column.extend(projections.map(|(a, b)| a + b));
                sample.steps += 1;
                sample.check(space.push(&mut self.column, self.norms[row]), stop);
            }
        }
        self.columns += 1;
        self.add_to_basis(self.columns);
    }

    /// `image`, scaled to unit rows; zero for samples that are finished or have no direction left.
    fn add_to_basis(&mut self, slot: usize) {
        let inverse = |(&norm, sample): (&f64, &Sample)| if norm == 0.0 || !sample.is_open() { 0.0 } else { norm.recip() };
        self.inverse.clear();
        self.inverse.extend(self.norms.iter().zip(&self.samples).map(inverse));
        self.image.scale_rows(&self.inverse);
        std::mem::swap(&mut self.newest, &mut self.image);
        self.basis.set(slot, &self.newest);
    }

    /// Adds to the solution what the cycle found.
    fn correct(&mut self, u: &mut S) {
        self.first.clear(self.samples.len(), self.memory + 1);
        for (row, space) in self.spaces.iter().take(self.samples.len()).enumerate() {
            space.coefficients(self.first.row_mut(row));
        }
        self.basis.add_combination(u, 1.0, &self.first);
    }

    /// How it went, in the memory of an old report.
    fn report(&self, old: SolveReport) -> SolveReport {
        let most = self.samples.iter().map(|sample| sample.steps).max().unwrap_or(0);
        let outcome = |sample: &Sample| sample.outcome.expect("no sample is open any more");
        old.of(&self.samples, |sample| (sample.steps, sample.relative(), outcome(sample)), most * self.samples.len())
    }
}

impl Gmres<HostStates> {
    /// Borrows the memory of a solve.
    pub(crate) fn borrow_memory(&mut self, memory: usize, stop: &Stop, numbers: usize, lend: &mut dyn FnMut(usize) -> Vec<f32>) {
        borrow(self.newest.memory(), numbers, lend);
        borrow(self.image.memory(), numbers, lend);
        borrow(self.basis.memory(), (memory.min(stop.max_steps) + 1) * numbers, lend);
    }

    /// Shows all memory of states.
    pub(crate) fn memory(&mut self, show: &mut dyn FnMut(&mut Vec<f32>)) {
        [self.newest.memory(), self.image.memory(), self.basis.memory()].into_iter().for_each(show);
    }
}

/// `out <- u - J^T u`
fn multiply<S: States>(transposed: &mut (impl Map<S> + ?Sized), u: &S, out: &mut S) {
    out.reserve_like(u);
    transposed.apply(u, out);
    out.subtract_from(u);
}

fn norms_of<S: States>(states: &S, norms: &mut Vec<f64>) {
    states.dots(states, norms);
    norms.iter_mut().for_each(|norm| *norm = norm.sqrt());
}

/// How far one sample is.
struct Sample {
    scale: f64,
    residual: f64,
    steps: usize,
    outcome: Option<Outcome>,
}

impl Sample {
    fn new(scale: f64, stop: &Stop) -> Self {
        let mut sample = Self { scale, residual: scale, steps: 0, outcome: None };
        sample.check(scale, stop);
        sample
    }

    fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    fn relative(&self) -> f64 {
        if self.residual == 0.0 { 0.0 } else { self.residual / self.scale }
    }

    fn check(&mut self, residual: f64, stop: &Stop) {
        if !residual.is_finite() {
            self.outcome = Some(Outcome::NotFinite);
            return;
        }
        self.residual = residual;
        if stop.is_met(residual, self.scale) {
            self.outcome = Some(Outcome::Converged);
        } else if self.steps >= stop.max_steps {
            self.outcome = Some(Outcome::StepLimit);
        }
    }
}

/// One sample's least-squares problem, kept triangular by Givens rotations.
#[derive(Default)]
struct Space {
    /// Columns of the triangular factor, one after another: column `j` has `j + 1` entries.
    triangle: Vec<f64>,
    rotations: Vec<(f64, f64)>,
    rhs: Vec<f64>,
}

impl Space {
    fn clear(&mut self, residual: f64) {
        self.triangle.clear();
        self.rotations.clear();
        self.rhs.clear();
        self.rhs.push(residual);
    }

    /// A new column of the Hessenberg matrix: projections on the basis and the length of what is left. Returns the norm of the
    /// residual with it; a column that is not finite is not taken.
    fn push(&mut self, column: &mut [f64], below: f64) -> f64 {
        if !below.is_finite() || column.iter().any(|value| !value.is_finite()) {
            return f64::NAN;
        }
        for (i, &(c, s)) in self.rotations.iter().enumerate() {
            let (upper, lower) = (column[i], column[i + 1]);
            (column[i], column[i + 1]) = (c * upper + s * lower, c * lower - s * upper);
        }
        let last = column.len() - 1;
        let length = libm::hypot(column[last], below);
        let (c, s) = if length == 0.0 { (1.0, 0.0) } else { (column[last] / length, below / length) };
        column[last] = length;
        self.triangle.extend_from_slice(column);
        self.rotations.push((c, s));
        let carried = self.rhs[last];
        self.rhs[last] = c * carried;
        self.rhs.push(-s * carried);
        (s * carried).abs()
    }

    /// The combination of basis vectors with the smallest residual, at the beginning of `y`.
    fn coefficients(&self, y: &mut [f64]) {
        let columns = self.rotations.len();
        y[..columns].copy_from_slice(&self.rhs[..columns]);
        for j in (0..columns).rev() {
            let column = &self.triangle[j * (j + 1) / 2..(j + 1) * (j + 2) / 2];
            y[j] = if column[j] == 0.0 { 0.0 } else { y[j] / column[j] };
            for i in 0..j {
                y[i] -= column[i] * y[j];
            }
        }
    }
}
