//! Which folders are those of runs.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Sweeps and figures keep their runs in folders of their own; deeper than this nobody nests.
const DEPTH: usize = 4;

/// What a run folder has.
const SIGNS: [&str; 4] = ["experiment.toml", "status.json", "rounds.jsonl", "version.json"];

/// Whether a folder is that of a run, even of a damaged one: it holds at least two of the files that every run has. One of them
/// alone, such as an `experiment.toml` to start runs from, may lie anywhere.
pub(super) fn is_run(folder: &Path) -> bool {
    SIGNS.iter().filter(|sign| folder.join(sign).exists()).count() >= 2
}

/// Whether links to folders are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// They are.
    Followed,
    /// They are not, so that everything found is really there.
    PassedOver,
}

/// Run folders by their names, which are their paths below `root`, parts separated by `/`. A `root` that is a run itself is the only
/// one, by its own name.
pub fn runs_below(root: &Path, links: Links) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    if is_run(root) {
        found.insert(own_name(root), root.to_owned());
    } else {
        collect(root, "", DEPTH, links, &mut found);
    }
    found
}

fn own_name(root: &Path) -> String {
    let whole = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    whole.file_name().map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
}

fn collect(folder: &Path, name: &str, depth: usize, links: Links, found: &mut BTreeMap<String, PathBuf>) {
    let is_folder = |entry: &fs::DirEntry| match links {
        Links::Followed => entry.path().is_dir(),
        Links::PassedOver => entry.file_type().is_ok_and(|kind| kind.is_dir()),
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten().filter(is_folder) {
        // A name that is no text cannot stand in an address; a hidden folder wants to be left alone.
        let Some(own) = entry.file_name().to_str().filter(|own| !own.starts_with('.')).map(str::to_owned) else { continue };
        let (path, name) = (entry.path(), if name.is_empty() { own } else { format!("{name}/{own}") });
        if is_run(&path) {
            found.insert(name, path);
        } else if depth > 1 {
            collect(&path, &name, depth - 1, links, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::TempDir::new().expect("a folder");
        for path in paths {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
            fs::write(path, "").expect("writable");
        }
        folder
    }

    fn names(root: &Path, links: Links) -> Vec<String> {
        runs_below(root, links).into_keys().collect()
    }

    #[test]
    fn runs_are_found_in_folders_of_folders_and_nothing_else_is() {
        let runs = ["b", "a/x", ".c", "1/2/3/4/5"].map(|run| [format!("{run}/status.json"), format!("{run}/version.json")]);
        let others = ["a/sweep.csv", "d/letter.txt", "experiment.toml", "a/experiment.toml"].map(str::to_owned);
        let paths: Vec<String> = runs.concat().into_iter().chain(others).collect();
        let folder = tree(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(names(folder.path(), Links::PassedOver), ["a/x", "b"]);
    }

    #[test]
    fn a_run_itself_is_the_only_one() {
        let folder = tree(&["one/experiment.toml", "one/rounds.jsonl", "one/clients/status.json"]);
        assert_eq!(names(&folder.path().join("one"), Links::PassedOver), ["one"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_where_that_is_wanted() {
        let folder = tree(&["one/experiment.toml", "one/status.json", "chosen/letter.txt"]);
        std::os::unix::fs::symlink(folder.path().join("one"), folder.path().join("chosen/link")).expect("writable");
        assert_eq!(names(&folder.path().join("chosen"), Links::Followed), ["link"]);
        assert!(names(&folder.path().join("chosen"), Links::PassedOver).is_empty());
    }

    #[test]
    fn a_folder_that_is_not_there_holds_nothing() {
        assert!(names(Path::new("nowhere/at/all"), Links::Followed).is_empty());
    }
}
