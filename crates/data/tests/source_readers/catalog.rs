use crate::assert_refused;
use fedeq_data::source::emnist::{Emnist, EmnistSplit};
use fedeq_data::source::image_folder::{Channels, ImageFolder};
use fedeq_data::source::scale::Scale;
use fedeq_data::source::shakespeare::Shakespeare;
use fedeq_data::source::table::{Table, TargetKind};
use fedeq_data::source::text::Text;
use fedeq_data::source::{Source, catalog};
use fedeq_data::{Labels, Scaling};
use std::num::NonZeroU16;

#[test]
fn every_entry_is_found_by_its_name_and_says_everything() {
    for entry in catalog() {
        assert_eq!(Source::named(entry.name).unwrap().entry(), entry);
        for said in [entry.about, entry.layout, entry.licence, entry.citation] {
            assert!(!said.is_empty() && !said.contains('\n'), "{}: {said}", entry.name);
        }
    }
}

#[test]
fn names_in_files_are_the_names_of_the_catalog() {
    for source in Source::all() {
        let written = serde_json::to_value(&source).unwrap();
        assert_eq!(written["name"], source.name());
        assert_eq!(serde_json::from_value::<Source>(written).unwrap(), source);
    }
}

#[test]
fn a_name_alone_means_default_options() {
    for source in Source::all() {
        let read: Source = serde_json::from_value(serde_json::json!({ "name": source.name() })).unwrap();
        // Experiments from before tables were scaled say nothing of it, and mean what was done then.
        let expected = if let Source::Csv(table) = source { Source::Csv(Table { scale: Scale::None, ..table }) } else { source };
        assert_eq!(read, expected);
    }
}

#[test]
fn the_default_needs_no_files() {
    assert!(Source::default().load("does/not/exist".as_ref()).is_ok());
}

#[test]
fn options_are_read() {
    let read = |text| serde_json::from_str::<Source>(text).unwrap();
    let side = |side| NonZeroU16::new(side).unwrap();
    assert_eq!(read(r#"{"name": "shakespeare", "length": 80}"#), Source::Shakespeare(Shakespeare(Text { length: side(80) })));
    assert_eq!(
        read(r#"{"name": "images", "resize": [4, 6], "channels": "grey"}"#),
        Source::Images(ImageFolder { resize: Some([side(4), side(6)]), channels: Some(Channels::Grey), classes: None })
    );
    assert_eq!(
        read(r#"{"name": "csv", "client": "site", "label": "price", "task": "classes", "scale": "standardise"}"#),
        Source::Csv(Table { client: Some("site".into()), label: "price".into(), task: TargetKind::Classes, ..Table::default() })
    );
    let by = r#"{"name": "csv", "scale": {"by": {"mean": [1.5], "deviation": [2.0]}}}"#;
    assert_eq!(read(by).given_scaling(), Some(Scaling { mean: vec![1.5], deviation: vec![2.0] }));
    // Written before there was such a setting, when nothing was scaled.
    assert_eq!(read(r#"{"name": "csv"}"#), Source::Csv(Table { scale: Scale::None, ..Table::default() }));
}

#[test]
fn unknown_keys_and_impossible_options_are_refused() {
    for source in Source::all() {
        let mut written = serde_json::to_value(&source).unwrap();
        written["lenght"] = 80.into();
        assert!(serde_json::from_value::<Source>(written).is_err(), "{} takes unknown keys", source.name());
    }
    assert!(serde_json::from_str::<Source>(r#"{"name": "text", "length": 0}"#).is_err());
    assert!(serde_json::from_str::<Source>(r#"{"name": "csv", "task": "numbers"}"#).is_err(), "no network predicts numbers");
    assert!(serde_json::from_str::<Source>(r#"{"name": "images", "resize": [0, 8]}"#).is_err());
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let error = Source::named("imagenet").unwrap_err();
    assert!(error.to_string().contains("`imagenet`"));
    assert!(catalog().all(|entry| error.hint().contains(entry.name)));
}

#[test]
fn missing_files_are_named_together_with_where_they_were_looked_for() {
    let empty = tempfile::tempdir().unwrap();
    let load = |name| Source::named(name).unwrap().load(empty.path());
    assert_refused(load("cifar10"), &["data_batch_1.bin", "cifar-10-batches-bin"]);
    assert_refused(load("cifar100"), &["train.bin", "cifar-100-binary"]);
    assert_refused(load("femnist"), &["all_data*.json", "femnist/data/all_data"]);
    assert_refused(load("shakespeare"), &["roles*.jsonl", "all_data*.json"]);
    assert_refused(load("text"), &["*.jsonl"]);
    assert_refused(load("csv"), &["*.csv"]);
    assert_refused(load("images"), &["no pictures"]);
}

#[test]
fn what_stands_in_for_emnist_has_the_classes_and_the_two_parts_of_its_split_for_every_writer() {
    for (split, classes, of_ten_writers) in
        [(EmnistSplit::Balanced, 47, [310, 50]), (EmnistSplit::Letters, 26, [340, 50]), (EmnistSplit::Mnist, 10, [160, 20])]
    {
        let noise = Source::Emnist(Emnist { split }).stand_in().expect("its shape is known");
        let Labels::Classes { names, values } = &noise.labels else { panic!("characters have classes") };
        assert!(names.len() == classes && values.iter().all(|value| usize::from(*value) < classes), "{split:?}");
        let (owners, start) = (noise.owners.as_ref().expect("writers"), noise.test_start.expect("a test set"));
        assert_eq!((owners.of.len(), values.len()), (noise.len(), noise.len()));
        // As many as the publisher has, over about 3,600 writers.
        let of_ten = |part: &[u32]| part.iter().filter(|&&owner| owner < 10).count();
        assert_eq!([of_ten(&owners.of[..start]), of_ten(&owners.of[start..])], of_ten_writers, "{split:?}");
    }
}
