#![no_main]
use fedeq_core::{Array, Codec, Compression, FedAvg, Reply, Weights};
use fedeq_flower::parts::{read_payload, read_weights, require_short};
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
    // What stands in place of weights: as a codec wrote it, or a message of secure aggregation.
    if let Ok(payload) = read_payload(packed, 1 << 12) {
        assert!(payload.len() < (1 << 12) + (1 << 16));
        let compression = Compression { up: Some(Codec::Int8), ..Compression::default() };
        if let Ok(weights) = compression.decompress(&FedAvg::default(), &payload, &like) {
            weights.ensure_like(&like).expect("finite numbers of the layout");
        }
        let _ = Reply::from_compressed(header, payload);
    }
    if require_short("header", header).is_ok() {
        let _ = Reply::from_parts(header, like);
    }
});
