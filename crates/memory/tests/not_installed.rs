//! Without the allocator installed, a meter says that it does not know.
use fedeq_memory::Meter;

#[test]
fn a_meter_tells_nothing() {
    let mut meter = Meter::start();
    drop(std::hint::black_box(vec![1u8; 1000]));
    assert_eq!(meter.lap(), None);
}
