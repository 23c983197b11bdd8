#![no_main]
#[path = "../../crates/data/tests/source_readers/sound.rs"]
mod sound;

use fedeq_data::source::SampleKind;
use fedeq_data::source::arrays::{Expected, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for kind in [SampleKind::Images, SampleKind::Numbers, SampleKind::Text] {
        let expected = Expected { kind, classes: None, vocabulary: None, sha256: None };
        sound::assert_read_or_refused(read(bytes, bytes.len() as u64, "arrays.safetensors".as_ref(), &expected));
    }
});
