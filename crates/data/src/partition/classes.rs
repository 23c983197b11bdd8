//! The labels of samples that have one class each.
use crate::{Dataset, Error, Labels, Result};

/// Class names and the class of every sample.
#[derive(Clone, Copy)]
pub(super) struct Classes<'a> {
    names: &'a [String],
    of: &'a [u16],
}

impl<'a> Classes<'a> {
    /// The classes of `dataset`, which `rule` cannot do without.
    pub(super) fn required(dataset: &'a Dataset, rule: &str) -> Result<Self> {
        let kind = match &dataset.labels {
            Labels::Classes { names, values } => return Ok(Self { names, of: values }),
            Labels::NextSymbols(_) => "sequences of symbols",
        };
        let problem = format!("the rule `{rule}` needs one class a sample, but `{}` is labelled with {kind}", dataset.name);
        Err(Error::unmeetable(problem, "divide it with the rule `iid`, or `natural` where the data set names its owners"))
    }

    /// The samples of `pool` by class, each in the pool's order.
    pub(super) fn strata(&self, pool: &[u32]) -> Vec<Vec<u32>> {
        let mut strata = vec![Vec::new(); self.names.len()];
        for &sample in pool {
            strata[usize::from(self.of[sample as usize])].push(sample);
        }
        strata
    }

    /// How many samples of `pool` each class has.
    pub(super) fn sizes(&self, pool: &[u32]) -> Vec<usize> {
        let mut sizes = vec![0; self.names.len()];
        for &sample in pool {
            sizes[usize::from(self.of[sample as usize])] += 1;
        }
        sizes
    }

    /// What people call a class.
    pub(super) fn name(&self, class: usize) -> &'a str {
        &self.names[class]
    }
}
