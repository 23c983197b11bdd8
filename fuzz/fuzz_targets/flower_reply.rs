#![no_main]
use fedeq_core::{Array, Reply, Weights};
use fedeq_flower::parts::{read_weights, require_short};
use libfuzzer_sys::fuzz_target;

// Whatever a node replies is read or refused by the server, and what is read is no larger than what was sent out. The first two bytes say how long header and layout are.
fuzz_target!(|bytes: &[u8]| {
    let [header, layout, rest @ ..] = bytes else { return };
    let (header, rest) = rest.split_at(usize::from(*header).min(rest.len()));
    let (layout, packed) = rest.split_at(usize::from(*layout).min(rest.len()));
    let (Ok(header), Ok(layout)) = (std::str::from_utf8(header), std::str::from_utf8(layout)) else { return };
    let params = [("a".to_owned(), Array::new(vec![2, 3], vec![0.5; 6]))].into_iter().collect();
    let like = Weights { params, ..Weights::default() };
    if let Ok(read) = read_weights(packed, layout, &like) {
        assert!(read.params.count() + read.statistics.count() < 6 + (1 << 15));
    }
    if require_short("header", header).is_ok() {
        let _ = Reply::from_parts(header, like);
    }
});
