//! Tells an optimised program which commit it was built from, so that results can say who made them.
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Only there: otherwise every commit would compile everything above this crate again while one develops.
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    // A package from a registry has no history; then nothing is said.
    let Some(commit) = git(&["describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]) else { return };
    println!("cargo::rustc-env=FEDEQ_COMMIT={commit}");
    if let Some(folder) = git(&["rev-parse", "--absolute-git-dir"]) {
        watch(&Path::new(&folder).join("logs/HEAD"));
    }
    // What may differ from the commit. Git's index would tell too, but whoever looks (`git status`) writes it, and everything would be compiled again.
    if let Some(top) = git(&["rev-parse", "--show-toplevel"]) {
        watch_sources(Path::new(&top));
    }
}

/// What programs are made of: the manifests, and the sources of all crates.
fn watch_sources(top: &Path) {
    watch(&top.join("Cargo.toml"));
    watch(&top.join("Cargo.lock"));
    let crates = std::fs::read_dir(top.join("crates")).into_iter().flatten().flatten();
    for folder in crates.map(|entry| entry.path()) {
        for part in ["Cargo.toml", "src", "assets", "kernels", "ptx"] {
            watch(&folder.join(part));
        }
    }
}

/// What is not there is not watched: cargo would run this again every time.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
