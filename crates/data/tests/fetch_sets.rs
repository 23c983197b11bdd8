//! Whole data sets: downloaded and unpacked, or brought from this machine.
#![cfg(feature = "fetch")]
mod fetch_support;

use std::fs;
use std::path::{Path, PathBuf};

use fedeq_data::fetch::offer::offer;
use fedeq_data::fetch::{Archive, FetchEvent, Member, Offer, Recipe, Ways, from_path, from_publisher};
use fedeq_data::{Error, Result};
use fetch_support::{Manner, Server, fingerprint, impatient, noise, unwatched};
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

/// What an archive entry is, as a test writes it.
enum Entry<'a> {
    File(&'a str, &'a [u8]),
    Link(&'a str, &'a str),
}

/// A gzip-compressed tar archive whose paths are written unchecked, as an attacker would.
fn tar_gz(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for entry in entries {
        let (path, content, kind) = match entry {
            Entry::File(path, content) => (path, *content, tar::EntryType::Regular),
            Entry::Link(path, _) => (path, &b""[..], tar::EntryType::Symlink),
        };
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        if let Entry::Link(_, to) = entry {
            header.set_link_name(to).unwrap();
        }
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn member(path: &str, content: &[u8]) -> Member {
    Member { path: path.into(), fingerprint: fingerprint(content) }
}

/// A data set of two files, packed.
struct Packed {
    train: Vec<u8>,
    test: Vec<u8>,
    bytes: Vec<u8>,
}

impl Packed {
    fn new() -> Self {
        let (train, test) = (noise(70_000), noise(9_000));
        let bytes = tar_gz(&[
            Entry::File("set/readme.html", b"read me"),
            Entry::File("./set/train.bin", &train),
            Entry::File("set/test.bin", &test),
        ]);
        Self { train, test, bytes }
    }

    fn offer(&self, address: &str) -> Offer {
        let members = vec![member("set/train.bin", &self.train), member("set/test.bin", &self.test)];
        Offer::Archive(Archive { address: address.into(), fingerprint: fingerprint(&self.bytes), members })
    }

    fn assert_in(&self, data: &Path) {
        assert!(fs::read(data.join("set/train.bin")).unwrap() == self.train);
        assert!(fs::read(data.join("set/test.bin")).unwrap() == self.test);
        assert_eq!(files_under(data), ["set/test.bin", "set/train.bin"]);
    }
}

/// Every file below a folder, relative to it, sorted.
fn files_under(folder: &Path) -> Vec<String> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/"));
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, folder, &mut found);
    found.sort();
    found
}

fn written(folder: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// Tries to bring an archive with these bytes in; returns what was written and the error's text.
fn refused(bytes: &[u8]) -> (Vec<String>, String) {
    let (around, packed) = (TempDir::new().unwrap(), Packed::new());
    let archive = written(&around, "given.tar.gz", bytes);
    let result = from_path(&packed.offer("unused"), &archive, &around.path().join("data"), &mut unwatched);
    let error = result.expect_err("the archive should have been refused");
    let mut files = files_under(around.path());
    files.retain(|file| file != "given.tar.gz");
    (files, error.to_string())
}

#[test]
fn a_set_is_downloaded_unpacked_and_the_archive_removed() {
    let (packed, data) = (Packed::new(), TempDir::new().unwrap());
    let server = Server::start(packed.bytes.clone(), &[Manner::CutsAfter(10_000), Manner::Ranges]);
    from_publisher(&packed.offer(&server.address), &data.path().join("new"), &impatient(), &mut unwatched).unwrap();
    packed.assert_in(&data.path().join("new"));
}

#[test]
fn a_set_that_is_there_and_intact_is_left_alone() {
    let (packed, data) = (Packed::new(), TempDir::new().unwrap());
    let server = Server::start(packed.bytes.clone(), &[Manner::Ranges]);
    let mut told = Vec::new();
    let mut watch = |event: &FetchEvent<'_>| told.push(*event == FetchEvent::AlreadyThere);
    from_publisher(&packed.offer(&server.address), data.path(), &impatient(), &mut unwatched).unwrap();
    from_publisher(&packed.offer(&server.address), data.path(), &impatient(), &mut watch).unwrap();
    assert_eq!((told, server.ranges().len()), (vec![true], 1));
}

#[test]
fn a_set_with_a_damaged_file_is_fetched_again() {
    let (packed, data) = (Packed::new(), TempDir::new().unwrap());
    let server = Server::start(packed.bytes.clone(), &[Manner::Ranges]);
    written(&data, "set/train.bin", &packed.train);
    written(&data, "set/test.bin", &noise(8_999));
    from_publisher(&packed.offer(&server.address), data.path(), &impatient(), &mut unwatched).unwrap();
    packed.assert_in(data.path());
}

#[test]
fn a_local_archive_is_unpacked_even_if_it_was_packed_anew() {
    let (packed, around) = (Packed::new(), TempDir::new().unwrap());
    let repacked = tar_gz(&[Entry::File("set/test.bin", &packed.test), Entry::File("set/train.bin", &packed.train)]);
    let archive = written(&around, "mine.tgz", &repacked);
    let data = around.path().join("data");
    from_path(&packed.offer("unused"), &archive, &data, &mut unwatched).unwrap();
    packed.assert_in(&data);
}

#[test]
fn a_local_folder_is_taken_whether_it_is_the_unpacked_one_or_the_one_around_it() {
    let (packed, around) = (Packed::new(), TempDir::new().unwrap());
    written(&around, "mine/set/train.bin", &packed.train);
    written(&around, "mine/set/test.bin", &packed.test);
    for (index, from) in ["mine", "mine/set"].iter().enumerate() {
        let data = around.path().join(format!("data{index}"));
        from_path(&packed.offer("unused"), &around.path().join(from), &data, &mut unwatched).unwrap();
        packed.assert_in(&data);
    }
}

#[test]
fn a_local_folder_with_a_changed_file_is_refused() {
    let (packed, around) = (Packed::new(), TempDir::new().unwrap());
    written(&around, "mine/train.bin", &packed.train);
    let mut changed = packed.test.clone();
    changed[17] ^= 1;
    written(&around, "mine/test.bin", &changed);
    let data = around.path().join("data");
    let error = from_path(&packed.offer("unused"), &around.path().join("mine"), &data, &mut unwatched).unwrap_err();
    assert!(error.to_string().contains("SHA-256"), "{error}");
    assert_eq!(files_under(&data), ["set/train.bin"]);
}

#[test]
fn a_local_folder_without_the_files_is_refused() {
    let (packed, around) = (Packed::new(), TempDir::new().unwrap());
    let error = from_path(&packed.offer("unused"), around.path(), around.path(), &mut unwatched).unwrap_err();
    assert!(error.to_string().contains("`set/train.bin`"), "{error}");
}

#[test]
fn a_path_that_does_not_exist_is_named() {
    let packed = Packed::new();
    let error = from_path(&packed.offer("unused"), Path::new("no/such"), Path::new("data"), &mut unwatched).unwrap_err();
    assert!(error.to_string().contains("`no/such`"), "{error}");
}

#[test]
fn an_archive_that_leads_out_of_the_data_folder_is_refused() {
    for path in ["../evil.bin", "set/../../evil.bin", "/evil.bin"] {
        let (files, error) = refused(&tar_gz(&[Entry::File(path, b"evil")]));
        assert!(files.is_empty(), "{path} left {files:?}");
        assert!(error.contains("leads out of the data folder"), "{error}");
    }
}

#[test]
fn a_link_in_a_members_place_is_refused() {
    let (files, error) = refused(&tar_gz(&[Entry::Link("set/train.bin", "/etc/passwd")]));
    assert!(files.is_empty() && error.contains("is a link"), "{files:?} {error}");
}

#[test]
fn unexpected_members_are_left_out() {
    let packed = Packed::new();
    let (files, error) = refused(&tar_gz(&[Entry::File("set/extra.bin", b"extra"), Entry::File("set/train.bin", &packed.train)]));
    assert_eq!(files, ["data/set/train.bin"]);
    assert!(error.contains("holds no `set/test.bin`"), "{error}");
}

#[test]
fn a_member_that_is_too_long_is_refused_and_removed() {
    let (files, error) = refused(&tar_gz(&[Entry::File("set/test.bin", &noise(9_001))]));
    assert!(files.is_empty() && error.contains("`9000` bytes"), "{files:?} {error}");
}

#[test]
fn an_archive_that_inflates_without_end_is_refused() {
    let (files, error) = refused(&tar_gz(&[Entry::File("set/extra.bin", &vec![0; 40 << 20])]));
    assert!(files.is_empty(), "{files:?} {error}");
}

#[test]
fn a_truncated_archive_is_refused() {
    let packed = Packed::new();
    let (files, error) = refused(&packed.bytes[..packed.bytes.len() / 2]);
    assert!(files.iter().all(|file| !file.ends_with("train.bin")), "{files:?}");
    assert!(error.contains("not a readable gzip-compressed tar archive"), "{error}");
}

#[test]
fn a_file_that_is_no_archive_is_refused() {
    let (files, error) = refused(b"<html>503 Service Unavailable</html>");
    assert!(files.is_empty() && error.contains("not a readable"), "{files:?} {error}");
}

#[test]
fn a_data_folder_that_is_a_file_is_an_input_output_error() {
    let (packed, around) = (Packed::new(), TempDir::new().unwrap());
    let (archive, data) = (written(&around, "mine.tgz", &packed.bytes), written(&around, "data", b"a file"));
    let result = from_path(&packed.offer("unused"), &archive, &data, &mut unwatched);
    assert!(matches!(result, Err(Error::Io { .. })), "{result:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_to_be_full() {
    // Every write to /dev/full fails as it would on a full disk.
    let around = TempDir::new().unwrap();
    std::os::unix::fs::symlink("/dev/full", around.path().join("x.part")).unwrap();
    let server = Server::start(b"x".to_vec(), &[Manner::Ranges]);
    let target = around.path().join("x");
    let result = fedeq_data::fetch::download(&server.address, &fingerprint(b"x"), &target, &impatient(), &mut unwatched);
    let error = result.unwrap_err();
    assert!(error.hint().contains("free some space"), "{error}: {}", error.hint());
}

/// One writer with one white picture of an `A`, as LEAF writes it.
fn leaf_json() -> String {
    let pixels = vec!["1.0"; 784].join(",");
    format!(r#"{{"users": ["w"], "num_samples": [1], "user_data": {{"w": {{"x": [[{pixels}]], "y": [10]}}}}}}"#)
}

fn femnist() -> Offer {
    offer("femnist").unwrap()
}

#[test]
fn a_set_without_a_download_says_how_to_make_it() {
    let error = from_publisher(&femnist(), Path::new("data"), &impatient(), &mut unwatched).unwrap_err();
    assert!(error.to_string().contains("NIST publishes scanned forms"), "{error}");
    assert!(error.hint().ends_with("fedeq data get femnist --from data/all_data"), "{}", error.hint());
}

#[test]
fn files_made_by_a_person_are_taken_from_any_level_of_the_layout() -> Result<()> {
    let around = TempDir::new().unwrap();
    let file = written(&around, "made/femnist/data/all_data/all_data_0.json", leaf_json().as_bytes());
    written(&around, "made/femnist/data/all_data/notes.txt", b"not data");
    for (index, from) in file.ancestors().take(5).enumerate() {
        let data = around.path().join(format!("data{index}"));
        from_path(&femnist(), from, &data, &mut unwatched)?;
        assert_eq!(files_under(&data), ["femnist/data/all_data/all_data_0.json"], "from {}", from.display());
    }
    Ok(())
}

#[test]
fn a_place_without_such_files_is_refused() {
    let around = TempDir::new().unwrap();
    let file = written(&around, "notes.json", b"{}");
    for from in [around.path(), &file] {
        let error = from_path(&femnist(), from, &around.path().join("data"), &mut unwatched).unwrap_err();
        assert!(error.to_string().contains("`all_data*.json`"), "{error}");
    }
}

#[test]
fn files_that_their_reader_cannot_read_are_not_copied() {
    let around = TempDir::new().unwrap();
    let file = written(&around, "all_data_0.json", b"{\"users\": ");
    let data = around.path().join("data");
    let error = from_path(&femnist(), &file, &data, &mut unwatched).unwrap_err();
    assert!(error.to_string().contains("all_data_0.json"), "{error}");
    assert!(!data.exists());
}

/// An offer of one loose file.
fn loose(address: &'static str, content: &[u8]) -> Offer {
    let Some(Offer::Recipe(recipe)) = offer("mnist") else { panic!("files, one by one") };
    Offer::Recipe(Recipe { ways: Ways::Download { address, files: vec![member("mnist/file.gz", content)] }, ..recipe })
}

#[test]
fn loose_files_are_downloaded_checked_and_kept_as_they_are() {
    let (content, data) = (noise(30_000), TempDir::new().unwrap());
    let server = Server::start(content.clone(), &[Manner::CutsAfter(10_000), Manner::Ranges]);
    let address: &'static str = format!("{}?", server.address).leak();
    from_publisher(&loose(address, &content), data.path(), &impatient(), &mut unwatched).unwrap();
    assert!(fs::read(data.path().join("mnist/file.gz")).unwrap() == content);
    let mut told = Vec::new();
    let mut observer = |event: &FetchEvent<'_>| told.push(format!("{event:?}"));
    from_publisher(&loose("http://127.0.0.1:1/", &content), data.path(), &impatient(), &mut observer).unwrap();
    assert_eq!(told, ["AlreadyThere"]);
    let error = from_publisher(&loose(address, b"something else"), data.path(), &impatient(), &mut unwatched);
    assert!(error.is_err(), "bytes that were not meant are refused");
}

#[test]
fn what_cannot_be_downloaded_says_where_it_is_and_what_files_are_read() {
    for (name, words) in [("tiny-imagenet", "unzip -q tiny-imagenet-200.zip"), ("emnist", "curl -LO https://biometrics.nist.gov")]
    {
        let data = TempDir::new().unwrap();
        let error = from_publisher(&offer(name).unwrap(), data.path(), &impatient(), &mut unwatched).unwrap_err();
        assert!(error.hint().contains(words) && error.hint().contains("files: "), "{name}: {}", error.hint());
    }
    let around = TempDir::new().unwrap();
    let error =
        from_path(&offer("tiny-imagenet").unwrap(), around.path(), &around.path().join("data"), &mut unwatched).unwrap_err();
    assert!(error.hint().contains("where it is used as it lies"), "{}", error.hint());
}

#[test]
fn every_published_fingerprint_is_well_formed() {
    for name in ["mnist", "fashion-mnist", "svhn"] {
        let Some(Offer::Recipe(Recipe { ways: Ways::Download { files, address }, folder, .. })) = offer(name) else {
            panic!("{name}")
        };
        let is_well_formed = |file: &Member| file.fingerprint.sha256.len() == 64 && file.path.starts_with(folder);
        assert!(files.iter().all(is_well_formed) && address.ends_with('/'), "{name}");
    }
    for name in ["cifar10", "cifar100"] {
        let Some(Offer::Archive(archive)) = offer(name) else { panic!("{name} is not an archive") };
        let all = archive.members.iter().map(|member| &member.fingerprint).chain([&archive.fingerprint]);
        assert!(
            all.into_iter().all(|print| print.sha256.len() == 64 && print.sha256.bytes().all(|digit| digit.is_ascii_hexdigit()))
        );
        assert!(archive.unpacked_bytes() > archive.fingerprint.bytes);
    }
}
