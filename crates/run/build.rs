//! Tells an optimised program which commit it was built from, so that results can say who made them.
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Only there: otherwise every commit would compile everything above this crate again while one develops.
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    if let Some(folder) = git(&["rev-parse", "--absolute-git-dir"]) {
        println!("cargo::rerun-if-changed={folder}/logs/HEAD");
        println!("cargo::rerun-if-changed={folder}/index");
    }
    // A package from a registry has no history; then nothing is said.
    if let Some(commit) = git(&["describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]) {
        println!("cargo::rustc-env=FEDEQ_COMMIT={commit}");
    }
}
