//! Classes that a line can tell apart, named by each client in its own way where that is asked for.
use super::{MOST_VALUES, check_size, owners, uniform};
use crate::{Dataset, Error, Labels, Result, Samples, Seed, Vectors};
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Boxes around one point a class, a gap of `margin` apart.
///
/// Feature k of a sample of kind k is `2 + margin` higher than the others, which are uniform between -1 and 1: the largest of the
/// first `classes` features tells the kind, and every sample is right by at least `margin`. A linear classifier therefore
/// reaches accuracy 1, and its loss 0 in the limit.
///
/// With `personal`, every client has its own labels for the classes. The features are then still shared, but no single classifier
/// does better than chance on average: only a personal head on a shared representation solves it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Classification {
    /// How many clients.
    #[schemars(range(min = 1, max = MOST_VALUES))]
    pub clients: usize,
    /// Samples a client.
    #[schemars(range(min = 1, max = MOST_VALUES))]
    pub samples: usize,
    /// How many classes.
    #[schemars(range(min = 2))]
    pub classes: u16,
    /// Numbers a sample, at least one a class.
    #[schemars(range(min = 2, max = MOST_VALUES))]
    pub width: usize,
    /// The gap between classes.
    #[schemars(range(min = 0.0))]
    pub margin: f32,
    /// Whether every client has its own labels for the classes.
    pub personal: bool,
}

impl Default for Classification {
    fn default() -> Self {
        Self { clients: 20, samples: 50, classes: 5, width: 10, margin: 1.0, personal: true }
    }
}

impl Classification {
    /// Generates the data, and what each client calls each kind: `names[client][kind]` is the class.
    ///
    /// ```
    /// use fedeq_data::{Seed, source::synthetic::Classification};
    /// let (dataset, names) = Classification::default().generate(Seed::new(1))?;
    /// assert_eq!((dataset.len(), names.len(), names[0].len()), (20 * 50, 20, 5));
    /// # Ok::<(), fedeq_data::Error>(())
    /// ```
    pub fn generate(&self, seed: Seed) -> Result<(Dataset, Vec<Vec<u16>>)> {
        self.check()?;
        let names: Vec<_> = (0..self.clients as u64).map(|client| self.names(seed.derive("names", [client]))).collect();
        let (mut values, mut classes) = (Vec::new(), Vec::new());
        for (client, names) in (0..).zip(&names) {
            self.add_client(names, seed.derive("samples", [client]), &mut values, &mut classes);
        }
        let dataset = Dataset {
            name: <super::Synthetic as super::DataSet>::ENTRY.name.into(),
            samples: Samples::Vectors(Vectors { width: self.width, values }),
            labels: Labels::Classes { names: (0..self.classes).map(|class| class.to_string()).collect(), values: classes },
            owners: Some(owners(self.clients, self.samples)),
            test_start: None,
        };
        Ok((dataset, names))
    }

    fn check(&self) -> Result<()> {
        check_size(self.clients, self.samples, self.width)?;
        if self.classes == 0 || usize::from(self.classes) > self.width {
            let problem = format!("`{}` classes do not fit into `{}` numbers a sample", self.classes, self.width);
            return Err(Error::unmeetable(problem, "ask for at least one class and for no more classes than numbers"));
        }
        match self.margin.is_finite() && self.margin >= 0.0 {
            true => Ok(()),
            false => {
                Err(Error::unmeetable(format!("`margin = {}` is not a gap", self.margin), "give a finite number, 0 or more"))
            }
        }
    }

    fn names(&self, seed: Seed) -> Vec<u16> {
        let mut names: Vec<u16> = (0..self.classes).collect();
        if self.personal {
            names.shuffle(&mut seed.rng());
        }
        names
    }

    fn add_client(&self, names: &[u16], seed: Seed, values: &mut Vec<f32>, classes: &mut Vec<u16>) {
        let mut rng = seed.rng();
        for (kind, &class) in names.iter().enumerate().cycle().take(self.samples) {
            let start = values.len();
            values.extend((0..self.width).map(|_| uniform(&mut rng)));
            values[start + kind] += 2.0 + self.margin;
            classes.push(class);
        }
    }
}
