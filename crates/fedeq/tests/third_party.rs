//! `THIRD-PARTY.md` names all crates that the program is made of, with their licences, as `Cargo.lock` has them.
//!
//! `UPDATE_THIRD_PARTY=1 cargo test --workspace --test third_party` writes it anew.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const HEAD: &str = "# Third-party notice

The program `fedeq` contains the crates below (those of a build for Linux on x86-64; other systems need a few others). Their licences follow, as their packages have them: of those that may be used under several, the MIT licence \
where it is one of them. Who passes the program on passes this notice on.

`crates/fedeq/tests/third_party.rs` writes this file and holds it to be up to date; which licences are let in stands in `deny.toml`.

";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A crate of others.
struct Foreign {
    licence: String,
    repository: String,
}

/// What the program is made of, by name and version.
fn crates() -> BTreeMap<(String, String), Foreign> {
    let form = ["--prefix=none", "--format={p}\t{l}\t{r}", "--edges=normal", "--target=x86_64-unknown-linux-gnu"];
    let tree = cargo(&[&["tree", "--package=fedeq", "--locked"], &form[..]].concat());
    let mut all = BTreeMap::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let parts: Vec<&str> = line.trim_end_matches(" (*)").split('\t').collect();
        let [package, licence, repository] = parts.as_slice() else { panic!("{line}") };
        let mut words = package.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().trim_start_matches('v'));
        if !name.starts_with("fedeq") {
            let foreign = Foreign { licence: (*licence).into(), repository: (*repository).into() };
            all.insert((name.to_owned(), version.to_owned()), foreign);
        }
    }
    all
}

/// The folders of all packages.
fn folders() -> BTreeMap<(String, String), PathBuf> {
    let arguments = ["metadata", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"];
    let metadata: Value = serde_json::from_str(&cargo(&arguments)).expect("JSON");
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let folder = |package: &Value| Path::new(&text(package, "manifest_path")).parent().map(Path::to_owned).unwrap_or_default();
    packages.map(|package| ((text(package, "name"), text(package, "version")), folder(package))).collect()
}

/// The texts of a package's licence.
fn texts(folder: &Path) -> Vec<String> {
    let names = ["licen", "copying", "notice", "unlicen"];
    let entries = fs::read_dir(folder).expect("an unpacked package").flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    let lower = |path: &Path| path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    files.retain(|path| names.iter().any(|name| lower(path).starts_with(name)));
    files.sort();
    if files.iter().any(|path| lower(path).contains("mit")) {
        files.retain(|path| lower(path).contains("mit"));
    }
    let text =
        |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).expect("readable")).replace("\r\n", "\n").trim().to_owned();
    files.iter().map(text).collect()
}

fn notice() -> String {
    let (crates, folders) = (crates(), folders());
    let mut page = HEAD.to_owned();
    page.push_str("| crate | version | licence | from |\n|---|---|---|---|\n");
    let mut by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut without: BTreeSet<String> = BTreeSet::new();
    for (key, Foreign { licence, repository }) in &crates {
        let _ = writeln!(page, "| {} | {} | {licence} | {repository} |", key.0, key.1);
        let found = texts(&folders[key]);
        if found.is_empty() {
            without.insert(format!("{} ({licence})", key.0));
        }
        for text in found {
            by_text.entry(text).or_default().insert(key.0.clone());
        }
    }
    let joined = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let _ =
        writeln!(page, "\nWithout a text in their packages, so that the name of the licence has to do: {}.", joined(&without));
    let mut sections: Vec<(String, String)> = by_text.into_iter().map(|(text, names)| (joined(&names), text)).collect();
    sections.sort();
    for (names, text) in sections {
        let indented: Vec<String> = text.lines().map(|line| format!("    {line}").trim_end().to_owned()).collect();
        let _ = write!(page, "\n## {names}\n\n{}\n", indented.join("\n"));
    }
    page
}

#[test]
fn the_notice_names_all_that_the_program_is_made_of() {
    let (path, expected) = (root().join("THIRD-PARTY.md"), notice());
    if std::env::var_os("UPDATE_THIRD_PARTY").is_some() {
        fs::write(&path, &expected).expect("writable");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "`THIRD-PARTY.md` is out of date; UPDATE_THIRD_PARTY=1 cargo test --workspace --test third_party writes it"
    );
}
