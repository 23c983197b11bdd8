use crate::assert_refused;
use crate::sound::assert_sound;
use fedeq_data::partition::{Partition, Split};
use fedeq_data::source::arrays::{
    GivenArray, GivenClients, GivenLabels, GivenPart, GivenValues, ImageArrays, TokenArrays, VectorArrays, sha256_of, write,
    write_to,
};
use fedeq_data::source::{DataSet, Source};
use fedeq_data::{Dataset, Error, Labels, Result, Samples, Seed};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

fn bytes(shape: &[usize], values: &[u8]) -> GivenArray {
    GivenArray { shape: shape.to_vec(), values: GivenValues::Bytes(values.to_vec()) }
}

fn floats(shape: &[usize], values: &[f32]) -> GivenArray {
    GivenArray { shape: shape.to_vec(), values: GivenValues::Floats(values.to_vec()) }
}

fn integers(shape: &[usize], values: &[i64]) -> GivenArray {
    GivenArray { shape: shape.to_vec(), values: GivenValues::Integers(values.to_vec()) }
}

fn classes(values: &[i64]) -> GivenLabels {
    GivenLabels::Numbers(integers(&[values.len()], values))
}

fn names(values: &[&str]) -> GivenLabels {
    GivenLabels::Names(values.iter().map(|name| (*name).into()).collect())
}

/// Samples of clients one after the other.
fn dataset(parts: Vec<(&str, GivenPart, GivenArray, GivenLabels)>) -> Result<Dataset> {
    let mut clients = GivenClients::default();
    parts.into_iter().try_for_each(|(client, part, x, y)| clients.add(client, part, x, y))?;
    let dataset = clients.into_dataset()?;
    assert_sound(&dataset);
    Ok(dataset)
}

fn one(x: GivenArray, y: GivenLabels) -> Result<Dataset> {
    dataset(vec![("ann", GivenPart::Train, x, y)])
}

/// What comes back from a file.
fn read_again(dataset: &Dataset) -> Dataset {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.safetensors");
    let sha256 = write(dataset, &file).unwrap();
    let source = Source::of_arrays(&file).unwrap();
    let pinned = source.pinned(&file).unwrap();
    assert!(serde_json::to_string(&pinned).unwrap().contains(&sha256) && source != pinned);
    assert_eq!(pinned.load(folder.path()).unwrap(), source.load(&file).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    source.load(&file).unwrap()
}

#[test]
fn pictures_rows_and_tokens_come_back_from_their_file_as_they_were() {
    let pictures = dataset(vec![
        ("zoe", GivenPart::Train, bytes(&[2, 1, 2], &[0, 255, 7, 8]), classes(&[9, 10])),
        ("ann", GivenPart::Train, bytes(&[1, 1, 2, 1], &[3, 4]), classes(&[10])),
    ])
    .unwrap();
    assert_eq!(read_again(&pictures), pictures);
    // Numbers are in order of their values, clients in the order in which they were given.
    assert_eq!(pictures.labels, Labels::Classes { names: vec!["9".into(), "10".into()], values: vec![0, 1, 1] });
    assert_eq!(pictures.owners.as_ref().unwrap().names, ["zoe", "ann"]);

    let rows = dataset(vec![
        ("a/b", GivenPart::Train, floats(&[2, 2], &[1.0, -2.5, 3.0, 1e30]), names(&["oak", "elm"])),
        ("a/b", GivenPart::Test, floats(&[1, 2], &[5.0, 6.0]), names(&["oak"])),
        ("ü", GivenPart::Train, floats(&[1, 2], &[7.0, 8.0]), names(&["ash"])),
        ("ü", GivenPart::Test, floats(&[1, 2], &[9.0, 0.0]), names(&["ash"])),
    ])
    .unwrap();
    assert_eq!(read_again(&rows), rows);
    let Samples::Vectors(vectors) = &rows.samples else { panic!("rows") };
    assert_eq!((rows.test_start, vectors.values[4]), (Some(3), 7.0), "training samples come first");
    let splits = Partition::Natural { clients: None, pick: Default::default(), minimum: 1 };
    let splits = splits.assign(&rows, &Split::default(), Seed::new(0)).unwrap();
    assert_eq!((&splits.clients[1].train[..], &splits.clients[1].test[..]), (&[2][..], &[4][..]));

    let next = GivenLabels::Numbers(integers(&[2, 3], &[2, 3, 0, 1, 5, 4]));
    let tokens = one(integers(&[2, 3], &[1, 2, 0, 3, 1, 5]), next).unwrap();
    assert_eq!(read_again(&tokens), tokens);
    let Samples::Sequences(sequences) = &tokens.samples else { panic!("tokens") };
    assert_eq!((sequences.length, sequences.vocabulary, tokens.has_characters()), (3, 6, false));
}

#[test]
fn the_same_data_is_the_same_file_and_another_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let some = |value: u8| one(bytes(&[2, 2, 2], &[value; 8]), classes(&[0, 1])).unwrap();
    let sha256 = write(&some(1), &path("one")).unwrap();
    assert_eq!((write(&some(1), &path("again")).unwrap(), sha256_of(&path("one")).unwrap()), (sha256.clone(), sha256.clone()));
    assert_ne!(write(&some(2), &path("other")).unwrap(), sha256);
    let pinned = Source::ImageArrays(ImageArrays::default()).pinned(&path("one")).unwrap();
    assert!(pinned.load(&path("again")).is_ok());
    assert_refused(pinned.load(&path("other")), &["other", "not the data of the experiment", &sha256]);
    // Whoever holds other samples like these reads them by the same source.
    let Source::ImageArrays(alike) = pinned.alike(&some(1)) else { panic!("pictures") };
    assert_eq!((alike.sha256.clone(), alike.load(&path("other")).unwrap().len()), (None, 2));
    // Nothing to pin where there is nothing.
    assert_eq!(
        Source::TokenArrays(TokenArrays::default()).pinned(&path("none")).unwrap(),
        Source::TokenArrays(TokenArrays::default())
    );
}

#[test]
fn floats_are_pictures_only_if_they_are_bytes() {
    let exact: Vec<f32> = (0..=255).map(|step| step as f32 / 255.0).collect();
    let labels = || classes(&(0..256).map(|sample| sample % 2).collect::<Vec<_>>());
    let Samples::Images(images) = one(floats(&[256, 1, 1], &exact), labels()).unwrap().samples else { panic!("pictures") };
    assert_eq!(images.pixels, (0..=255).collect::<Vec<u8>>());
    let doubles = GivenValues::Doubles((0..=255).map(|step| f64::from(step) / 255.0).collect());
    assert!(one(GivenArray { shape: vec![256, 1, 1], values: doubles }, labels()).is_ok());
    for value in [0.5, -1.0 / 255.0, 256.0 / 255.0, 1.7, f32::NAN, f32::INFINITY] {
        let x = floats(&[2, 1, 1], &[0.0, value]);
        assert_refused(
            one(x, classes(&[0, 1])),
            &["client `ann`", "`train` `x`", &format!("`{}`", f64::from(value)), "sample 1"],
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_by_client_and_array() {
    let good = || ("ann", GivenPart::Train, floats(&[2, 1], &[1.0, 2.0]), classes(&[0, 1]));
    let x = || floats(&[1, 1], &[3.0]);
    let bob = |x, y| dataset(vec![good(), ("bob", GivenPart::Train, x, y)]);
    assert_refused(
        bob(floats(&[1, 2], &[1.0, 2.0]), classes(&[0])),
        &["client `bob`", "`x`", "[N, 2]", "client `ann`", "[N, 1]"],
    );
    assert_refused(bob(bytes(&[1, 2, 2], &[0; 4]), classes(&[0])), &["client `bob`", "pictures [N, 2, 2, 1]"]);
    assert_refused(bob(floats(&[0, 1], &[]), classes(&[])), &["client `bob`", "`train` `x`", "no samples"]);
    assert_refused(bob(floats(&[2, 0], &[]), classes(&[0, 1])), &["client `bob`", "no values"]);
    assert_refused(bob(floats(&[1], &[1.0]), classes(&[0])), &["client `bob`", "shape `[1]`"]);
    assert_refused(bob(floats(&[1, 2], &[1.0]), classes(&[0])), &["client `bob`", "`1` values"]);
    assert_refused(bob(floats(&[1, 1], &[f32::NAN]), classes(&[0])), &["client `bob`", "`NaN` in sample 0, feature 0"]);
    assert_refused(bob(x(), classes(&[0, 1])), &["client `bob`", "`y`", "`2` labels for `1` samples"]);
    assert_refused(bob(x(), GivenLabels::Numbers(integers(&[1, 2], &[0, 1]))), &["client `bob`", "`y`", "[1, 2]"]);
    assert_refused(bob(x(), GivenLabels::Numbers(floats(&[1], &[0.0]))), &["client `bob`", "`y`", "float32"]);
    assert_refused(bob(x(), names(&["oak"])), &["client `bob`", "`y`", "strings"]);
    assert_refused(dataset(vec![good(), good()]), &["client `ann`", "given twice"]);
    assert_refused(dataset(vec![good(), ("bob", GivenPart::Test, x(), classes(&[0]))]), &["client `bob`", "no `train` samples"]);
    let tested = ("ann", GivenPart::Test, x(), classes(&[0]));
    assert_refused(
        dataset(vec![good(), tested, ("bob", GivenPart::Train, x(), classes(&[0]))]),
        &["client `bob`", "no `test` samples"],
    );
    assert_refused(one(x(), classes(&[3])), &["class `3`", "nothing to predict"]);
    assert_refused(dataset(Vec::new()), &["no clients"]);
    for name in ["", " ann", "a\nb", &"x".repeat(201)] {
        assert_refused(dataset(vec![(name, GivenPart::Train, x(), classes(&[0]))]), &["client `"]);
    }
}

#[test]
fn pictures_with_channels_first_and_integers_that_are_no_bytes_are_refused() {
    let first = bytes(&[1, 3, 8, 8], &[0; 192]);
    let error = one(first, classes(&[0])).unwrap_err();
    assert!(error.to_string().contains("[1, 3, 8, 8]") && error.hint().contains("transpose(0, 2, 3, 1)"), "{error}");
    assert!(one(bytes(&[2, 8, 8, 3], &[0; 384]), classes(&[0, 1])).is_ok());
    assert_refused(one(integers(&[1, 2, 2], &[0; 4]), classes(&[0])), &["`x`", "integers of shape `[1, 2, 2]`"]);
    // Whole numbers in rows are tokens, and have no classes.
    assert_refused(one(integers(&[1, 2], &[1, 2]), classes(&[0])), &["`y`", "`x` is tokens"]);
}

#[test]
fn tokens_must_be_bytes_and_end_together_with_those_that_follow() {
    let tokens = |x: &[i64], y: &[i64]| one(integers(&[1, 3], x), GivenLabels::Numbers(integers(&[1, y.len()], y)));
    assert!(tokens(&[1, 2, 255], &[2, 255, 1]).is_ok());
    assert_refused(tokens(&[1, 2, 256], &[2, 3, 1]), &["client `ann`", "`256` in sample 0", "0 to 255"]);
    assert_refused(tokens(&[1, -2, 3], &[2, 3, 1]), &["`-2` in sample 0"]);
    assert_refused(tokens(&[1, 2, 3], &[2, 3, 0]), &["`y`", "position 2", "padding"]);
    assert_refused(tokens(&[0, 0, 0], &[0, 0, 0]), &["nothing but 0"]);
    assert_refused(tokens(&[1, 2, 3], &[2, 3]), &["`y`", "[1, 2]", "[1, 3]"]);
}

/// A file of tensors, as other programs write it.
fn file(path: &Path, tensors: &[(&str, Dtype, &[usize], Vec<u8>)], notes: Option<&str>) {
    let views =
        tensors.iter().map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    let notes = notes.map(|notes| HashMap::from([("fedeq".to_owned(), notes.to_owned())]));
    fs::write(path, safetensors::serialize(views, notes).unwrap()).unwrap();
}

fn le<const SIZE: usize>(values: &[[u8; SIZE]]) -> Vec<u8> {
    values.concat()
}

#[test]
fn files_that_other_programs_write_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.safetensors");
    let x = || ("train/x", Dtype::F64, &[2_usize, 1][..], le(&[1.5_f64, 2.5].map(f64::to_le_bytes)));
    let y = || ("train/y", Dtype::I64, &[2_usize][..], le(&[7_i64, -3].map(i64::to_le_bytes)));
    file(&path, &[x(), y()], None);
    let dataset = Source::of_arrays(&path).unwrap().load(&path).unwrap();
    assert_sound(&dataset);
    assert_eq!(
        (dataset.owners, dataset.labels),
        (None, Labels::Classes { names: vec!["-3".into(), "7".into()], values: vec![1, 0] })
    );
    let client = || ("train/client", Dtype::I32, &[2_usize][..], le(&[1_i32, 0].map(i32::to_le_bytes)));
    file(&path, &[x(), y(), client()], Some(r#"{"clients": ["ann", "bob"]}"#));
    assert_eq!(VectorArrays::default().load(&path).unwrap().owners.unwrap().of, [1, 0]);

    let load = |tensors: &[(&str, Dtype, &[usize], Vec<u8>)], notes: Option<&str>| {
        file(&path, tensors, notes);
        VectorArrays::default().load(&path)
    };
    assert_refused(load(&[x(), y(), client()], None), &["theirs.safetensors", "`train/client`"]);
    assert_refused(load(&[x(), y(), client()], Some(r#"{"clients": ["ann"]}"#)), &["`train/client`", "`1`"]);
    assert_refused(load(&[x(), y(), client()], Some(r#"{"clients": ["ann", "bob", "eve"]}"#)), &["`eve`", "no `train` samples"]);
    assert_refused(load(&[x(), y(), client()], Some(r#"{"clients": ["ann", "ann"]}"#)), &["two clients", "`ann`"]);
    assert_refused(load(&[x(), y()], Some(r#"{"names": []}"#)), &["`fedeq`", "names"]);
    assert_refused(load(&[x(), y()], Some(r#"{"classes": ["oak", "elm"]}"#)), &["label `7`"]);
    assert_refused(load(&[x()], None), &["no `train/y`"]);
    assert_refused(load(&[x(), y(), ("train/z", Dtype::U8, &[1], vec![0])], None), &["`train/z`"]);
    assert_refused(load(&[x(), y(), ("test/x", Dtype::F64, &[1, 1], vec![0; 8])], None), &["`test`", "missing"]);
    assert_refused(load(&[("train/x", Dtype::BOOL, &[2, 1], vec![0; 2]), y()], None), &["`train/x`", "BOOL"]);
    assert_refused(load(&[("train/x", Dtype::U8, &[2, 1, 1], vec![0; 2]), y()], None), &["pictures", "vector-arrays"]);
    assert_refused(load(&[x(), ("train/y", Dtype::I64, &[1], vec![0; 8])], None), &["`train/y`", "[1]"]);
}

#[test]
fn classes_of_an_example_are_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bob.safetensors");
    let example = one(floats(&[3, 1], &[1.0, 2.0, 3.0]), names(&["oak", "elm", "ash"])).unwrap();
    let theirs = one(floats(&[2, 1], &[1.0, 2.0]), names(&["oak", "ash"])).unwrap();
    write(&theirs, &path).unwrap();
    let source = Source::of_arrays(&path).unwrap();
    assert_eq!(source.alike(&example).load(&path).unwrap().classes(), Some(&[2, 0][..]));
    write(&one(floats(&[2, 1], &[1.0, 2.0]), names(&["oak", "fir"])).unwrap(), &path).unwrap();
    assert_refused(source.alike(&example).load(&path), &["`fir`", "ash, elm, oak"]);
}

#[test]
fn new_samples_must_be_like_those_learned_from() {
    let learned = one(bytes(&[2, 2, 2], &[0; 8]), classes(&[0, 1])).unwrap().samples;
    let Samples::Images(images) = bytes(&[1, 2, 2, 1], &[9; 4]).into_samples_like(&learned).unwrap() else { panic!("pictures") };
    assert_eq!(images.pixels, [9; 4]);
    assert_refused(bytes(&[1, 2, 3], &[9; 6]).into_samples_like(&learned), &["`x`", "[N, 2, 3, 1]", "[N, 2, 2, 1]"]);
    assert_refused(floats(&[1, 4], &[0.0; 4]).into_samples_like(&learned), &["`x`", "rows [N, 4]"]);
    assert_refused(floats(&[1, 2, 2], &[0.3; 4]).into_samples_like(&learned), &["`x`", "sample 0"]);
}

#[test]
fn a_full_disk_or_a_missing_folder_leaves_nothing_behind() {
    let dataset = one(floats(&[2, 1], &[1.0, 2.0]), classes(&[0, 1])).unwrap();
    assert_refused(write(&dataset, Path::new("does/not/exist.safetensors")), &["does/not/exist", "cannot write it"]);
    // A device on which there is never room.
    if let Ok(full) = fs::File::options().write(true).open("/dev/full") {
        let error = Error::io(Path::new("mine"), "write it")(write_to(&dataset, full).unwrap_err());
        assert!(error.hint().contains("free some space"), "{error}: {}", error.hint());
    }
    // What an earlier process left over, or a link to elsewhere, is not written to.
    let folder = tempfile::tempdir().unwrap();
    let (path, theirs) = (folder.path().join("mine"), folder.path().join("theirs"));
    fs::write(&theirs, "theirs").unwrap();
    std::os::unix::fs::symlink(&theirs, folder.path().join("mine.partial")).unwrap();
    write(&dataset, &path).unwrap();
    assert_eq!((fs::read_to_string(&theirs).unwrap(), fs::read_dir(folder.path()).unwrap().count()), ("theirs".into(), 2));
}

/// The bytes of small files: pictures, rows and tokens, with test samples and without.
pub(crate) fn encoded() -> Vec<Vec<u8>> {
    let pictures = dataset(vec![("ann", GivenPart::Train, bytes(&[2, 1, 2], &[0, 255, 7, 8]), classes(&[0, 1]))]);
    let rows = dataset(vec![
        ("ann", GivenPart::Train, floats(&[2, 1], &[1.0, 2.0]), names(&["oak", "elm"])),
        ("ann", GivenPart::Test, floats(&[1, 1], &[3.0]), names(&["oak"])),
    ]);
    let tokens = one(bytes(&[1, 3], &[1, 2, 0]), GivenLabels::Numbers(bytes(&[1, 3], &[2, 3, 0])));
    let encode = |dataset: Result<Dataset>| {
        let mut bytes = Vec::new();
        write_to(&dataset.unwrap(), &mut bytes).unwrap();
        bytes
    };
    [pictures, rows, tokens].map(encode).to_vec()
}
