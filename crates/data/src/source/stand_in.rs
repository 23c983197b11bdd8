//! Noise in the shape of a data set that is not available.
use crate::{Dataset, Images, Labels, Owners, Samples, Scaling, Sequences};

/// Writers of FEMNIST and roles of Shakespeare hold about so many samples.
pub(super) const SAMPLES_AN_OWNER: usize = 200;
/// More of them than any experiment asks for.
const OWNERS: usize = 400;

/// Pictures with classes; those from `test_start` on are the publisher's test set.
pub(super) fn pictures(name: &str, shape: [usize; 3], classes: u16, samples: usize, test_start: usize) -> Dataset {
    let (samples, labels) = (images(shape, samples), labels(classes, samples));
    Dataset { name: name.into(), samples, labels, owners: None, test_start: Some(test_start) }
}

/// Pictures with classes, by owner: so many of each are for training, and so many are the publisher's test set.
pub(super) fn owned_pictures(name: &str, shape: [usize; 3], classes: u16, [train, test]: [usize; 2]) -> Dataset {
    let samples = OWNERS * (train + test);
    let (samples, labels) = (images(shape, samples), labels(classes, samples));
    let test_start = (test > 0).then_some(OWNERS * train);
    Dataset { name: name.into(), samples, labels, owners: Some(owners(&[train, test])), test_start }
}

/// Text of so many symbols a chunk, by owner.
pub(super) fn owned_text(name: &str, length: usize, vocabulary: usize) -> Dataset {
    let count = OWNERS * SAMPLES_AN_OWNER * length;
    let symbols = || noise(count).into_iter().map(|byte| 1 + byte % (vocabulary as u8 - 1)).collect::<Vec<u8>>();
    let samples = Samples::Sequences(Sequences { length, vocabulary, symbols: symbols() });
    Dataset {
        name: name.into(),
        samples,
        labels: Labels::NextSymbols(symbols()),
        owners: Some(owners(&[SAMPLES_AN_OWNER])),
        test_start: None,
    }
}

fn images(shape: [usize; 3], samples: usize) -> Samples {
    let pixels = noise(samples * shape.iter().product::<usize>());
    Samples::Images(Images { shape, pixels, white: u8::MAX, scaling: Scaling::identity(shape[2]) })
}

fn labels(classes: u16, samples: usize) -> Labels {
    let names = (0..classes).map(|class| class.to_string()).collect();
    Labels::Classes { names, values: (0..classes).cycle().take(samples).collect() }
}

/// In each part every owner has so many samples, one owner after the other.
fn owners(parts: &[usize]) -> Owners {
    let part = |samples: &usize| (0..OWNERS as u32).flat_map(|owner| std::iter::repeat_n(owner, *samples)).collect::<Vec<_>>();
    Owners { names: (0..OWNERS).map(|owner| format!("owner-{owner}")).collect(), of: parts.iter().flat_map(part).collect() }
}

/// Bytes without a pattern, the same every time.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut noise: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next()).collect();
    noise.truncate(bytes);
    noise
}
