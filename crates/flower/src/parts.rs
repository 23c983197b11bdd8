//! What a server app in Python sends and receives: the parts of a message, as texts and bytes. Replies come from other people's programs and are read here.
use fedeq_core::{Params, Request, Weights};

use crate::layout::{PACKED, layout_of, layout_text, pack, unpack};
use crate::{Error, Result, npy};

/// The longest header or layout that is read, in bytes.
pub const LONGEST_TEXT: usize = 1 << 20;

/// The parts of a request, from which Flower's records are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestParts {
    /// Everything but the weights, as JSON.
    pub header: String,
    /// The names and shapes of the weights, as JSON.
    pub layout: String,
    /// What the array is of, as numpy names it.
    pub dtype: &'static str,
    /// How long the array is.
    pub count: usize,
    /// The weights, or what is sent in place of them, as one array in numpy's format.
    pub packed: Vec<u8>,
}

impl RequestParts {
    /// The parts of a request; `payload` is what is sent in place of its weights, if anything is.
    pub fn of(request: &Request, payload: Option<&[u8]>) -> Result<Self> {
        let header = request.header()?;
        if let Some(payload) = payload {
            let layout = layout_text(&layout_of(&request.weights.packed()));
            return Ok(Self { header, layout, dtype: "uint8", count: payload.len(), packed: npy::write_bytes(payload) });
        }
        let (arrays, layout) = pack(&request.weights.packed());
        let array = arrays.get(PACKED).ok_or_else(|| Error::record(PACKED, "there are no weights"))?;
        Ok(Self { header, layout, dtype: "float32", count: array.values.len(), packed: npy::write(array) })
    }
}

/// The most bytes of an array of weights like these in numpy's format.
pub fn largest_array(like: &Weights) -> usize {
    4 * (like.params.count() + like.statistics.count()) + npy::LONGEST_HEADER
}

/// Reads the weights of a reply: an array in numpy's format, and the names and shapes of what is in it. Whatever is larger than weights `like` these is refused
/// before it is read; whether they are the right ones is for the server to check.
pub fn read_weights(packed: &[u8], layout: &str, like: &Weights) -> Result<Weights> {
    let refuse = |problem: String| Error::record(PACKED, problem);
    let most = largest_array(like);
    if packed.len() > most {
        return Err(refuse(format!("it has {} bytes, more than the {most} of the weights that were sent out", packed.len())));
    }
    require_short("layout", layout)?;
    let array = npy::read(packed).map_err(refuse)?;
    if array.shape.len() != 1 {
        return Err(refuse(format!("it has {} dimensions, not 1", array.shape.len())));
    }
    let arrays: Params = [(PACKED.to_owned(), array)].into_iter().collect();
    Ok(Weights::unpacked(&unpack(&arrays, layout)?))
}

/// Reads what a reply has in place of weights: an array of bytes in numpy's format, of so many at most.
pub fn read_payload(packed: &[u8], most: usize) -> Result<Vec<u8>> {
    let refuse = |problem: String| Error::record(PACKED, problem);
    if packed.len() > most.saturating_add(npy::LONGEST_HEADER) {
        return Err(refuse(format!("it has {} bytes, more than the {most} that it can have", packed.len())));
    }
    npy::read_bytes(packed).map_err(refuse)
}

/// Refuses a text that is too long to be read.
pub fn require_short(name: &str, text: &str) -> Result<()> {
    if text.len() <= LONGEST_TEXT {
        return Ok(());
    }
    Err(Error::record(name, format!("it has {} bytes, more than {LONGEST_TEXT}", text.len())))
}

#[cfg(test)]
mod tests {
    use fedeq_core::{Array, ClientTask, Reply};
    use proptest::prelude::*;

    use super::*;

    fn weights() -> Weights {
        let array = |shape: Vec<usize>| {
            let count = shape.iter().product::<usize>();
            Array::new(shape, (0..count).map(|value| value as f32 / 7.0).collect())
        };
        Weights {
            params: [("a".to_owned(), array(vec![2, 3])), ("b".to_owned(), array(vec![4]))].into_iter().collect(),
            statistics: [("norm.mean".to_owned(), array(vec![2]))].into_iter().collect(),
        }
    }

    fn parts() -> RequestParts {
        let request = Request { task: ClientTask::Train, round: 3, rounds: 9, rho: Some(0.1), weights: weights() };
        RequestParts::of(&request, None).expect("writable")
    }

    #[test]
    fn what_is_written_is_read() {
        let RequestParts { layout, packed, count, .. } = parts();
        assert_eq!((read_weights(&packed, &layout, &weights()).expect("sound"), count), (weights(), 12));
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_is_read() {
        let RequestParts { layout, packed, .. } = parts();
        let huge = vec![0; largest_array(&weights()) + 1];
        let problem = |packed: &[u8], layout: &str| read_weights(packed, layout, &weights()).expect_err("too large").to_string();
        assert!(problem(&huge, &layout).contains("more than the"));
        assert!(problem(&packed, &" ".repeat(LONGEST_TEXT + 1)).contains("more than 1048576"));
        for nested in ["[", "{\"a\":"] {
            assert!(problem(&packed, &nested.repeat(100_000)).contains("malformed"), "{nested}");
            assert!(Reply::from_parts(&nested.repeat(100_000), Weights::default()).is_err());
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(
            place in 0usize..300,
            byte in any::<u8>(),
            cut in 0usize..400,
            text in "\\PC{0,40}",
            insert in 0usize..60,
        ) {
            let RequestParts { layout, mut packed, header, .. } = parts();
            let at = place % packed.len();
            packed[at] = byte;
            packed.truncate(cut);
            let mut changed = layout.clone();
            changed.insert_str(insert % changed.len(), &text);
            let mut lie = header.clone();
            lie.insert_str(insert % lie.len(), &text);
            // None of these panics, and what is read is no larger than what was sent.
            for layout in [&layout, &changed, &text] {
                if let Ok(read) = read_weights(&packed, layout, &weights()) {
                    prop_assert!(read.params.count() + read.statistics.count() <= 12);
                }
            }
            let _ = Reply::from_parts(&lie, Weights::default());
            let _ = Reply::from_parts(&text, weights());
        }
    }
}
