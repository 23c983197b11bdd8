//! The same samples several times.
use fedeq_core::{Error, Result};
use fedeq_data::{Dataset, Labels, Owners, Samples};

use crate::number::count;

/// Pixels, numbers or symbols of all samples together.
const MOST_VALUES: usize = 1 << 31;

/// A data set in which every sample is there `times` times. The publisher's test set stays at the end.
pub(super) fn repeated(dataset: Dataset, times: usize) -> Result<Dataset> {
    let values = match &dataset.samples {
        Samples::Images(images) => images.pixels.len(),
        Samples::Vectors(vectors) => vectors.values.len(),
        Samples::Sequences(sequences) => sequences.symbols.len(),
    };
    let most = (MOST_VALUES / values.max(1)).max(1);
    if times > most {
        let problem = format!("`data.copies` is `{times}`, and so many copies of `{}` have no room", dataset.name);
        return Err(Error::invalid(problem, format!("give at most {}", count(most))));
    }
    let samples = dataset.len();
    let test = dataset.test_start.unwrap_or(samples);
    let repeat = Repeat { times, samples, test };
    Ok(Dataset {
        samples: match dataset.samples {
            Samples::Images(mut images) => {
                images.pixels = repeat.of(&images.pixels);
                Samples::Images(images)
            }
            Samples::Vectors(mut vectors) => {
                vectors.values = repeat.of(&vectors.values);
                Samples::Vectors(vectors)
            }
            Samples::Sequences(mut sequences) => {
                sequences.symbols = repeat.of(&sequences.symbols);
                Samples::Sequences(sequences)
            }
        },
        labels: match dataset.labels {
            Labels::Classes { names, values } => Labels::Classes { names, values: repeat.of(&values) },
            Labels::Numbers(numbers) => Labels::Numbers(repeat.of(&numbers)),
            Labels::NextSymbols(symbols) => Labels::NextSymbols(repeat.of(&symbols)),
        },
        owners: dataset.owners.map(|owners| Owners { of: repeat.of(&owners.of), ..owners }),
        test_start: dataset.test_start.map(|start| times * start),
        ..dataset
    })
}

struct Repeat {
    times: usize,
    samples: usize,
    /// The first sample of the test set.
    test: usize,
}

impl Repeat {
    /// Values of which every sample has the same number.
    fn of<V: Copy>(&self, values: &[V]) -> Vec<V> {
        let each = values.len() / self.samples.max(1);
        let (train, test) = values.split_at(each * self.test);
        [train.repeat(self.times), test.repeat(self.times)].concat()
    }
}

#[cfg(test)]
mod tests {
    use fedeq_data::Vectors;

    use super::*;

    #[test]
    fn samples_keep_their_labels_and_the_test_set_its_place() {
        let once = Dataset {
            name: "pairs".into(),
            samples: Samples::Vectors(Vectors { width: 2, values: vec![1.0, 1.5, 2.0, 2.5, 3.0, 3.5] }),
            labels: Labels::Numbers(vec![1.0, 2.0, 3.0]),
            owners: None,
            test_start: Some(2),
        };
        let twice = repeated(once, 2).expect("room");
        let Samples::Vectors(vectors) = &twice.samples else { panic!("vectors") };
        assert_eq!(vectors.values, [1.0, 1.5, 2.0, 2.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 3.0, 3.5]);
        assert_eq!(twice.labels, Labels::Numbers(vec![1.0, 2.0, 1.0, 2.0, 3.0, 3.0]));
        assert_eq!((twice.len(), twice.test_start), (6, Some(4)));
    }
}
