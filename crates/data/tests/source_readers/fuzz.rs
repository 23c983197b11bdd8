//! No bytes make a reader panic, and what it accepts is sound: arbitrary bytes, and good files damaged at random.
//!
//! `fuzz/` at the root of the repository does the same for as long as it is let, guided by coverage.
use crate::sound::assert_read_or_refused;
use crate::text::chunks_of;
use crate::{femnist, images, nowhere, shakespeare};
use fedeq_data::Scaling;
use fedeq_data::source::SampleKind;
use fedeq_data::source::arrays::{self, Expected};
use fedeq_data::source::cifar::Cifar;
use fedeq_data::source::femnist::Writers;
use fedeq_data::source::image_folder::ImageFolder;
use fedeq_data::source::records::{RecordLayout, Records};
use fedeq_data::source::table::Table;
use fedeq_data::source::text::Clients;
use fedeq_data::source::{digits, shakespeare::read_leaf};
use image::ImageFormat;
use proptest::prelude::*;
use std::io::Cursor;

fn read_records(layout: RecordLayout, bytes: &[u8]) {
    let names = (0..layout.classes).map(|class| class.to_string()).collect();
    let records = Records::new(layout).read(bytes, nowhere());
    assert_read_or_refused(
        records.map(|records| records.into_dataset("records", names, Scaling::identity(layout.shape[2]), None)),
    );
}

fn read_class_names(bytes: &[u8]) {
    if let Ok(names) = Cifar::Ten.read_class_names(bytes, nowhere()) {
        assert_eq!(names.len(), 10);
    }
}

fn read_femnist(bytes: &[u8]) {
    assert_read_or_refused(Writers::default().read(bytes, nowhere()).and_then(Writers::into_dataset));
}

fn read_shakespeare(bytes: &[u8]) {
    let roles = read_leaf(Clients::default(), bytes, nowhere());
    assert_read_or_refused(roles.and_then(|roles| roles.into_dataset("shakespeare", &chunks_of(16))));
}

fn read_text(bytes: &[u8]) {
    let clients = Clients::default().read_lines(bytes, nowhere());
    assert_read_or_refused(clients.and_then(|clients| clients.into_dataset("text", &chunks_of(7))));
}

fn read_table(bytes: &[u8]) {
    assert_read_or_refused(Table::default().read(bytes, nowhere()));
}

fn read_picture(bytes: &[u8]) {
    if let Ok(picture) = ImageFolder::default().decode(Cursor::new(bytes), nowhere()) {
        assert_eq!(picture.pixels.len(), picture.shape.iter().product::<usize>());
    }
}

fn read_arrays(bytes: &[u8]) {
    for kind in [SampleKind::Images, SampleKind::Numbers, SampleKind::Text] {
        let expected = Expected { kind, classes: None, vocabulary: None, sha256: None };
        assert_read_or_refused(arrays::read(bytes, bytes.len() as u64, nowhere(), &expected));
    }
}

/// One way of damaging a file; places are shares of its length.
#[derive(Clone, Debug)]
enum Damage {
    Overwrite(f64, u8),
    Insert(f64, Vec<u8>),
    Remove(f64, usize),
    Repeat(f64, usize),
    CutOff(f64),
}

impl Damage {
    fn apply(self, mut bytes: Vec<u8>) -> Vec<u8> {
        let at = |share: f64| (share * bytes.len() as f64) as usize;
        match self {
            Self::Overwrite(share, value) => {
                let at = at(share);
                bytes[at..].iter_mut().take(1).for_each(|byte| *byte = value);
            }
            Self::Insert(share, new) => drop(bytes.splice(at(share)..at(share), new).collect::<Vec<_>>()),
            Self::Remove(share, count) => drop(bytes.drain(at(share)..bytes.len().min(at(share) + count))),
            Self::Repeat(share, count) => {
                let piece = bytes[at(share)..bytes.len().min(at(share) + count)].to_vec();
                bytes.extend(piece);
            }
            Self::CutOff(share) => bytes.truncate(at(share)),
        }
        bytes
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let share = || 0.0..1.0f64;
    // Bytes that mean something to one of the formats are more telling than others.
    let telling = prop::sample::select(&b"{}[]\",:0-9eE.\n\r\\\xff\x00"[..]);
    let byte = || prop_oneof![any::<u8>(), telling.clone()];
    prop_oneof![
        (share(), byte()).prop_map(|(at, value)| Damage::Overwrite(at, value)),
        (share(), prop::collection::vec(byte(), 1..8)).prop_map(|(at, new)| Damage::Insert(at, new)),
        (share(), 1usize..200).prop_map(|(at, count)| Damage::Remove(at, count)),
        (share(), 1usize..200).prop_map(|(at, count)| Damage::Repeat(at, count)),
        share().prop_map(Damage::CutOff),
    ]
}

/// `good`, damaged up to four times.
fn damaged(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(damage(), 0..4)
        .prop_map(move |damages| damages.into_iter().fold(good.clone(), |bytes, damage| damage.apply(bytes)))
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

fn small_records() -> RecordLayout {
    RecordLayout { label_bytes: 2, classes: 100, shape: [2, 3, 3], white: 200 }
}

fn lines() -> Vec<u8> {
    b"{\"client\": \"ann\", \"text\": \"To be\\n\"}\n{\"client\": \"bob\", \"text\": \"or \\u00e9 not\"}\n".to_vec()
}

fn table() -> Vec<u8> {
    b"client,label,x,y\nann,1,2.5,\"3\"\nbob,2,-1e3,0\nann,1,0,7\n".to_vec()
}

fn pictures() -> impl Strategy<Value = Vec<u8>> {
    let formats = vec![ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Bmp, ImageFormat::Pnm];
    prop::sample::select(formats).prop_flat_map(|format| damaged(images::encoded(format)))
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_by_every_reader(bytes in anything()) {
        for layout in [Cifar::Ten.layout(), Cifar::Hundred.layout(), digits::LAYOUT, small_records()] {
            read_records(layout, &bytes);
        }
        for read in [read_class_names, read_femnist, read_shakespeare, read_text, read_table, read_picture, read_arrays] {
            read(&bytes);
        }
    }

    #[test]
    fn damaged_records_are_read_or_refused(bytes in damaged(vec![50; small_records().record_bytes() * 3])) {
        read_records(small_records(), &bytes);
    }

    #[test]
    fn damaged_class_names_are_read_or_refused(bytes in damaged(b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n".to_vec())) {
        read_class_names(&bytes);
    }

    #[test]
    fn damaged_leaf_pictures_are_read_or_refused(bytes in damaged(femnist::two_writers().to_string().into_bytes())) {
        read_femnist(&bytes);
    }

    #[test]
    fn damaged_leaf_text_is_read_or_refused(bytes in damaged(shakespeare::two_roles().to_string().into_bytes())) {
        read_shakespeare(&bytes);
    }

    #[test]
    fn damaged_lines_are_read_or_refused(bytes in damaged(lines())) {
        read_text(&bytes);
    }

    #[test]
    fn damaged_tables_are_read_or_refused(bytes in damaged(table())) {
        read_table(&bytes);
    }

    #[test]
    fn damaged_arrays_are_read_or_refused(bytes in prop::sample::select(crate::arrays::encoded()).prop_flat_map(damaged)) {
        read_arrays(&bytes);
    }

    #[test]
    fn damaged_pictures_are_read_or_refused(bytes in pictures()) {
        read_picture(&bytes);
    }
}
