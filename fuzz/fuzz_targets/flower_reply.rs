#![no_main]
#[path = "../read/reply.rs"]
mod reply;

use libfuzzer_sys::fuzz_target;

// Whatever a node replies is read or refused by the server, and what is accepted is what was asked for.
fuzz_target!(|bytes: &[u8]| {
    let _ = reply::accepted(bytes);
});
