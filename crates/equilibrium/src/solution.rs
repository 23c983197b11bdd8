//! What a solve gives back: the state, and for every sample how it went.

/// A fixed point as far as it was found.
///
/// A solve that does not converge is a value, not an error: look at the [`SolveReport`].
#[derive(Clone, Debug)]
pub struct Solution<S> {
    /// The iterate with the smallest residual of those seen, sample by sample.
    pub z: S,
    /// `f(z)`: one step further than `z` and already paid for.
    pub image: S,
    /// How it went.
    pub report: SolveReport,
}

/// How a solve went, sample by sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SolveReport {
    /// Evaluations of the map that the sample took.
    pub steps: Vec<usize>,
    /// `||f(z) - z|| / ||f(z)||` at the returned state.
    pub residual: Vec<f64>,
    /// Why the sample's iteration ended.
    pub outcome: Vec<Outcome>,
    /// The relative residual of each sample after each of its steps, if asked for.
    pub trace: Option<Vec<Vec<f64>>>,
    /// Rows evaluated in all, padding of finished samples included: what the solve really cost.
    pub evaluated_rows: usize,
}

/// Why a sample's iteration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The tolerance was met.
    Converged,
    /// The step limit came first.
    StepLimit,
    /// The map produced a value that is not a finite number; the best state before that is returned.
    NotFinite,
}

impl SolveReport {
    /// The report of these samples, in the memory of this one; `told` gives steps, residual and outcome.
    pub(crate) fn of<T>(mut self, samples: &[T], told: impl Fn(&T) -> (usize, f64, Outcome), evaluated_rows: usize) -> Self {
        self.steps.clear();
        self.steps.extend(samples.iter().map(|sample| told(sample).0));
        self.residual.clear();
        self.residual.extend(samples.iter().map(|sample| told(sample).1));
        self.outcome.clear();
        self.outcome.extend(samples.iter().map(|sample| told(sample).2));
        Self { trace: None, evaluated_rows, ..self }
    }

    /// How many samples were solved for.
    pub fn len(&self) -> usize {
        self.outcome.len()
    }

    /// Whether there was nothing to solve.
    pub fn is_empty(&self) -> bool {
        self.outcome.is_empty()
    }

    /// Whether every sample met its tolerance.
    pub fn all_converged(&self) -> bool {
        self.count(Outcome::Converged) == self.len()
    }

    /// How many samples ended that way.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.outcome.iter().filter(|&&each| each == outcome).count()
    }

    /// Mean number of steps a sample, 0 for an empty batch.
    pub fn mean_steps(&self) -> f64 {
        self.steps.iter().sum::<usize>() as f64 / self.len().max(1) as f64
    }
}
