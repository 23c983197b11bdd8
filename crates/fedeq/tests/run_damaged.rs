//! What is damaged or lost is named, and nothing is a dead end.
mod run_support;

use std::fs;
use std::path::Path;
use std::process::Command;

use run_support::{assert_same_files, fedeq, half_done, json, manifests, refusal, run, run_command, succeed};
use tempfile::TempDir;

fn resume(folder: &TempDir, run: &str) -> Command {
    let mut command = fedeq(folder);
    command.args(["resume", run, "--quiet"]);
    command
}

const JOURNALS: [&str; 5] = ["rounds.jsonl", "evaluations.jsonl", "heads.jsonl", "metrics.csv", "timings.jsonl"];

/// Does something to each file of a run, and puts it back.
fn damage_each(run: &Path, damage: impl Fn(&Path, Vec<u8>), then: impl Fn(&str)) {
    for name in JOURNALS {
        let path = run.join(name);
        let sound = fs::read(&path).expect("readable");
        damage(&path, sound.clone());
        then(name);
        fs::write(&path, sound).expect("writable");
    }
}

#[test]
fn a_journal_that_was_emptied_cut_or_removed_is_named_before_anything_changes() {
    let folder = TempDir::new().expect("a folder");
    let run = half_done(&folder);
    let refused = |name: &str| {
        let (error, hint) = refusal(&mut resume(&folder, "half"), 2);
        assert!(error.starts_with(&format!("`half/{name}`: ")), "{error}");
        assert!(hint.contains("bring back a copy"), "{hint}");
    };
    damage_each(&run, |path, _| fs::write(path, "").expect("writable"), refused);
    damage_each(&run, |path, _| fs::remove_file(path).expect("removable"), refused);
    damage_each(&run, |path, sound| fs::write(path, &sound[..sound.len() / 2]).expect("writable"), refused);
}

#[test]
fn what_a_journal_holds_beyond_the_checkpoint_is_cut_off() {
    let folder = TempDir::new().expect("a folder");
    let settings = ["plan.rounds=6", "plan.evaluate_every=1"];
    let whole = run(&folder, "whole", &settings);
    let run = run_support::half_done_of(&folder, "half", &settings);
    damage_each(&run, |path, sound| fs::write(path, [&sound[..], b"{\"round\": 77"].concat()).expect("writable"), |_| {});
    for name in JOURNALS {
        let path = run.join(name);
        let longer = [fs::read(&path).expect("readable"), b"{\"round\": 99".to_vec()].concat();
        fs::write(path, longer).expect("writable");
    }
    succeed(&mut resume(&folder, "half"));
    assert_same_files(&whole, &run, "longer journals");
    let told = fs::read_to_string(run.join("timings.jsonl")).expect("readable");
    assert_eq!(told.lines().count(), 6, "{told}");
}

#[test]
fn a_finished_run_says_which_journal_is_damaged() {
    let folder = TempDir::new().expect("a folder");
    let run = run(&folder, "done", &["model=linear"]);
    damage_each(
        &run,
        |path, _| fs::write(path, "").expect("writable"),
        |name| assert!(refusal(&mut resume(&folder, "done"), 2).0.starts_with(&format!("`done/{name}`: "))),
    );
    succeed(&mut resume(&folder, "done"));
}

#[test]
fn a_finished_run_whose_summary_is_lost_or_damaged_gets_it_back() {
    let folder = TempDir::new().expect("a folder");
    let run = run(&folder, "done", &["model=mlp"]);
    let summary = run.join("summary.json");
    let before = json(&summary);
    for damage in [None, Some("{\"met")] {
        match damage {
            None => fs::remove_file(&summary).expect("removable"),
            Some(text) => fs::write(&summary, text).expect("writable"),
        }
        if damage.is_none() {
            let (error, hint) = refusal(fedeq(&folder).args(["evaluate", "done"]), 2);
            assert_eq!(error, "`done` is finished, but its `summary.json` is gone");
            assert!(hint.contains("fedeq resume done"), "{hint}");
        }
        succeed(&mut resume(&folder, "done"));
        assert_eq!(json(&summary), before, "{damage:?}");
        succeed(fedeq(&folder).args(["evaluate", "done"]));
    }
}

#[test]
fn a_finished_run_whose_last_checkpoint_is_lost_is_not_used_as_if_it_were_there() {
    let folder = TempDir::new().expect("a folder");
    let settings = ["plan.rounds=40", "plan.evaluate_every=1", "model=linear"];
    let half = run_support::half_done_of(&folder, "half", &settings);
    let whole = run(&folder, "whole", &settings);
    // As if it had been finished, and its last checkpoint removed.
    for name in JOURNALS.iter().chain(&["summary.json", "status.json"]) {
        fs::copy(whole.join(name), half.join(name)).expect("writable");
    }
    for arguments in
        [&["evaluate", "half"][..], &["predict", "half", "--client", "client-00"], &["export", "half", "--out", "models"]]
    {
        let (error, hint) = refusal(fedeq(&folder).args(arguments), 2);
        assert!(error.contains("last checkpoint of `half` is gone") && error.contains("after round "), "{error}");
        assert!(hint.contains("fedeq resume half"), "{hint}");
    }
    assert!(!folder.path().join("models").exists());
    succeed(&mut resume(&folder, "half"));
    assert_same_files(&whole, &half, "the rest done again");
    succeed(fedeq(&folder).args(["evaluate", "half"]));
}

#[test]
fn a_run_whose_checkpoints_are_all_gone_is_not_silently_begun_anew() {
    let folder = TempDir::new().expect("a folder");
    let run = half_done(&folder);
    manifests(&run).iter().for_each(|path| fs::remove_file(path).expect("removable"));
    let (error, _) = refusal(&mut resume(&folder, "half"), 2);
    assert_eq!(error, "`half/checkpoints`: there is no checkpoint left in it, though rounds have been trained");
}

#[test]
fn a_run_does_not_go_on_on_another_device() {
    let folder = TempDir::new().expect("a folder");
    let run = half_done(&folder);
    let experiment = run.join("experiment.toml");
    let text = fs::read_to_string(&experiment).expect("readable");
    assert!(text.contains("device = \"cpu\""));
    fs::write(&experiment, text.replace("device = \"cpu\"", "device = \"cuda\"")).expect("writable");
    let (error, hint) = refusal(&mut resume(&folder, "half"), 2);
    assert_eq!(error, "`half` was computed on `cpu` so far, and `engine.device` is now `cuda (mixed)`");
    assert!(hint.contains("set `engine.device` back") && hint.contains("say `--device cuda`"), "{hint}");
    succeed(resume(&folder, "half").args(["--device", "cpu"]));
    let text = fs::read_to_string(&experiment).expect("readable");
    assert!(text.contains("device = \"cpu\"") && !text.contains("earlier"), "it was never anywhere else: {text}");
}

/// A disk of 900 kB, mounted where nobody else sees it. Not every system lets an ordinary user do that.
#[cfg(target_os = "linux")]
#[test]
#[allow(clippy::print_stderr, reason = "who reads the log should know that nothing was tested")]
fn a_disk_that_fills_up_during_training_costs_nothing_once_there_is_room() {
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("disk")).expect("writable");
    let in_small_disk = |script: &str| {
        let mount = "mount -t tmpfs -o size=900k tmpfs disk";
        let mut command = Command::new("unshare");
        command.current_dir(folder.path()).args(["-rm", "sh", "-c", &format!("{mount} || exit 77\n{script}")]);
        command
    };
    if !in_small_disk("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no disk can be mounted here (`unshare -rm` and `mount -t tmpfs` are needed)");
        return;
    }
    let settings = ["plan.rounds=12", "plan.sampling.fraction=0.3"];
    let whole = run(&folder, "whole", &settings);
    let arguments = run_command(&folder, "disk/run", &settings);
    let words: Vec<String> = arguments.get_args().map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let program = env!("CARGO_BIN_EXE_fedeq");
    let script = format!("{program} {}; code=$?; cp -a disk/run saved; exit $code", words.join(" "));
    let (error, hint) = refusal(&mut in_small_disk(&script), 1);
    assert!(error.ends_with("the disk is full"), "{error}");
    assert!(hint.starts_with("free some space") && hint.ends_with("`fedeq resume disk/run`"), "{hint}");
    succeed(&mut resume(&folder, "saved"));
    assert_same_files(&whole, &folder.path().join("saved"), "with room again");
}
