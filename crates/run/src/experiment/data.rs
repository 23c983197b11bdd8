//! The data of an experiment: who holds what where nothing else is said, the numbers of a table brought to one scale, and the same samples several times.
use fedeq_core::{Error, Result};
use fedeq_data::partition::{ClientSplits, Partition};
use fedeq_data::source::Source;
use fedeq_data::source::scale::Scale;
use fedeq_data::{Dataset, Labels, Owners, Samples, Scaling, Vectors};

use crate::number::{count, counted};

/// The partition of a data set where nothing else is said.
pub(super) fn usual_partition(source: &Source) -> Partition {
    let usual = &source.entry().partition;
    Partition::named(usual.rule, usual).unwrap_or(Partition::Iid { clients: usual.clients })
}

/// What the features of a table are before they are scaled.
pub(super) struct Features {
    width: usize,
    least: f32,
    most: f32,
}

impl Features {
    /// Those of a table; nothing for other data.
    pub(super) fn of(source: &Source, dataset: &Dataset) -> Option<Self> {
        let (Some(_), Samples::Vectors(vectors)) = (source.scale(), &dataset.samples) else { return None };
        let least = vectors.values.iter().copied().fold(f32::INFINITY, f32::min);
        let most = vectors.values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Some(Self { width: vectors.width, least, most })
    }

    /// Their range, and what becomes of them.
    pub(super) fn remark(&self, source: &Source, is_scaled: bool, trained: usize) -> String {
        let range = format!("{} between {} and {}", counted(self.width, "feature"), self.least, self.most);
        let is_given = matches!(source.scale(), Some(Scale::By(_)));
        let fate = match (is_scaled, is_given) {
            (true, true) => "scaled by the numbers in `data.source.scale`".into(),
            (true, false) => format!("standardised with the mean and deviation of {}", counted(trained, "training sample")),
            (false, _) => {
                let far = self.least.abs().max(self.most.abs()) > FAR;
                let warning = if far { ", which is far from 1: networks learn badly from such numbers" } else { "" };
                format!("used as they are{warning}")
            }
        };
        format!("{range}; {fate}")
    }
}

/// Numbers beyond this are a reason for a warning.
const FAR: f32 = 10.0;

/// How the features of a data set are scaled before anything learns from them: by the training samples of those who take part.
pub(super) fn scaling_for(source: &Source, dataset: &Dataset, splits: &ClientSplits) -> Result<Option<Scaling>> {
    let (Some(scale), Samples::Vectors(vectors)) = (source.scale(), &dataset.samples) else { return Ok(None) };
    match scale {
        Scale::None => Ok(None),
        Scale::By(scaling) => Ok(Some(scaling.clone())),
        Scale::Standardise => {
            let trained: Vec<u32> = splits.clients.iter().flat_map(|client| client.train.iter().copied()).collect();
            Ok(Scaling::of(vectors, trained))
        }
    }
}

/// The source for clients who hold other samples than these, which are an example: all of them scale alike, by the example.
///
/// Each by its own samples would give the same numbers another meaning at every client, and what they share would fit none of them.
pub fn scaled_by_example(source: Source, example: &Dataset) -> Result<Source> {
    let (Some(Scale::Standardise), Samples::Vectors(vectors)) = (source.scale(), &example.samples) else { return Ok(source) };
    if let Some(column) = (0..vectors.width).find(|&column| is_constant(vectors, column)) {
        return Err(Error::invalid(
            format!("feature `{}` is the same in every row of the example, so nodes cannot know its scale", column + 1),
            "give an example with values like those of the nodes, or set `data.source.scale=none`",
        ));
    }
    let all = 0..u32::try_from(example.len()).unwrap_or(u32::MAX);
    Ok(match Scaling::of(vectors, all) {
        Some(scaling) => source.with_scale(Scale::By(scaling)),
        None => source,
    })
}

fn is_constant(vectors: &Vectors, column: usize) -> bool {
    let mut values = vectors.values.iter().skip(column).step_by(vectors.width);
    let first = values.next();
    values.all(|value| Some(value) == first)
}

/// Bytes of all samples, their labels and whose they are: 2 GiB.
const MOST_BYTES: usize = 1 << 31;

/// A data set in which every sample is there `times` times. The publisher's test set stays at the end.
pub(super) fn repeated(dataset: Dataset, times: usize) -> Result<Dataset> {
    let most = (MOST_BYTES / bytes_of(&dataset).max(1)).max(1);
    if times > most {
        let problem = format!("`data.copies` is `{times}`: so many copies of `{}` do not fit into memory", dataset.name);
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
            Labels::NextSymbols(symbols) => Labels::NextSymbols(repeat.of(&symbols)),
        },
        owners: dataset.owners.map(|owners| Owners { of: repeat.of(&owners.of), ..owners }),
        test_start: dataset.test_start.map(|start| times * start),
        ..dataset
    })
}

/// What of a data set grows with its samples.
fn bytes_of(dataset: &Dataset) -> usize {
    let samples = match &dataset.samples {
        Samples::Images(images) => size_of_val(&images.pixels[..]),
        Samples::Vectors(vectors) => size_of_val(&vectors.values[..]),
        Samples::Sequences(sequences) => size_of_val(&sequences.symbols[..]),
    };
    let labels = match &dataset.labels {
        Labels::Classes { values, .. } => size_of_val(&values[..]),
        Labels::NextSymbols(symbols) => size_of_val(&symbols[..]),
    };
    samples + labels + dataset.owners.as_ref().map_or(0, |owners| size_of_val(&owners.of[..]))
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
        let mut repeated = Vec::with_capacity(values.len() * self.times);
        for part in [train, test] {
            (0..self.times).for_each(|_| repeated.extend_from_slice(part));
        }
        repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_with_all_that_a_sample_has() {
        let few = |width: usize| Dataset {
            name: "few".into(),
            samples: Samples::Vectors(Vectors { width, values: vec![0.0; 2 * width] }),
            labels: Labels::Classes { names: vec!["only".into()], values: vec![0; 2] },
            owners: Some(Owners { names: vec!["a".into()], of: vec![0; 2] }),
            test_start: None,
        };
        // Two samples with a number and an owner of four bytes each, and a label of two.
        let error = repeated(few(1), MOST_BYTES / 20 + 1).expect_err("too many").to_string();
        assert!(error.contains("`data.copies`") && error.contains("do not fit into memory"), "{error}");
        assert!(repeated(few(1), usize::MAX).is_err());
        assert_eq!(repeated(few(3), 1000).expect("room").len(), 2000);
    }

    #[test]
    fn samples_keep_their_labels_and_the_test_set_its_place() {
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let once = Dataset {
            name: "pairs".into(),
            samples: Samples::Vectors(Vectors { width: 2, values: vec![1.0, 1.5, 2.0, 2.5, 3.0, 3.5] }),
            labels: Labels::Classes { names: names.clone(), values: vec![0, 1, 2] },
            owners: None,
            test_start: Some(2),
        };
        let twice = repeated(once, 2).expect("room");
        let Samples::Vectors(vectors) = &twice.samples else { panic!("vectors") };
        assert_eq!(vectors.values, [1.0, 1.5, 2.0, 2.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 3.0, 3.5]);
        assert_eq!(twice.labels, Labels::Classes { names, values: vec![0, 1, 0, 1, 2, 2] });
        assert_eq!((twice.len(), twice.test_start), (6, Some(4)));
    }
}
