#![no_main]
#[path = "../read/secure.rs"]
mod secure;
#[path = "../../crates/secure/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

// Whatever the other side of a secure aggregation sends is taken or refused.
fuzz_target!(|bytes: &[u8]| {
    let _ = secure::is_taken(bytes);
});
