//! How large a data set is, at a glance.
use crate::{Dataset, Labels, Samples, Spread};

/// The figures a person asks for first.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetSummary {
    /// The name it goes by on the command line.
    pub name: String,
    /// What one sample is, such as `32x32x3 picture`.
    pub sample: String,
    /// Samples for training, which is all of them where there is no test set of the publisher's.
    pub training: usize,
    /// Samples of the publisher's own test set; 0 where there is none.
    pub test: usize,
    /// Classes, or symbols for text.
    pub classes: Option<usize>,
    /// Clients, where the source knows them.
    pub clients: Option<usize>,
    /// Samples a client, where the source knows them.
    pub samples_per_client: Option<Spread>,
}

impl DatasetSummary {
    /// Counts what `dataset` holds.
    ///
    /// ```
    /// use fedeq_data::source::{DatasetSummary, Source};
    /// let summary = DatasetSummary::of(&Source::default().load("data".as_ref())?);
    /// assert_eq!((summary.training, summary.test, summary.classes), (1_797, 0, Some(10)));
    /// assert_eq!(summary.sample, "8x8x1 picture");
    /// # Ok::<(), fedeq_data::Error>(())
    /// ```
    pub fn of(dataset: &Dataset) -> Self {
        let training = dataset.test_start.unwrap_or(dataset.len());
        Self {
            name: dataset.name.clone(),
            sample: sample(&dataset.samples),
            training,
            test: dataset.len() - training,
            classes: classes(dataset),
            clients: dataset.owners.as_ref().map(|owners| owners.names.len()),
            samples_per_client: dataset.owners.as_ref().and_then(|owners| Spread::of(counts(&owners.of, owners.names.len()))),
        }
    }
}

fn sample(samples: &Samples) -> String {
    match samples {
        Samples::Images(images) => {
            let [height, width, channels] = images.shape;
            format!("{height}x{width}x{channels} picture")
        }
        Samples::Vectors(vectors) => format!("row of {} numbers", vectors.width),
        Samples::Sequences(sequences) => format!("chunk of {} symbols", sequences.length),
    }
}

fn classes(dataset: &Dataset) -> Option<usize> {
    match (&dataset.labels, &dataset.samples) {
        (Labels::Classes { names, .. }, _) => Some(names.len()),
        (Labels::NextSymbols(_), Samples::Sequences(sequences)) => Some(sequences.vocabulary),
        _ => None,
    }
}

fn counts(of: &[u32], names: usize) -> Vec<usize> {
    let mut counts = vec![0; names];
    for &owner in of {
        counts[owner as usize] += 1;
    }
    counts
}
