//! Least squares with a shared and a personal part, and its exact solution.
use super::least_squares::{Cholesky, dot};
use super::{check_size, owners, uniform};
use crate::{Error, Owners, Result, Seed, Vectors};

/// Linear regression in which all clients share `theta` and each has its own `w_i`.
///
/// A sample of client i is x = (a, b), with `shared` numbers in a and `personal` numbers in b, and
/// y = <theta, a> + <w_i, b> + noise. Features and true parameters are uniform between -1 and 1, the noise between -`noise`
/// and `noise`. The problem is to minimise, over theta and all w_i, the mean over clients of
///
/// L_i(theta, w_i) = (1/n) sum (<theta, a> + <w_i, b> - y)^2.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// How many clients.
    pub clients: usize,
    /// Samples a client (n).
    pub samples: usize,
    /// The size of theta.
    pub shared: usize,
    /// The size of each w_i.
    pub personal: usize,
    /// The largest error in a target.
    pub noise: f32,
}

/// The exact solution takes time that grows with the cube of this.
const MOST_PARAMETERS: usize = 1_000;

/// What a [`Regression`] generates.
#[derive(Clone, Debug, PartialEq)]
pub struct RegressionData {
    /// A row (a, b) a sample.
    pub features: Vectors,
    /// Its y.
    pub targets: Vec<f32>,
    /// Whose it is.
    pub owners: Owners,
}

/// Where the loss of a [`Regression`] is smallest, for the data as generated (noise and rounding included).
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// The shared parameters.
    pub theta: Vec<f64>,
    /// Each client's own parameters.
    pub w: Vec<Vec<f64>>,
    /// The mean over clients of the mean squared error there.
    pub loss: f64,
}

impl Default for Regression {
    fn default() -> Self {
        Self { clients: 20, samples: 50, shared: 5, personal: 3, noise: 0.1 }
    }
}

impl Regression {
    /// Generates the data and solves it.
    ///
    /// ```
    /// use fedeq_data::{Seed, source::synthetic::Regression};
    /// let exact = Regression { noise: 0.0, ..Regression::default() };
    /// let (data, optimum) = exact.generate(Seed::new(1))?;
    /// assert_eq!(data.targets.len(), 20 * 50);
    /// assert!(optimum.loss < 1e-12);
    /// # Ok::<(), fedeq_data::Error>(())
    /// ```
    pub fn generate(&self, seed: Seed) -> Result<(RegressionData, Optimum)> {
        self.check()?;
        let theta = draw(seed.derive("theta", []), self.shared);
        let (mut values, mut targets) = (Vec::new(), Vec::new());
        for client in 0..self.clients as u64 {
            let parameters = [theta.clone(), draw(seed.derive("w", [client]), self.personal)].concat();
            self.add_client(&parameters, seed.derive("samples", [client]), &mut values, &mut targets);
        }
        let optimum = self.solve(&values, &targets)?;
        let features = Vectors { width: self.width(), values };
        Ok((RegressionData { features, targets, owners: owners(self.clients, self.samples) }, optimum))
    }

    fn width(&self) -> usize {
        self.shared.saturating_add(self.personal)
    }

    fn check(&self) -> Result<()> {
        check_size(self.clients, self.samples, self.width())?;
        if self.width() > MOST_PARAMETERS {
            let problem = format!("the optimum of `{}` parameters cannot be computed", self.width());
            return Err(Error::unmeetable(
                problem,
                format!("ask for at most {MOST_PARAMETERS} in `shared` and `personal` together"),
            ));
        }
        if self.samples <= self.width() {
            let problem = format!("`{}` samples a client do not determine `{}` parameters", self.samples, self.width());
            return Err(Error::unmeetable(problem, "ask for more samples than `shared` and `personal` together"));
        }
        match self.noise.is_finite() && self.noise >= 0.0 {
            true => Ok(()),
            false => Err(Error::unmeetable(format!("`noise = {}` is not a size", self.noise), "give a finite number, 0 or more")),
        }
    }

    fn add_client(&self, parameters: &[f32], seed: Seed, values: &mut Vec<f32>, targets: &mut Vec<f32>) {
        let mut rng = seed.rng();
        for _ in 0..self.samples {
            let row: Vec<f32> = parameters.iter().map(|_| uniform(&mut rng)).collect();
            let exact: f32 = row.iter().zip(parameters).map(|(x, parameter)| x * parameter).sum();
            targets.push(exact + self.noise * uniform(&mut rng));
            values.extend(row);
        }
    }

    /// Eliminates every w_i, solves for theta, and goes back for the w_i.
    fn solve(&self, values: &[f32], targets: &[f32]) -> Result<Optimum> {
        let clients: Vec<Normal> = values
            .chunks(self.samples * self.width())
            .zip(targets.chunks(self.samples))
            .map(|(values, targets)| Normal::of(values, targets, self.width()))
            .collect();
        let eliminated: Option<Vec<Eliminated>> = clients.iter().map(|client| client.eliminate(self.shared)).collect();
        let eliminated = eliminated.ok_or_else(undetermined)?;
        let theta = shared_optimum(&eliminated, self.shared).ok_or_else(undetermined)?;
        let w: Vec<Vec<f64>> = eliminated.iter().map(|client| client.personal_optimum(&theta)).collect();
        let loss = clients.iter().zip(&w).map(|(client, w)| client.loss(&[&theta[..], w].concat())).sum::<f64>();
        Ok(Optimum { theta, w, loss: loss / self.clients as f64 })
    }
}

fn draw(seed: Seed, count: usize) -> Vec<f32> {
    let mut rng = seed.rng();
    (0..count).map(|_| uniform(&mut rng)).collect()
}

fn undetermined() -> Error {
    Error::unmeetable("the generated samples do not determine the parameters", "ask for more samples a client")
}

/// A client's normal equations: the rows of X'X/n, X'y/n and y'y/n.
struct Normal {
    rows: Vec<Vec<f64>>,
    right: Vec<f64>,
    energy: f64,
}

impl Normal {
    fn of(values: &[f32], targets: &[f32], width: usize) -> Self {
        let share = 1.0 / targets.len() as f64;
        let mut normal = Self { rows: vec![vec![0.0; width]; width], right: vec![0.0; width], energy: 0.0 };
        for (sample, &target) in values.chunks(width).zip(targets) {
            for (i, &left) in sample.iter().enumerate() {
                let left = share * f64::from(left);
                normal.right[i] += left * f64::from(target);
                for (sum, &right) in normal.rows[i].iter_mut().zip(sample) {
                    *sum += left * f64::from(right);
                }
            }
            normal.energy += share * f64::from(target).powi(2);
        }
        normal
    }

    /// Takes the last unknowns out: the Schur complement of their block.
    fn eliminate(&self, shared: usize) -> Option<Eliminated> {
        let personal: Vec<Vec<f64>> = self.rows[shared..].iter().map(|row| row[shared..].to_vec()).collect();
        let block = Cholesky::of(&personal)?;
        let offset = block.solve(&self.right[shared..]);
        let columns: Vec<Vec<f64>> = self.rows[..shared].iter().map(|row| block.solve(&row[shared..])).collect();
        let coupling = |row: &Vec<f64>, vector: &[f64]| dot(&row[shared..], vector);
        let rows = self.rows[..shared]
            .iter()
            .map(|row| row.iter().zip(&columns).map(|(value, column)| value - coupling(row, column)).collect())
            .collect();
        let right = self.rows[..shared].iter().zip(&self.right).map(|(row, value)| value - coupling(row, &offset)).collect();
        Some(Eliminated { rows, right, offset, columns })
    }

    /// The mean squared error at `x`: x'Gx - 2c'x + y'y/n, never below zero.
    fn loss(&self, x: &[f64]) -> f64 {
        let quadratic: f64 = self.rows.iter().zip(x).map(|(row, value)| value * dot(row, x)).sum();
        (quadratic - 2.0 * dot(&self.right, x) + self.energy).max(0.0)
    }
}

/// What a client contributes to the equations of theta, and how its w follows from theta.
struct Eliminated {
    rows: Vec<Vec<f64>>,
    right: Vec<f64>,
    offset: Vec<f64>,
    columns: Vec<Vec<f64>>,
}

impl Eliminated {
    /// w = offset - sum over j of theta_j column_j.
    fn personal_optimum(&self, theta: &[f64]) -> Vec<f64> {
        let mut w = self.offset.clone();
        for (value, column) in theta.iter().zip(&self.columns) {
            for (sum, entry) in w.iter_mut().zip(column) {
                *sum -= value * entry;
            }
        }
        w
    }
}

fn shared_optimum(clients: &[Eliminated], shared: usize) -> Option<Vec<f64>> {
    let sum = |pick: &dyn Fn(&Eliminated) -> f64| clients.iter().map(pick).sum::<f64>();
    let rows: Vec<Vec<f64>> = (0..shared).map(|i| (0..shared).map(|j| sum(&|client| client.rows[i][j])).collect()).collect();
    let right: Vec<f64> = (0..shared).map(|i| sum(&|client| client.right[i])).collect();
    Some(Cholesky::of(&rows)?.solve(&right))
}
