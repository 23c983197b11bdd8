//! Small runs on digits, and what must be the same of them.
#![allow(dead_code, reason = "every test uses some of it")]
use std::collections::BTreeMap;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Few samples, few clients, few rounds: the tests are about bytes, not about accuracy.
pub(crate) const TINY: [&str; 7] = [
    "plan.rounds=3",
    "plan.evaluate_every=2",
    "plan.sampling.fraction=0.1",
    "training.epochs=1",
    "training.personal_epochs=1",
    "engine.checkpoint_every=1",
    "data.unseen={ count = 2 }",
];

/// The program in a folder, with no data folder from outside.
pub(crate) fn fedeq(folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    command.current_dir(folder.path()).env_remove("FEDEQ_DATA").env("RUST_BACKTRACE", "0");
    command
}

/// `fedeq run` with tiny settings and some more.
pub(crate) fn run_command(folder: &TempDir, out: &str, settings: &[&str]) -> Command {
    let mut command = fedeq(folder);
    command.args(["run", "--out", out]);
    for setting in TINY.iter().chain(settings) {
        command.args(["--set", setting]);
    }
    command
}

/// A run from beginning to end.
pub(crate) fn run(folder: &TempDir, out: &str, settings: &[&str]) -> PathBuf {
    succeed(&mut run_command(folder, out, settings));
    folder.path().join(out)
}

pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The error and the hint of a command that must end with this exit code.
pub(crate) fn refusal(command: &mut Command, code: i32) -> (String, String) {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{text}");
    let text = &text[text.find("error: ").unwrap_or_else(|| panic!("no error in:\n{text}"))..];
    let (error, hint) = text.split_once("\nhint: ").unwrap_or_else(|| panic!("no hint in:\n{text}"));
    (error["error: ".len()..].into(), hint.trim_end().into())
}

/// A program at work, which is killed at the latest when the test ends: one that trains for ever must not outlive a test that failed.
pub(crate) struct Running(Child);

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// As `kill -9` does it.
    pub(crate) fn kill_now(&mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("ours");
    }

    /// Waits until something is so. A program that has ended will not make it so, nor one that takes minutes over it.
    pub(crate) fn wait_until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            let ended = self.0.try_wait().expect("ours");
            assert!(ended.is_none() || is_so(), "the program ended ({ended:?}) before {what}");
            assert!(begun.elapsed() < Duration::from_secs(120), "not in two minutes: {what}");
            sleep(Duration::from_millis(2));
        }
    }

    /// Waits for a checkpoint of this round or a later one: of those before it only the last few are kept.
    pub(crate) fn await_checkpoint(&mut self, run: &Path, round: u64) {
        self.wait_until(&format!("the checkpoint of round {round}"), || last_checkpoint(run) >= Some(round));
    }
}

/// Starts a command whose output nobody reads.
pub(crate) fn spawn(command: &mut Command) -> Running {
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts"))
}

/// The round of a run's last checkpoint, by the name of its manifest.
pub(crate) fn last_checkpoint(run: &Path) -> Option<u64> {
    manifests(run).last()?.file_stem()?.to_str()?.parse().ok()
}

/// A run that was killed after some of its two hundred rounds: nothing of the end has been written.
pub(crate) fn half_done(folder: &TempDir) -> PathBuf {
    half_done_of(folder, "half", &["plan.rounds=200", "plan.evaluate_every=1"])
}

/// A run with these settings that was killed once a few rounds were over.
pub(crate) fn half_done_of(folder: &TempDir, out: &str, settings: &[&str]) -> PathBuf {
    let path = folder.path().join(out);
    let mut child = spawn(&mut run_command(folder, out, settings));
    child.await_checkpoint(&path, 3);
    child.kill_now();
    assert!(!path.join("summary.json").exists(), "it was too fast to be killed");
    path
}

/// The manifests of a run's checkpoints, oldest first.
pub(crate) fn manifests(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().map(|entry| entry.expect("readable").path());
    let mut manifests: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    manifests.sort();
    manifests
}

/// The files of a run that must be the same whenever the experiment is the same.
pub(crate) fn deterministic_files(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for name in ["rounds.jsonl", "evaluations.jsonl", "heads.jsonl", "metrics.csv"] {
        files.insert(name.to_owned(), fs::read(run.join(name)).expect(name));
    }
    for folder in ["checkpoints", "clients"] {
        for entry in fs::read_dir(run.join(folder)).expect(folder) {
            let path = entry.expect("readable").path();
            let name = format!("{folder}/{}", path.file_name().expect("a name").to_string_lossy());
            files.insert(name, fs::read(&path).expect("readable"));
        }
    }
    let mut summary = json(&run.join("summary.json"));
    summary.as_object_mut().expect("an object").remove("resources");
    files.insert("summary.json".into(), summary.to_string().into_bytes());
    files
}

/// Says which files differ rather than how.
pub(crate) fn assert_same_files(left: &Path, right: &Path, what: &str) {
    let (left, right) = (deterministic_files(left), deterministic_files(right));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&left), names(&right), "{what}");
    let different: Vec<&String> = left.iter().filter(|(name, bytes)| right[*name] != **bytes).map(|(name, _)| name).collect();
    assert!(different.is_empty(), "{what}: {different:?} differ");
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("readable")).expect("JSON")
}
