//! What holds for every data set, whatever it was read from. The targets in `fuzz/` use this file too.
use fedeq_data::{Dataset, Labels, Result, Samples};

/// Proves that a reader answered with a sound data set, or with an error that has a hint.
pub(crate) fn assert_read_or_refused(result: Result<Dataset>) {
    match result {
        Ok(dataset) => assert_sound(&dataset),
        Err(error) => assert!(!error.to_string().is_empty() && !error.hint().is_empty()),
    }
}

/// Proves that the parts of a data set fit together.
pub(crate) fn assert_sound(dataset: &Dataset) {
    let samples = dataset.len();
    assert!(samples > 0);
    assert_inputs(dataset, samples);
    assert_labels(dataset, samples);
    assert!(dataset.test_start.is_none_or(|start| 0 < start && start < samples));
    if let Some(owners) = &dataset.owners {
        assert_eq!(owners.of.len(), samples);
        let mut seen = vec![false; owners.names.len()];
        owners.of.iter().for_each(|&owner| seen[owner as usize] = true);
        assert!(seen.iter().all(|&seen| seen), "a client has no sample");
    }
}

fn assert_inputs(dataset: &Dataset, samples: usize) {
    match &dataset.samples {
        Samples::Images(images) => {
            assert_eq!(images.pixels.len(), samples * images.shape.iter().product::<usize>());
            assert!(images.pixels.iter().all(|&pixel| pixel <= images.white));
            assert_eq!(images.scaling.mean.len(), images.shape[2]);
            assert!(images.scaling.deviation.iter().all(|&deviation| deviation > 0.0));
        }
        Samples::Vectors(vectors) => {
            assert_eq!(vectors.values.len(), samples * vectors.width);
            assert!(vectors.values.iter().all(|value| value.is_finite()));
        }
        Samples::Sequences(sequences) => {
            assert_eq!(sequences.symbols.len(), samples * sequences.length);
            assert!(sequences.symbols.iter().all(|&symbol| usize::from(symbol) < sequences.vocabulary));
        }
    }
}

fn assert_labels(dataset: &Dataset, samples: usize) {
    match (&dataset.labels, &dataset.samples) {
        (Labels::Classes { names, values }, _) => {
            assert_eq!(values.len(), samples);
            assert!(values.iter().all(|&class| usize::from(class) < names.len()));
        }
        (Labels::NextSymbols(next), Samples::Sequences(sequences)) => {
            assert_eq!(next.len(), sequences.symbols.len());
            let padding = |symbol: &u8| *symbol == 0;
            assert!(next.iter().zip(&sequences.symbols).all(|(next, symbol)| padding(next) == padding(symbol)));
        }
        (Labels::NextSymbols(_), _) => panic!("next symbols without sequences"),
    }
}
