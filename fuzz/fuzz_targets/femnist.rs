#![no_main]
#[path = "../../crates/data/tests/source_readers/sound.rs"]
mod sound;

use fedeq_data::source::femnist::Writers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    sound::assert_read_or_refused(Writers::default().read(bytes, "all_data_0.json".as_ref()).and_then(Writers::into_dataset));
});
