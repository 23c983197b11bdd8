#![no_main]
#[path = "../../crates/data/tests/source_readers/sound.rs"]
mod sound;

use fedeq_data::source::table::Table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    sound::assert_read_or_refused(Table::default().read(bytes, "table.csv".as_ref()));
});
