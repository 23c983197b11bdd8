//! `THIRD-PARTY.md` names all that the program and the Python package are made of, with their licences: crates as the lock files have them, and files in this repository
//! that others have made.
//!
//! `UPDATE_THIRD_PARTY=1 cargo test --workspace --test third_party` writes it anew.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const HEAD: &str = "# Third-party notice

The program `fedeq` contains the crates below (those of a build for Linux on x86-64; other systems need a few others), and files that others have made; the Python package contains all of that and a few crates more. Their licences follow, as their packages have them: of those that may be used under several, the MIT licence \
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

/// A file in this repository that others have made, and that the program contains.
struct Enclosed {
    name: &'static str,
    /// The file.
    path: &'static str,
    /// What the file says about its version.
    version: &'static str,
    licence: &'static str,
    from: &'static str,
    /// The text of its licence, if the name is not enough.
    text: Option<&'static str>,
}

const ENCLOSED: [Enclosed; 4] = [
    Enclosed {
        name: "uPlot",
        path: "crates/viewer/assets/vendor/uPlot.iife.min.js",
        version: "1.6.32",
        licence: "MIT",
        from: "https://github.com/leeoniya/uPlot",
        text: Some("crates/viewer/assets/vendor/LICENSE-uPlot"),
    },
    Enclosed {
        name: "DejaVu Sans",
        path: "crates/report/assets/fonts/DejaVuSans.ttf",
        version: "2.35",
        licence: "Bitstream Vera and Arev",
        from: "https://dejavu-fonts.github.io",
        text: Some("crates/report/assets/fonts/LICENSE"),
    },
    Enclosed {
        name: "DejaVu Sans Bold",
        path: "crates/report/assets/fonts/DejaVuSans-Bold.ttf",
        version: "2.35",
        licence: "Bitstream Vera and Arev",
        from: "https://dejavu-fonts.github.io",
        text: Some("crates/report/assets/fonts/LICENSE"),
    },
    Enclosed {
        name: "Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, 1998)",
        path: "crates/data/assets/digits.bin",
        version: "",
        licence: "CC BY 4.0",
        from: "https://doi.org/10.24432/C50P49",
        text: None,
    },
];

/// Files that the program contains and that look like somebody else's: all of them are enclosed, or beside one that is.
const VENDORED: [&str; 2] = ["crates/viewer/assets/vendor", "crates/report/assets/fonts"];

/// The packages whose crates are named: the program, and the module of the Python package, each with the manifest of its workspace.
const PROGRAM: (&str, &str) = ("fedeq", "Cargo.toml");
const MODULE: (&str, &str) = ("fedeq-python", "crates/python/Cargo.toml");

/// A crate of others.
struct Foreign {
    licence: String,
    repository: String,
}

/// What a package is made of, by name and version.
fn crates((package, manifest): (&str, &str)) -> BTreeMap<(String, String), Foreign> {
    let form = ["--prefix=none", "--format={p}\t{l}\t{r}", "--edges=normal", "--target=x86_64-unknown-linux-gnu"];
    let what = ["tree", "--manifest-path", manifest, "--package", package, "--locked"];
    let tree = cargo(&[&what, &form[..]].concat());
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

/// The folders of all packages of a workspace.
fn folders(manifest: &str) -> BTreeMap<(String, String), PathBuf> {
    let platform = "--filter-platform=x86_64-unknown-linux-gnu";
    let arguments = ["metadata", "--manifest-path", manifest, "--locked", "--format-version=1", platform];
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

/// The texts of licences, and what they are of.
#[derive(Default)]
struct Texts {
    by_text: BTreeMap<String, BTreeSet<String>>,
    without: BTreeSet<String>,
}

impl Texts {
    /// Adds a table of crates and their texts.
    fn list(&mut self, page: &mut String, crates: &BTreeMap<(String, String), Foreign>, manifest: &str) {
        let folders = folders(manifest);
        page.push_str("| crate | version | licence | from |\n|---|---|---|---|\n");
        for (key, Foreign { licence, repository }) in crates {
            let _ = writeln!(page, "| {} | {} | {licence} | {repository} |", key.0, key.1);
            let found = texts(&folders[key]);
            if found.is_empty() {
                self.without.insert(format!("{} ({licence})", key.0));
            }
            for text in found {
                self.by_text.entry(text).or_default().insert(key.0.clone());
            }
        }
    }

    /// Adds a table of files and their texts.
    fn enclose(&mut self, page: &mut String) {
        page.push_str("| file | version | licence | from |\n|---|---|---|---|\n");
        for Enclosed { name, path, version, licence, from, text } in ENCLOSED {
            let _ = writeln!(page, "| {name} (`{path}`) | {version} | {licence} | {from} |");
            if let Some(text) = text {
                let text = fs::read_to_string(root().join(text)).expect("a text").trim().to_owned();
                self.by_text.entry(text).or_default().insert(name.into());
            }
        }
    }

    /// All of them.
    fn write(self, page: &mut String) {
        let joined = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        let without = joined(&self.without);
        let _ = writeln!(page, "\nWithout a text in their packages, so that the name of the licence has to do: {without}.");
        let mut sections: Vec<(String, String)> = self.by_text.into_iter().map(|(text, names)| (joined(&names), text)).collect();
        sections.sort();
        for (names, text) in sections {
            let indented: Vec<String> = text.lines().map(|line| format!("    {line}").trim_end().to_owned()).collect();
            let _ = write!(page, "\n## {names}\n\n{}\n", indented.join("\n"));
        }
    }
}

fn notice() -> String {
    let (program, mut module) = (crates(PROGRAM), crates(MODULE));
    module.retain(|key, _| !program.contains_key(key));
    let (mut page, mut texts) = (HEAD.to_owned(), Texts::default());
    texts.list(&mut page, &program, PROGRAM.1);
    page.push_str("\nFiles of others, which are in this repository and in the program:\n\n");
    texts.enclose(&mut page);
    page.push_str("\nThe Python package contains these crates beside:\n\n");
    texts.list(&mut page, &module, MODULE.1);
    texts.write(&mut page);
    page
}

#[test]
fn files_of_others_are_there_and_in_the_version_that_the_notice_names() {
    for Enclosed { name, path, version, .. } in ENCLOSED {
        let bytes = fs::read(root().join(path)).expect(name);
        let is_named = bytes.windows(version.len().max(1)).any(|window| version.is_empty() || window == version.as_bytes());
        assert!(is_named, "{name}: `{path}` does not say that it is {version}");
    }
    let stem = |path: &Path| path.file_name().map(|name| name.to_string_lossy().split('.').next().unwrap_or_default().to_owned());
    // A style sheet belongs to the script beside it; a page says where they are from.
    let is_known = |path: &Path| {
        let is_part = |own: &Path| own.parent() == path.parent() && stem(own) == stem(path);
        let is_enclosed = |enclosed: &Enclosed| {
            is_part(&root().join(enclosed.path)) || enclosed.text.is_some_and(|text| root().join(text) == *path)
        };
        path.ends_with("README.md") || ENCLOSED.iter().any(is_enclosed)
    };
    for folder in VENDORED {
        for path in fs::read_dir(root().join(folder)).expect("a folder").map(|entry| entry.expect("readable").path()) {
            assert!(is_known(&path), "`{}` is in no line of the notice", path.display());
        }
    }
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
