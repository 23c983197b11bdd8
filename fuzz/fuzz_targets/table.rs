#![no_main]
#[path = "../../crates/data/tests/source_readers/sound.rs"]
mod sound;

use fedeq_data::source::table::{Table, Task};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for task in [Task::Classes, Task::Numbers] {
        let table = Table { task, ..Table::default() };
        sound::assert_judged(table.read(bytes, "table.csv".as_ref()));
    }
});
