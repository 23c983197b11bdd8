use crate::sound::assert_sound;
use crate::{assert_refused, nowhere};
use fedeq_data::source::Source;
use fedeq_data::source::cifar::{Cifar, Cifar10, Cifar100};
use fedeq_data::source::records::Records;
use fedeq_data::{Dataset, Labels, Samples, Scaling};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

const PICTURE: usize = 32 * 32 * 3;

/// A file of pictures whose values are all the record's number.
fn file(labels: &[&[u8]]) -> Vec<u8> {
    let record = |(number, label): (usize, &&[u8])| [label.to_vec(), vec![number as u8; PICTURE]].concat();
    labels.iter().enumerate().flat_map(record).collect()
}

fn write_cifar10(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for batch in 1..=5u8 {
        fs::write(folder.join(format!("data_batch_{batch}.bin")), file(&[&[batch], &[0]])).unwrap();
    }
    fs::write(folder.join("test_batch.bin"), file(&[&[9]])).unwrap();
}

fn parts(dataset: &Dataset) -> (&[String], &[u16], &[u8], &Scaling) {
    match (&dataset.labels, &dataset.samples) {
        (Labels::Classes { names, values }, Samples::Images(images)) => (names, values, &images.pixels, &images.scaling),
        _ => panic!("CIFAR has pictures and classes"),
    }
}

#[test]
fn cifar10_is_read_from_its_folder_or_the_folder_above_training_first() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("cifar-10-batches-bin");
    write_cifar10(&folder);
    let dataset = Source::Cifar10(Cifar10 {}).load(parent.path()).unwrap();
    assert_eq!(dataset, Source::Cifar10(Cifar10 {}).load(&folder).unwrap());
    assert_sound(&dataset);
    let (names, classes, _, scaling) = parts(&dataset);
    assert_eq!(classes, [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 9]);
    assert_eq!(dataset.test_start, Some(10));
    assert_eq!((names[3].as_str(), names.len()), ("cat", 10));
    assert_eq!(scaling.mean, [0.485, 0.456, 0.406]);
}

#[test]
fn the_class_of_cifar100_is_the_fine_label() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.bin"), file(&[&[19, 11], &[0, 99]])).unwrap();
    fs::write(folder.path().join("test.bin"), file(&[&[3, 42]])).unwrap();
    let dataset = Source::Cifar100(Cifar100 {}).load(folder.path()).unwrap();
    let (names, classes, _, scaling) = parts(&dataset);
    assert_eq!((classes, dataset.test_start), (&[11, 99, 42][..], Some(2)));
    assert_eq!((names[11].as_str(), names[42].as_str(), names[99].as_str()), ("boy", "leopard", "worm"));
    assert_eq!(scaling.deviation, [0.267, 0.256, 0.276]);
}

#[test]
fn class_names_beside_the_records_come_first_and_must_be_complete() {
    let folder = tempfile::tempdir().unwrap();
    write_cifar10(folder.path());
    let names = folder.path().join("batches.meta.txt");
    fs::write(&names, "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n").unwrap();
    assert_eq!(parts(&Source::Cifar10(Cifar10 {}).load(folder.path()).unwrap()).0[9], "j");
    fs::write(&names, "a\nb\n").unwrap();
    assert_refused(Source::Cifar10(Cifar10 {}).load(folder.path()), &["batches.meta.txt", "`2` class names, not 10"]);
}

#[test]
fn a_missing_batch_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write_cifar10(folder.path());
    fs::remove_file(folder.path().join("data_batch_4.bin")).unwrap();
    assert_refused(Source::Cifar10(Cifar10 {}).load(folder.path()), &["data_batch_4.bin", "cannot open it"]);
}

#[test]
fn a_file_cut_short_is_refused_with_the_offset_of_the_broken_record() {
    let whole = file(&[&[1], &[2]]);
    let read = |bytes| Records::new(Cifar::Ten.layout()).read(bytes, nowhere());
    assert_refused(read(&whole[..whole.len() - 1]), &["made/up.file", "at byte 3073", "`3072` bytes are left"]);
    assert_refused(read(&[]), &["at byte 0", "`0` bytes are left"]);
}

#[test]
fn a_label_out_of_range_is_refused_with_its_record() {
    let read = |cifar: Cifar, bytes: Vec<u8>| Records::new(cifar.layout()).read(&bytes[..], nowhere());
    assert_refused(read(Cifar::Ten, file(&[&[1], &[10]])), &["in record 1", "label `10` is not below 10"]);
    assert_refused(read(Cifar::Hundred, file(&[&[0, 100]])), &["in record 0", "label `100` is not below 100"]);
}

proptest! {
    #[test]
    fn planes_become_pixels(planes in prop::collection::vec(any::<u8>(), PICTURE), at in 0usize..1024) {
        let record = [vec![7], planes.clone()].concat();
        let records = Records::new(Cifar::Ten.layout()).read(&record[..], nowhere()).unwrap();
        let dataset = records.into_dataset("cifar10", vec![String::new(); 10], Scaling::identity(3), None);
        let (_, _, pixels, _) = parts(&dataset);
        prop_assert_eq!(&pixels[at * 3..at * 3 + 3], &[planes[at], planes[1024 + at], planes[2048 + at]]);
    }
}
