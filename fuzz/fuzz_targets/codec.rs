#![no_main]
#[path = "../read/compressed.rs"]
mod compressed;

use libfuzzer_sys::fuzz_target;

// Whatever bytes arrive, they are finite numbers of the layout that both sides know, or refused.
fuzz_target!(|bytes: &[u8]| {
    let _ = compressed::readings(bytes);
});
