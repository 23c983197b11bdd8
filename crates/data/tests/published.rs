//! Published picture sets in their publishers' layouts, made small: what is there is read as it was written, and what is wrong is named.
use std::fs;
use std::io::Write;
use std::path::Path;

use fedeq_data::source::emnist::{Emnist, EmnistSplit};
use fedeq_data::source::mnist::{FashionMnist, Mnist};
use fedeq_data::source::svhn::Svhn;
use fedeq_data::source::tiny_imagenet::TinyImageNet;
use fedeq_data::source::{DataSet, idx, mat};
use fedeq_data::{Dataset, Samples};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use image::RgbImage;
use proptest::prelude::*;
use tempfile::TempDir;

fn pixels(dataset: &Dataset) -> &[u8] {
    match &dataset.samples {
        Samples::Images(images) => &images.pixels,
        _ => panic!("pictures"),
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
    fs::write(path, bytes).expect("writable");
}

/// What a reader says of a folder.
fn problem(result: fedeq_data::Result<Dataset>) -> String {
    let error = result.expect_err("something is wrong");
    assert!(!error.hint().is_empty());
    error.to_string()
}

fn idx_bytes(sizes: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// A value for every pixel of every picture.
fn picture(number: usize, at: usize) -> u8 {
    ((number * 101 + at * 7) % 251) as u8
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

/// Three training pictures and two test pictures, in a place below the folder.
fn write_mnist(folder: &Path, place: &str, gz: bool) {
    for (half, first, count) in [("train", 0, 3), ("t10k", 3, 2)] {
        let images: Vec<u8> = (first..first + count).flat_map(|n| (0..784).map(move |at| picture(n, at))).collect();
        let labels: Vec<u8> = (first..first + count).map(|n| n as u8 + 5).collect();
        for (kind, bytes) in
            [("images-idx3", idx_bytes(&[count as u32, 28, 28], &images)), ("labels-idx1", idx_bytes(&[count as u32], &labels))]
        {
            let name = format!("{place}{half}-{kind}-ubyte{}", if gz { ".gz" } else { "" });
            write(folder, &name, &if gz { packed(&bytes) } else { bytes });
        }
    }
}

#[test]
fn mnist_and_fashion_mnist_are_read_plain_and_packed() {
    for (place, gz) in [("mnist/", true), ("MNIST/raw/", false), ("", true), ("", false)] {
        let folder = TempDir::new().expect("a folder");
        write_mnist(folder.path(), place, gz);
        let dataset = Mnist {}.load(folder.path()).expect("sound");
        assert_eq!((dataset.len(), dataset.test_start), (5, Some(3)));
        assert_eq!(dataset.classes(), Some(&[5, 6, 7, 8, 9][..]));
        assert!((0..5).all(|n| (0..784).all(|at| pixels(&dataset)[n * 784 + at] == picture(n, at))));
    }
    let folder = TempDir::new().expect("a folder");
    write_mnist(folder.path(), "fashion-mnist/", true);
    assert_eq!(FashionMnist {}.load(folder.path()).expect("sound").name, "fashion-mnist");
    assert!(problem(Mnist {}.load(folder.path())).contains("train-images-idx3-ubyte"));
}

#[test]
fn what_is_wrong_with_an_idx_file_is_named() {
    let folder = TempDir::new().expect("a folder");
    let load = |name: &str, bytes: &[u8]| {
        write_mnist(folder.path(), "", false);
        write(folder.path(), name, bytes);
        problem(Mnist {}.load(folder.path()))
    };
    let (images, labels) = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    for (name, bytes, words) in [
        (images, idx_bytes(&[3, 28, 28], &[0; 100]), "ends before what its sizes say"),
        (images, idx_bytes(&[1, 28, 28], &[0; 785]), "more than its sizes say"),
        (images, idx_bytes(&[1, 28, 27], &[0; 756]), "[1, 28, 27]"),
        (images, idx_bytes(&[u32::MAX, u32::MAX, u32::MAX], &[]), "more than can be held"),
        (images, vec![0, 0, 8], "ends before its sizes"),
        (images, idx_bytes(&[3], &[0; 30]), "it begins with"),
        (labels, idx_bytes(&[3, 28, 28], &[0; 10]), "it begins with"),
        (labels, idx_bytes(&[2], &[1, 2]), "`2` classes for 3 pictures"),
        (labels, idx_bytes(&[3], &[1, 12, 2]), "in record 1: label `12`"),
    ] {
        let said = load(name, &bytes);
        assert!(said.contains(words) && said.contains(name), "{said}");
    }
}

/// An element with its tag and its padding.
fn element(kind: u32, bytes: &[u8]) -> Vec<u8> {
    let mut all = kind.to_le_bytes().to_vec();
    all.extend((bytes.len() as u32).to_le_bytes());
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(8), 0);
    all
}

/// A small element, whose bytes are in its tag.
fn small(kind: u32, bytes: &[u8]) -> Vec<u8> {
    let mut all = (kind | (bytes.len() as u32) << 16).to_le_bytes().to_vec();
    all.extend(bytes);
    all.resize(8, 0);
    all
}

fn matrix(name: &str, class: u8, sizes: &[i32], data: &[u8]) -> Vec<u8> {
    let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
    let name = if (1..=4).contains(&name.len()) { small(1, name.as_bytes()) } else { element(1, name.as_bytes()) };
    element(14, &[element(6, &[class, 0, 0, 0, 0, 0, 0, 0]), element(5, &sizes), name, data.to_vec()].concat())
}

fn bytes_matrix(name: &str, sizes: &[i32], values: &[u8]) -> Vec<u8> {
    matrix(name, 9, sizes, &element(2, values))
}

fn doubles(name: &str, sizes: &[i32], values: &[f64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    matrix(name, 6, sizes, &element(9, &bytes))
}

fn structure(name: &str, fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut names = Vec::new();
    for (name, _) in fields {
        let mut padded = name.as_bytes().to_vec();
        padded.resize(32, 0);
        names.extend(padded);
    }
    let values: Vec<u8> = fields.iter().flat_map(|(_, value)| value.clone()).collect();
    matrix(name, 2, &[1, 1], &[small(5, &32i32.to_le_bytes()), element(1, &names), values].concat())
}

fn zipped(variable: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(variable).expect("in memory");
    let bytes = encoder.finish().expect("in memory");
    let mut all = 15u32.to_le_bytes().to_vec();
    all.extend((bytes.len() as u32).to_le_bytes());
    all.extend(bytes);
    all
}

fn mat_file(variables: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"MATLAB 5.0 MAT-file, written by a test".to_vec();
    file.resize(124, b' ');
    file.extend([0x00, 0x01, b'I', b'M']);
    variables.iter().for_each(|variable| file.extend(variable));
    file
}

/// Pictures in columns: row fastest, then column, then channel.
fn svhn_file(labels: &[u8], zip: bool) -> Vec<u8> {
    let mut columns = Vec::new();
    for n in 0..labels.len() {
        for channel in 0..3 {
            for column in 0..32 {
                columns.extend((0..32).map(|row| picture(n, (row * 32 + column) * 3 + channel)));
            }
        }
    }
    let count = labels.len() as i32;
    let variables = [bytes_matrix("X", &[32, 32, 3, count], &columns), bytes_matrix("y", &[count, 1], labels)];
    mat_file(&if zip { variables.map(|variable| zipped(&variable)) } else { variables })
}

#[test]
fn svhn_is_read_pixel_by_pixel() {
    let folder = TempDir::new().expect("a folder");
    write(folder.path(), "svhn/train_32x32.mat", &svhn_file(&[1, 10, 9], true));
    write(folder.path(), "svhn/test_32x32.mat", &svhn_file(&[2], false));
    let dataset = Svhn::default().load(folder.path()).expect("sound");
    assert_eq!((dataset.classes(), dataset.test_start), (Some(&[1, 0, 9, 2][..]), Some(3)));
    for (n, number) in [0, 1, 2, 0].into_iter().enumerate() {
        assert!((0..3072).all(|at| pixels(&dataset)[n * 3072 + at] == picture(number, at)));
    }
    assert!(problem(Svhn { extra: true }.load(folder.path())).contains("extra_32x32.mat"));
    write(folder.path(), "svhn/extra_32x32.mat", &svhn_file(&[3, 4], true));
    let more = Svhn { extra: true }.load(folder.path()).expect("sound");
    assert_eq!((more.classes(), more.test_start), (Some(&[1, 0, 9, 3, 4, 2][..]), Some(5)));
}

#[test]
fn what_is_wrong_with_a_matlab_file_is_named() {
    let folder = TempDir::new().expect("a folder");
    write(folder.path(), "test_32x32.mat", &svhn_file(&[2], false));
    let sound = svhn_file(&[1, 2], true);
    let x = || bytes_matrix("X", &[32, 32, 3, 1], &[0; 3072]);
    let mut hdf5 = b"MATLAB 7.3 MAT-file".to_vec();
    hdf5.resize(200, 0);
    let mut large = mat_file(&[]);
    large[124..128].copy_from_slice(&[0x01, 0x00, b'M', b'I']);
    for (bytes, words) in [
        (sound[..sound.len() - 9].to_vec(), "it "),
        (b"nothing of the kind".to_vec(), "not a MATLAB file"),
        (hdf5, "7.3"),
        (large, "large end"),
        (mat_file(&[x()]), "no `y`"),
        (mat_file(&[bytes_matrix("y", &[1, 1], &[1])]), "no `X`"),
        (mat_file(&[doubles("X", &[1, 1], &[1.0]), bytes_matrix("y", &[1, 1], &[1])]), "no `X` of bytes"),
        (mat_file(&[x(), bytes_matrix("y", &[2, 1], &[1, 2])]), "`y` has `2` classes"),
        (mat_file(&[x(), bytes_matrix("y", &[1, 1], &[11])]), "in record 0"),
        (mat_file(&[x(), doubles("y", &[1, 1], &[0.5])]), "in record 0"),
        (mat_file(&[bytes_matrix("X", &[32, 32, 3, 2], &[0; 3072])]), "`[32, 32, 3, 2]` has `3072`"),
        (mat_file(&[element(14, &[0xff; 24])]), "a small element says"),
    ] {
        write(folder.path(), "train_32x32.mat", &bytes);
        let said = problem(Svhn::default().load(folder.path()));
        assert!(said.contains(words) && said.contains("train_32x32.mat"), "{words}: {said}");
    }
}

/// Characters of writers: labels and writers of a half.
fn emnist_half(labels: &[f64], writers: &[f64], first: usize) -> Vec<u8> {
    let count = labels.len();
    let mut columns = vec![0; count * 784];
    for n in 0..count {
        for (row, column) in (0..28).flat_map(|row| (0..28).map(move |column| (row, column))) {
            columns[(column * 28 + row) * count + n] = picture(first + n, row * 28 + column);
        }
    }
    let size = [count as i32, 1];
    let images = bytes_matrix("", &[count as i32, 784], &columns);
    structure(
        "",
        &[
            ("images", images),
            ("labels", doubles("", &size, labels)),
            ("writers", doubles("", &[writers.len() as i32, 1], writers)),
        ],
    )
}

fn emnist_file(train: Vec<u8>, test: Vec<u8>, mapping: Vec<u8>) -> Vec<u8> {
    mat_file(&[zipped(&structure("dataset", &[("train", train), ("test", test), ("mapping", mapping)]))])
}

#[test]
fn emnist_is_read_by_writer() {
    let folder = TempDir::new().expect("a folder");
    // Letters: labels from 1 on, with the capital and the small letter of each.
    let mapping = doubles("", &[3, 3], &[1.0, 2.0, 3.0, 65.0, 66.0, 67.0, 97.0, 98.0, 99.0]);
    let (train, test) = (emnist_half(&[3.0, 1.0, 2.0], &[70.0, 8.0, 70.0], 0), emnist_half(&[1.0], &[8.0], 3));
    write(folder.path(), "emnist/matlab/emnist-letters.mat", &emnist_file(train, test, mapping));
    let letters = Emnist { split: EmnistSplit::Letters };
    let dataset = letters.load(folder.path()).expect("sound");
    assert_eq!((dataset.classes(), dataset.test_start), (Some(&[2, 0, 1, 0][..]), Some(3)));
    let owners = dataset.owners.as_ref().expect("writers");
    assert_eq!(
        (&owners.names[..], &owners.of[..]),
        (&["writer-0070".to_owned(), "writer-0008".to_owned()][..], &[0, 1, 0, 1][..])
    );
    assert!((0..4).all(|n| (0..784).all(|at| pixels(&dataset)[n * 784 + at] == picture(n, at))));
    assert!(matches!(&dataset.labels, fedeq_data::Labels::Classes { names, .. } if names == &["Aa", "Bb", "Cc"]));
    assert!(problem(Emnist::default().load(folder.path())).contains("emnist-byclass.mat"));
}

#[test]
fn every_split_of_emnist_is_read_from_its_own_file_with_its_own_classes() {
    let folder = TempDir::new().expect("a folder");
    let (digits, capitals, small): (String, String, String) =
        (('0'..='9').collect(), ('A'..='Z').collect(), ('a'..='z').collect());
    // What the publisher's files call their classes: of merged small letters, those that do not look like their capitals are left.
    let (all, merged) = (format!("{digits}{capitals}{small}"), format!("{digits}{capitals}abdefghnqrt"));
    let splits = [
        (EmnistSplit::ByClass, "byclass", &all),
        (EmnistSplit::ByMerge, "bymerge", &merged),
        (EmnistSplit::Balanced, "balanced", &merged),
        (EmnistSplit::Letters, "letters", &capitals),
        (EmnistSplit::Digits, "digits", &digits),
        (EmnistSplit::Mnist, "mnist", &digits),
    ];
    let label_of = |split: EmnistSplit, class: usize| (class + usize::from(split == EmnistSplit::Letters)) as f64;
    for (number, (split, name, classes)) in splits.into_iter().enumerate() {
        let labels = (0..classes.len()).map(|class| label_of(split, class));
        let codes = classes.bytes().map(f64::from);
        // Letters are one class with their capitals, which stand in a column of their own.
        let both = classes.bytes().map(|letter| f64::from(letter.to_ascii_lowercase())).filter(|_| split == EmnistSplit::Letters);
        let mapping: Vec<f64> = labels.chain(codes).chain(both).collect();
        let mapping = doubles("", &[classes.len() as i32, (mapping.len() / classes.len()) as i32], &mapping);
        let last = label_of(split, classes.len() - 1);
        let (train, test) = (
            emnist_half(&[last, label_of(split, 0)], &[1.0, 2.0], 10 * number),
            emnist_half(&[last], &[number as f64 + 3.0], 10 * number + 2),
        );
        write(folder.path(), &format!("emnist/matlab/emnist-{name}.mat"), &emnist_file(train, test, mapping));
    }
    for (number, (split, name, classes)) in splits.into_iter().enumerate() {
        let written: EmnistSplit = serde_json::from_str(&format!("\"{name}\"")).expect("its name in a setting");
        assert_eq!(written, split);
        let dataset = Emnist { split }.load(folder.path()).expect("sound");
        let fedeq_data::Labels::Classes { names, values } = &dataset.labels else { panic!("classes") };
        let last = classes.len() as u16 - 1;
        assert_eq!((names.len(), &values[..], dataset.test_start), (classes.len(), &[last, 0, last][..], Some(2)), "{name}");
        let expected = |letter: char| match split {
            EmnistSplit::Letters => format!("{letter}{}", letter.to_ascii_lowercase()),
            _ => letter.to_string(),
        };
        assert!(names.iter().zip(classes.chars()).all(|(name, letter)| *name == expected(letter)), "{name}: {names:?}");
        let owners = dataset.owners.as_ref().expect("writers");
        assert_eq!(owners.names[owners.of[2] as usize], format!("writer-{:04}", number + 3), "{name}");
        assert!((0..784).all(|at| pixels(&dataset)[2 * 784 + at] == picture(10 * number + 2, at)), "{name}");
    }
}

#[test]
fn what_is_wrong_with_emnist_is_named() {
    let folder = TempDir::new().expect("a folder");
    let mapping = || doubles("", &[2, 2], &[0.0, 1.0, 48.0, 49.0]);
    let half = |labels: &[f64], writers: &[f64]| emnist_half(labels, writers, 0);
    let sound = || half(&[0.0], &[1.0]);
    for (bytes, words) in [
        (mat_file(&[doubles("dataset", &[1, 1], &[1.0])]), "no struct `dataset`"),
        (emnist_file(sound(), sound(), bytes_matrix("", &[1, 1], &[1])), "`dataset.mapping` has the sizes"),
        (emnist_file(sound(), sound(), doubles("", &[2, 2], &[0.0, 0.0, 48.0, 49.0])), "label `0` twice"),
        (emnist_file(sound(), sound(), doubles("", &[1, 2], &[0.0, 7.0])), "row 0 of `dataset.mapping`"),
        (emnist_file(half(&[4.0], &[1.0]), sound(), mapping()), "in record 0: the label in `dataset.train`"),
        (emnist_file(sound(), half(&[1.0], &[-1.0]), mapping()), "the writer in `dataset.test`"),
        (emnist_file(sound(), half(&[1.0], &[1.0, 2.0]), mapping()), "`2` writers"),
        (emnist_file(sound(), structure("", &[("images", doubles("", &[1, 1], &[1.0]))]), mapping()), "`dataset.test.labels`"),
    ] {
        write(folder.path(), "emnist-byclass.mat", &bytes);
        let said = problem(Emnist::default().load(folder.path()));
        assert!(said.contains(words) && said.contains("emnist-byclass.mat"), "{words}: {said}");
    }
}

fn jpeg(folder: &Path, name: &str, side: u32, grey: u8) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
    let picture = RgbImage::from_pixel(side, side, image::Rgb([grey; 3]));
    picture.save_with_format(path, image::ImageFormat::Jpeg).expect("writable");
}

/// Two classes, with two training pictures and one validation picture each.
fn write_tiny(folder: &Path) {
    write(folder, "wnids.txt", b"n0002\nn0001\n");
    write(folder, "words.txt", b"n0001\tfirst thing, one\nn0002\tother thing\n");
    for (id, grey) in [("n0002", 40), ("n0001", 90)] {
        for number in 0..2 {
            jpeg(folder, &format!("train/{id}/images/{id}_{number}.JPEG"), 64, grey + number);
        }
    }
    jpeg(folder, "val/images/val_0.JPEG", 64, 200);
    jpeg(folder, "val/images/val_1.JPEG", 64, 220);
    write(folder, "val/val_annotations.txt", b"val_0.JPEG\tn0001\t0\t0\t63\t63\nval_1.JPEG\tn0002\t0\t0\t63\t63\n");
}

#[test]
fn tiny_imagenet_is_read_with_its_validation_pictures_as_test_set() {
    let folder = TempDir::new().expect("a folder");
    write_tiny(&folder.path().join("tiny-imagenet-200"));
    let dataset = TinyImageNet {}.load(folder.path()).expect("sound");
    assert_eq!((dataset.classes(), dataset.test_start), (Some(&[0, 0, 1, 1, 1, 0][..]), Some(4)));
    let first: Vec<u8> = pixels(&dataset).chunks_exact(64 * 64 * 3).map(|picture| picture[0]).collect();
    for (found, expected) in first.iter().zip([40, 41, 90, 91, 200, 220]) {
        assert!(found.abs_diff(expected) <= 2, "{first:?}");
    }
    let names = ["other thing (n0002)", "first thing (n0001)"].map(str::to_owned);
    assert!(matches!(&dataset.labels, fedeq_data::Labels::Classes { names: found, .. } if found[..] == names));
}

#[test]
fn what_is_wrong_with_tiny_imagenet_is_named() {
    let said = |change: &dyn Fn(&Path)| {
        let folder = TempDir::new().expect("a folder");
        write_tiny(folder.path());
        change(folder.path());
        problem(TinyImageNet {}.load(folder.path()))
    };
    for (name, bytes, words) in [
        ("wnids.txt", "n0002\nn0002\n", "on line 2: `n0002` stands there twice"),
        ("wnids.txt", "n0002\n../x\n", "on line 2: `../x` is no number"),
        ("wnids.txt", "", "names no class"),
        ("wnids.txt", "n0002\nn0003\n", "n0003"),
        ("val/val_annotations.txt", "val_0.JPEG\n", "on line 1"),
        ("val/val_annotations.txt", "../x.JPEG\tn0001\n", "`../x.JPEG` is no file"),
        ("val/val_annotations.txt", "val_0.JPEG\tn0009\n", "class `n0009`"),
        ("val/val_annotations.txt", "val_9.JPEG\tn0001\n", "val_9.JPEG"),
        ("val/images/val_0.JPEG", "no picture", "val_0.JPEG"),
    ] {
        let found = said(&|folder| write(folder, name, bytes.as_bytes()));
        assert!(found.contains(words), "{words}: {found}");
    }
    let small = said(&|folder| jpeg(folder, "train/n0001/images/n0001_1.JPEG", 32, 9));
    assert!(small.contains("32x32"), "{small}");
}

proptest! {
    #[test]
    fn whatever_bytes_come_are_read_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        place in 0usize..600,
        byte in any::<u8>(),
        keeps_header in any::<bool>(),
    ) {
        let _ = idx::read(bytes.as_slice(), "noise".as_ref(), 3);
        if keeps_header {
            bytes = [mat_file(&[]), bytes].concat();
        }
        let _ = mat::read(bytes.as_slice(), "noise".as_ref());
        let mut sound = emnist_file(emnist_half(&[0.0], &[1.0], 0), emnist_half(&[0.0], &[1.0], 0), doubles("", &[1, 2], &[0.0, 48.0]));
        let at = place % sound.len();
        sound[at] = byte;
        let _ = mat::read(sound.as_slice(), "noise".as_ref());
    }
}
