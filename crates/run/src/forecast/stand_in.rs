//! Samples for data that is not there: noise of the same shape, as many as the real ones.
use fedeq_data::source::{Source, vocabulary};
use fedeq_data::{Dataset, Images, Labels, Owners, Samples, Scaling, Sequences};

/// Writers of FEMNIST and roles of Shakespeare hold about so many samples.
const SAMPLES_AN_OWNER: usize = 200;
/// More of them than any experiment asks for.
const OWNERS: usize = 400;

/// Noise in the shape of a published data set; nothing for people's own data, whose shape nobody knows.
pub(super) fn stand_in(source: &Source) -> Option<Dataset> {
    let owned = OWNERS * SAMPLES_AN_OWNER;
    let (samples, labels, owners, test_start) = match source {
        Source::Cifar10 {} => (images([32, 32, 3], 60_000), classes(10, 60_000), None, Some(50_000)),
        Source::Cifar100 {} => (images([32, 32, 3], 60_000), classes(100, 60_000), None, Some(50_000)),
        Source::Femnist {} => (images([28, 28, 1], owned), classes(62, owned), Some(owners()), None),
        Source::Shakespeare(text) => {
            let length = usize::from(text.length.get());
            let symbols =
                || noise(owned * length).into_iter().map(|byte| 1 + byte % (vocabulary::SIZE as u8 - 1)).collect::<Vec<u8>>();
            let sequences = Sequences { length, vocabulary: vocabulary::SIZE, symbols: symbols() };
            (Samples::Sequences(sequences), Labels::NextSymbols(symbols()), Some(owners()), None)
        }
        _ => return None,
    };
    Some(Dataset { name: source.name().into(), samples, labels, owners, test_start })
}

fn images(shape: [usize; 3], samples: usize) -> Samples {
    let pixels = noise(samples * shape.iter().product::<usize>());
    Samples::Images(Images { shape, pixels, white: u8::MAX, scaling: Scaling::identity(shape[2]) })
}

fn classes(count: u16, samples: usize) -> Labels {
    let names = (0..count).map(|class| class.to_string()).collect();
    Labels::Classes { names, values: (0..count).cycle().take(samples).collect() }
}

fn owners() -> Owners {
    let of = (0..OWNERS as u32).flat_map(|owner| std::iter::repeat_n(owner, SAMPLES_AN_OWNER)).collect();
    Owners { names: (0..OWNERS).map(|owner| format!("owner-{owner}")).collect(), of }
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
