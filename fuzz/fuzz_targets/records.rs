#![no_main]
#[path = "../../crates/data/tests/source_readers/sound.rs"]
mod sound;

use fedeq_data::Scaling;
use fedeq_data::source::cifar::Cifar;
use fedeq_data::source::digits;
use fedeq_data::source::records::Records;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for layout in [digits::LAYOUT, Cifar::Ten.layout(), Cifar::Hundred.layout()] {
        let names = (0..layout.classes).map(|class| class.to_string()).collect();
        let records = Records::new(layout).read(bytes, "records.bin".as_ref());
        sound::assert_read_or_refused(
            records.map(|records| records.into_dataset("records", names, Scaling::identity(layout.shape[2]), None)),
        );
    }
});
