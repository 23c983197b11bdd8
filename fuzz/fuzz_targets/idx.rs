//! Files of bytes with their sizes, as MNIST is published.
#![no_main]
use fedeq_data::source::idx;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for directions in [1, 3] {
        let _ = idx::read(bytes, "fuzzed".as_ref(), directions);
    }
});
