use crate::sound::assert_sound;
use crate::{assert_refused, nowhere};
use fedeq_data::source::classes::ClassNames;
use fedeq_data::source::image_folder::{Channels, ImageFolder};
use fedeq_data::source::{DataSet, Source};
use fedeq_data::{Labels, Samples};
use image::{DynamicImage, GrayImage, ImageFormat, Luma, Rgb, RgbImage};
use std::fs;
use std::io::Cursor;
use std::num::NonZeroU16;
use std::path::Path;

fn grey(width: u32, height: u32, value: u8) -> DynamicImage {
    GrayImage::from_pixel(width, height, Luma([value])).into()
}

fn colour(width: u32, height: u32, value: [u8; 3]) -> DynamicImage {
    RgbImage::from_pixel(width, height, Rgb(value)).into()
}

/// The bytes of a small picture in a format.
pub(crate) fn encoded(format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    colour(5, 4, [10, 20, 30]).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn save(root: &Path, path: &str, picture: DynamicImage) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    picture.save(path).unwrap();
}

fn resized(height: u16, width: u16) -> ImageFolder {
    let side = |side| NonZeroU16::new(side).unwrap();
    ImageFolder { resize: Some([side(height), side(width)]), channels: None, classes: None }
}

#[test]
fn clients_classes_and_pictures_are_read_in_order_of_their_names() {
    let root = tempfile::tempdir().unwrap();
    save(root.path(), "bob/10/a.png", grey(3, 2, 40));
    save(root.path(), "ann/2/b.pgm", grey(3, 2, 20));
    save(root.path(), "ann/2/a.png", grey(3, 2, 10));
    save(root.path(), "ann/10/z.pgm", grey(3, 2, 30));
    fs::write(root.path().join(".hidden"), "").unwrap();
    let dataset = ImageFolder::default().load(root.path()).unwrap();
    assert_sound(&dataset);
    let (Samples::Images(images), Labels::Classes { names, values }) = (&dataset.samples, &dataset.labels) else {
        panic!("a folder of pictures has pictures and classes")
    };
    assert_eq!((images.shape, names), ([2, 3, 1], &vec!["2".to_string(), "10".to_string()]));
    let first: Vec<_> = images.pixels.chunks(6).map(|picture| picture[0]).collect();
    let of = dataset.owners.unwrap().of;
    assert_eq!((first, values, of), (vec![30, 10, 20, 40], &vec![1, 0, 0, 1], vec![0, 0, 0, 1]));
}

#[test]
fn colours_come_channels_last() {
    let picture = ImageFolder::default().decode(Cursor::new(encoded(ImageFormat::Png)), nowhere()).unwrap();
    assert_eq!((picture.shape, &picture.pixels[..6]), ([4, 5, 3], &[10, 20, 30, 10, 20, 30][..]));
}

#[test]
fn a_picture_of_another_size_is_named_and_resize_is_the_remedy() {
    let root = tempfile::tempdir().unwrap();
    save(root.path(), "ann/cat/a.png", grey(3, 2, 10));
    save(root.path(), "ann/cat/b.png", grey(4, 2, 20));
    let error = ImageFolder::default().load(root.path()).unwrap_err();
    assert!(error.to_string().contains("b.png`: is `2x4` with 1 channel,"), "{error}");
    assert!(error.hint().contains("resize"));
    let Samples::Images(images) = resized(5, 6).load(root.path()).unwrap().samples else { panic!("pictures") };
    assert_eq!((images.shape, images.pixels[0], images.pixels[59]), ([5, 6, 1], 10, 20));
}

#[test]
fn a_picture_of_other_channels_is_named_and_channels_is_the_remedy() {
    let root = tempfile::tempdir().unwrap();
    save(root.path(), "ann/cat/a.png", grey(3, 2, 10));
    save(root.path(), "ann/cat/b.png", colour(3, 2, [50, 50, 50]));
    let error = ImageFolder::default().load(root.path()).unwrap_err();
    assert!(error.to_string().contains("b.png"), "{error}");
    assert!(error.hint().contains("channels"));
    for (channels, count) in [(Channels::Grey, 1), (Channels::Colour, 3)] {
        let alike = ImageFolder { channels: Some(channels), ..ImageFolder::default() };
        let Samples::Images(images) = alike.load(root.path()).unwrap().samples else { panic!("pictures") };
        assert_eq!((images.shape[2], images.pixels[0], images.pixels[6 * count]), (count, 10, 50));
    }
}

#[test]
fn what_does_not_belong_is_named() {
    let root = tempfile::tempdir().unwrap();
    save(root.path(), "ann/cat/a.png", grey(3, 2, 10));
    let load = || ImageFolder::default().load(root.path());
    let with = |path: &str, bytes: &[u8], parts: &[&str]| {
        fs::write(root.path().join(path), bytes).unwrap();
        assert_refused(load(), parts);
        fs::remove_file(root.path().join(path)).unwrap();
    };
    with("notes.txt", b"", &["notes.txt", "a file where a folder is expected"]);
    with("ann/b.png", b"", &["b.png", "a file where a folder is expected"]);
    with("ann/cat/b.webp", b"", &["b.webp", "not a picture"]);
    with("ann/cat/b.png", b"not a picture at all", &["b.png", "cannot be decoded"]);
    with("ann/cat/b.png", &encoded(ImageFormat::Png)[..40], &["b.png", "cannot be decoded"]);
    fs::create_dir_all(root.path().join("bob/cat")).unwrap();
    assert_refused(load(), &["bob", "no pictures"]);
}

#[test]
fn a_picture_that_claims_to_be_huge_is_refused_before_it_is_allocated() {
    let claims = b"P5 60000 60000 255\n";
    assert_refused(ImageFolder::default().decode(Cursor::new(claims), nowhere()), &["larger than 8192 pixels a side"]);
    let asked = resized(9_000, 10).decode(Cursor::new(encoded(ImageFormat::Png)), nowhere());
    assert_refused(asked, &["more than 8192 pixels a side"]);
}

#[test]
fn pictures_elsewhere_are_made_like_an_example() {
    let (example, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for class in ["bird", "cat", "dog"] {
        save(example.path(), &format!("anybody/{class}/a.png"), grey(3, 2, 10));
    }
    save(elsewhere.path(), "ann/dog/a.png", colour(9, 8, [7, 7, 7]));
    let source = Source::Images(ImageFolder::default());
    let dataset = source.alike(&source.load(example.path()).unwrap()).load(elsewhere.path()).unwrap();
    assert_sound(&dataset);
    let (Samples::Images(images), Labels::Classes { names, values }) = (&dataset.samples, &dataset.labels) else {
        panic!("a folder of pictures has pictures and classes")
    };
    assert_eq!((images.shape, names.len(), values.as_slice()), ([2, 3, 1], 3, &[2][..]));
}

#[test]
fn a_class_that_there_is_not_is_refused() {
    let root = tempfile::tempdir().unwrap();
    save(root.path(), "ann/dgo/a.png", grey(3, 2, 10));
    let classes = ClassNames::try_from(vec!["cat".to_owned(), "dog".to_owned()]).ok();
    assert_refused(ImageFolder { classes, ..ImageFolder::default() }.load(root.path()), &["`dgo`", "cat, dog"]);
    for (names, problem) in [(&["cat", "cat"][..], "`cat` is there twice"), (&[], "no class")] {
        let refused = ClassNames::try_from(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap_err();
        assert!(refused.contains(problem), "{refused}");
    }
}
