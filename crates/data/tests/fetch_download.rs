//! One file over HTTP, from servers that misbehave.
#![cfg(feature = "fetch")]
mod fetch_support;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fedeq_data::fetch::{FetchEvent, Fingerprint, Patience, download};
use fedeq_data::{Error, Result};
use fetch_support::{Manner, Server, fingerprint, impatient, noise, unwatched};
use tempfile::TempDir;

const LENGTH: usize = 300_000;

/// A server with a file, and a folder to download it to.
struct Scene {
    server: Server,
    content: Vec<u8>,
    folder: TempDir,
}

impl Scene {
    fn new(manners: &[Manner]) -> Self {
        let content = noise(LENGTH);
        Self { server: Server::start(content.clone(), manners), content, folder: TempDir::new().unwrap() }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("set.tar.gz")
    }

    fn part(&self) -> PathBuf {
        self.folder.path().join("set.tar.gz.part")
    }

    fn download(&self) -> Result<()> {
        self.download_expecting(&fingerprint(&self.content), &impatient())
    }

    fn download_expecting(&self, expected: &Fingerprint, patience: &Patience) -> Result<()> {
        download(&self.server.address, expected, &self.target(), patience, &mut unwatched)
    }

    fn assert_arrived(&self) {
        assert!(fs::read(self.target()).unwrap() == self.content, "the file differs from what the server holds");
        assert!(!self.part().exists(), "the partial file is still there");
    }
}

/// The problem of a failed download.
fn problem(result: Result<()>) -> String {
    match result.expect_err("the download should have failed") {
        Error::Download { problem, remedy, .. } => {
            assert!(remedy.contains("--from"), "the hint names no way out: {remedy}");
            problem
        }
        other => panic!("not a download error: {other}"),
    }
}

#[test]
fn a_file_arrives_whole_in_one_request() {
    let scene = Scene::new(&[Manner::Ranges]);
    scene.download().unwrap();
    scene.assert_arrived();
    assert_eq!(scene.server.ranges(), [""]);
}

#[test]
fn a_file_without_a_declared_length_arrives_too() {
    let scene = Scene::new(&[Manner::WithoutLength]);
    scene.download().unwrap();
    scene.assert_arrived();
}

#[test]
fn a_file_that_is_there_and_intact_is_not_asked_for() {
    let scene = Scene::new(&[Manner::Ranges]);
    fs::write(scene.target(), &scene.content).unwrap();
    scene.download().unwrap();
    assert!(scene.server.ranges().is_empty());
}

#[test]
fn a_file_that_is_there_but_wrong_is_replaced() {
    let scene = Scene::new(&[Manner::Ranges]);
    fs::write(scene.target(), b"not it").unwrap();
    scene.download().unwrap();
    scene.assert_arrived();
}

#[test]
fn a_cut_connection_is_continued_where_it_was_cut() {
    let scene = Scene::new(&[Manner::CutsAfter(100_000), Manner::CutsAfter(50_000), Manner::Ranges]);
    scene.download().unwrap();
    scene.assert_arrived();
    assert_eq!(scene.server.ranges(), ["", "bytes=100000-", "bytes=150000-"]);
}

#[test]
fn attempts_that_bring_something_new_do_not_count_against_the_limit() {
    let scene = Scene::new(&[Manner::CutsAfter(40_000)]);
    scene.download().unwrap();
    scene.assert_arrived();
    assert!(scene.server.ranges().len() > impatient().attempts as usize);
}

#[test]
fn a_partial_file_from_an_earlier_run_is_continued() {
    let scene = Scene::new(&[Manner::Ranges]);
    fs::write(scene.part(), &scene.content[..123_456]).unwrap();
    scene.download().unwrap();
    scene.assert_arrived();
    assert_eq!(scene.server.ranges(), ["bytes=123456-"]);
}

#[test]
fn a_partial_file_that_is_in_fact_whole_needs_no_request() {
    let scene = Scene::new(&[Manner::Ranges]);
    fs::write(scene.part(), &scene.content).unwrap();
    scene.download().unwrap();
    scene.assert_arrived();
    assert!(scene.server.ranges().is_empty());
}

#[test]
fn a_partial_file_of_something_else_is_thrown_away_and_the_download_starts_over() {
    let scene = Scene::new(&[Manner::Ranges]);
    fs::write(scene.part(), vec![0; 1000]).unwrap();
    scene.download().unwrap();
    scene.assert_arrived();
    assert_eq!(scene.server.ranges(), ["bytes=1000-", ""]);
}

#[test]
fn a_partial_file_longer_than_the_whole_is_thrown_away() {
    let scene = Scene::new(&[Manner::Ranges]);
    fs::write(scene.part(), vec![0; LENGTH + 1]).unwrap();
    scene.download().unwrap();
    scene.assert_arrived();
    assert_eq!(scene.server.ranges(), [""]);
}

#[test]
fn a_server_that_ignores_range_makes_the_download_start_over() {
    let scene = Scene::new(&[Manner::IgnoresRange]);
    fs::write(scene.part(), &scene.content[..1000]).unwrap();
    scene.download().unwrap();
    scene.assert_arrived();
}

#[test]
fn a_partial_answer_that_starts_elsewhere_is_not_believed() {
    let scene = Scene::new(&[Manner::WrongRange, Manner::Ranges]);
    fs::write(scene.part(), &scene.content[..1000]).unwrap();
    scene.download().unwrap();
    scene.assert_arrived();
    assert_eq!(scene.server.ranges(), ["bytes=1000-", ""]);
}

#[test]
fn wrong_bytes_are_refused_and_leave_nothing_behind() {
    let scene = Scene::new(&[Manner::Ranges]);
    let expected = Fingerprint { sha256: "0".repeat(64), ..fingerprint(&scene.content) };
    let problem = problem(scene.download_expecting(&expected, &impatient()));
    assert!(problem.contains("SHA-256"), "{problem}");
    assert!(!scene.target().exists() && !scene.part().exists());
}

#[test]
fn a_file_of_another_length_is_refused_before_it_is_received() {
    let scene = Scene::new(&[Manner::Ranges]);
    let expected = Fingerprint { bytes: LENGTH as u64 + 7, ..fingerprint(&scene.content) };
    let problem = problem(scene.download_expecting(&expected, &impatient()));
    assert!(problem.contains("`300000` bytes where `300007`"), "{problem}");
}

#[test]
fn a_server_without_end_is_cut_off_at_the_expected_length() {
    let scene = Scene::new(&[Manner::WithoutLength]);
    let expected = Fingerprint { bytes: 1000, ..fingerprint(&scene.content) };
    let problem = problem(scene.download_expecting(&expected, &impatient()));
    assert!(problem.contains("more than the expected `1000` bytes"), "{problem}");
}

#[test]
fn a_missing_file_is_not_asked_for_twice() {
    let scene = Scene::new(&[Manner::Status("404 Not Found")]);
    let problem = problem(scene.download());
    assert!(problem.contains("404 Not Found"), "{problem}");
    assert_eq!(scene.server.ranges().len(), 1);
}

#[test]
fn a_server_in_passing_trouble_is_asked_again() {
    let scene = Scene::new(&[Manner::Status("503 Service Unavailable"), Manner::Ranges]);
    scene.download().unwrap();
    scene.assert_arrived();
}

#[test]
fn a_server_in_lasting_trouble_is_given_up_after_the_agreed_attempts() {
    let scene = Scene::new(&[Manner::Status("500 Internal Server Error")]);
    let problem = problem(scene.download());
    assert!(problem.contains("500"), "{problem}");
    assert_eq!(scene.server.ranges().len(), impatient().attempts as usize);
}

#[test]
fn a_silent_server_is_given_up_in_bounded_time() {
    let scene = Scene::new(&[Manner::Silent]);
    let start = Instant::now();
    let problem = problem(scene.download());
    assert!(problem.contains("in time"), "{problem}");
    assert!(start.elapsed() < impatient().total);
}

#[test]
fn a_server_that_stalls_halfway_is_asked_again_for_the_rest() {
    let scene = Scene::new(&[Manner::StallsAfter(65_536), Manner::Ranges]);
    scene.download().unwrap();
    scene.assert_arrived();
    assert_eq!(scene.server.ranges(), ["", "bytes=65536-"]);
}

#[test]
fn the_total_time_is_a_limit_of_its_own() {
    let scene = Scene::new(&[Manner::Silent]);
    let patience = Patience { silence: Duration::from_secs(60), total: Duration::from_millis(300), ..impatient() };
    let start = Instant::now();
    problem(scene.download_expecting(&fingerprint(&scene.content), &patience));
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn no_server_listening_is_a_download_error() {
    let folder = TempDir::new().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/nothing", listener.local_addr().unwrap());
    drop(listener);
    let result = download(&address, &fingerprint(b"x"), &folder.path().join("x"), &impatient(), &mut unwatched);
    assert!(problem(result).contains("connection failed"));
}

#[test]
fn a_failed_download_keeps_what_has_arrived_for_the_next_one() {
    let scene = Scene::new(&[Manner::CutsAfter(5000), Manner::Status("404 Not Found"), Manner::Ranges]);
    problem(scene.download());
    assert_eq!(fs::read(scene.part()).unwrap(), scene.content[..5000]);
    scene.download().unwrap();
    scene.assert_arrived();
}

#[test]
fn progress_starts_where_the_download_resumes_and_ends_at_the_whole() {
    let scene = Scene::new(&[Manner::Ranges]);
    fs::write(scene.part(), &scene.content[..1000]).unwrap();
    let mut seen = Vec::new();
    let mut watch = |event: &FetchEvent<'_>| {
        if let FetchEvent::Downloaded { done, total } = event {
            seen.push((*done, *total));
        }
    };
    download(&scene.server.address, &fingerprint(&scene.content), &scene.target(), &impatient(), &mut watch).unwrap();
    assert_eq!(seen.first(), Some(&(1000, LENGTH as u64)));
    assert_eq!(seen.last(), Some(&(LENGTH as u64, LENGTH as u64)));
    assert!(seen.is_sorted());
}

#[test]
fn a_second_download_of_the_same_file_is_turned_away() {
    let scene = Scene::new(&[Manner::Ranges]);
    let held = fs::File::create(scene.part()).unwrap();
    held.lock().unwrap();
    let error = scene.download().unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_to_is_an_input_output_error() {
    let scene = Scene::new(&[Manner::Ranges]);
    let target = scene.folder.path().join("no such folder").join("set.tar.gz");
    let result = download(&scene.server.address, &fingerprint(&scene.content), &target, &impatient(), &mut unwatched);
    assert!(matches!(result, Err(Error::Io { .. })));
}
