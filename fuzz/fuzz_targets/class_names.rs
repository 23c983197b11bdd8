#![no_main]
use fedeq_data::source::cifar::Cifar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(names) = Cifar::Ten.read_class_names(bytes, "batches.meta.txt".as_ref()) {
        assert_eq!(names.len(), 10);
    }
});
