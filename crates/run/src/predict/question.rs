//! Inputs as samples like those of the run's own data.
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use fedeq_core::{Error, Result};
use fedeq_data::shard::Shard;
use fedeq_data::{Dataset, Labels, Samples};

use super::columns::Wanted;
use super::{lines, numbers, pictures};
use crate::experiment::Prepared;

/// Inputs, ready to be asked about.
pub struct Questions {
    /// What each input is called.
    pub names: Vec<String>,
    pub(super) shard: Shard,
    is_own: bool,
}

/// Inputs that somebody brought: their names and their samples.
pub(super) struct Brought {
    pub(super) names: Vec<String>,
    pub(super) samples: Samples,
}

impl Questions {
    /// Samples of the run's own data set, by their numbers.
    pub fn own(dataset: &Arc<Dataset>, range: Range<u32>) -> Result<Self> {
        let samples = dataset.len();
        if range.end as usize > samples {
            let problem = format!("`{}..{}` goes beyond the {samples} samples of `{}`", range.start, range.end, dataset.name);
            return Err(Error::invalid(problem, format!("end it at {samples} or before")));
        }
        Self::among(dataset, range.collect())
    }

    /// What a client is judged by: its test samples.
    pub fn judged(prepared: &Prepared, client: usize) -> Result<Self> {
        let mut clients = prepared.federation.clients.iter().chain(&prepared.federation.unseen);
        let test = clients.nth(client).map(|client| client.test.clone()).unwrap_or_default();
        Self::among(&prepared.dataset, test)
    }

    /// Some samples of the run's own data set; all of them must be there.
    fn among(dataset: &Arc<Dataset>, samples: Vec<u32>) -> Result<Self> {
        let names = samples.iter().map(|index| format!("sample {index}")).collect();
        Ok(Self { names, shard: Shard::new(Arc::clone(dataset), samples)?, is_own: true })
    }

    /// What lies in some files, for a model of a run: pictures or tables of pixels where it saw pictures,
    /// tables where it saw numbers, JSON lines where it saw text.
    pub fn brought(prepared: &Prepared, files: &[PathBuf]) -> Result<Self> {
        let dataset = &prepared.dataset;
        let brought = match &dataset.samples {
            Samples::Images(images) if numbers::is_table(files) => numbers::pixels(images, files)?,
            Samples::Images(images) => pictures::read(images, files)?,
            Samples::Vectors(vectors) => {
                let wanted = Wanted::by(&prepared.experiment.data, vectors.width)?;
                numbers::rows(&wanted, prepared.scaling.as_ref(), files)?
            }
            Samples::Sequences(sequences) => lines::read(sequences, files)?,
        };
        if brought.names.is_empty() {
            return Err(Error::invalid("there is nothing in the files given", "give files with at least one input"));
        }
        Self::of(dataset, brought)
    }

    fn of(dataset: &Dataset, Brought { names, samples }: Brought) -> Result<Self> {
        let labels = unknown_labels(&dataset.labels, &samples, names.len());
        let dataset = Dataset { name: dataset.name.clone(), samples, labels, owners: None, test_start: None };
        let count = names.len() as u32;
        Ok(Self { names, shard: Shard::new(Arc::new(dataset), (0..count).collect())?, is_own: false })
    }

    /// Which row of a model's output is the answer: for text, the one after the last symbol.
    pub(super) fn row_of(&self, sample: usize) -> usize {
        let Samples::Sequences(sequences) = &self.shard.dataset().samples else { return sample };
        let index = self.shard.indices()[sample] as usize;
        let symbols = &sequences.symbols[index * sequences.length..][..sequences.length];
        let last = symbols.iter().rposition(|&symbol| symbol != 0).unwrap_or(0);
        sample * sequences.length + last
    }

    /// What should be said, where that is known.
    pub(super) fn expected(&self, sample: usize) -> Option<usize> {
        let index = self.shard.indices()[sample] as usize;
        match &self.shard.dataset().labels {
            _ if !self.is_own => None,
            Labels::Classes { values, .. } => values.get(index).map(|&class| usize::from(class)),
            Labels::NextSymbols(symbols) => {
                let row = self.row_of(sample);
                let length = symbols.len() / self.shard.dataset().len();
                symbols.get(index * length + row % length).map(|&symbol| usize::from(symbol))
            }
            Labels::Numbers(_) => None,
        }
    }
}

/// Labels of the right kind that say nothing.
fn unknown_labels(like: &Labels, samples: &Samples, count: usize) -> Labels {
    match (like, samples) {
        (Labels::Classes { names, .. }, _) => Labels::Classes { names: names.clone(), values: vec![0; count] },
        (_, Samples::Sequences(sequences)) => Labels::NextSymbols(vec![0; sequences.symbols.len()]),
        _ => Labels::Numbers(vec![0.0; count]),
    }
}
