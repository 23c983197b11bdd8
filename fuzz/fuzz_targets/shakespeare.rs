#![no_main]
#[path = "../../crates/data/tests/source_readers/sound.rs"]
mod sound;

use fedeq_data::source::shakespeare::read_leaf;
use fedeq_data::source::text::{Clients, Text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let roles = read_leaf(Clients::default(), bytes, "all_data.json".as_ref());
    sound::assert_read_or_refused(roles.and_then(|roles| roles.into_dataset("shakespeare", &Text::default())));
});
