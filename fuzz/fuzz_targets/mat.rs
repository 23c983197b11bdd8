//! MATLAB's files, as SVHN and EMNIST are published.
#![no_main]
use fedeq_data::source::mat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = mat::read(bytes, "fuzzed".as_ref());
    // Most noise is no header: behind a sound one more of it is read.
    let mut file = vec![b' '; 124];
    file.extend([0x00, 0x01, b'I', b'M']);
    file.extend(bytes);
    let _ = mat::read(file.as_slice(), "fuzzed".as_ref());
});
