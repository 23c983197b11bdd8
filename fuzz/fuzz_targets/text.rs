#![no_main]
#[path = "../../crates/data/tests/source_readers/sound.rs"]
mod sound;

use fedeq_data::source::text::{Clients, Text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let clients = Clients::default().read_lines(bytes, "text.jsonl".as_ref());
    sound::assert_read_or_refused(clients.and_then(|clients| clients.into_dataset("text", &Text::default())));
});
