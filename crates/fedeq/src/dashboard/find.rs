//! The run folders below a folder.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Sweeps and figures keep their runs in folders of their own; deeper than this nobody nests.
const DEPTH: usize = 4;

/// What a run folder has, even a damaged one.
const SIGNS: [&str; 4] = ["experiment.toml", "status.json", "rounds.jsonl", "version.json"];

/// Run folders by their names, which are their paths below `root`, parts separated by `/`. Links are not followed, so all of them are
/// really there. A `root` that is a run itself is the only one, by its own name.
pub(super) fn runs_below(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    if is_run(root) {
        found.insert(own_name(root), root.to_owned());
    } else {
        collect(root, "", DEPTH, &mut found);
    }
    found
}

fn own_name(root: &Path) -> String {
    let whole = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    whole.file_name().map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
}

fn collect(folder: &Path, name: &str, depth: usize, found: &mut BTreeMap<String, PathBuf>) {
    let folders = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in folders.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        // A name that is no text cannot stand in an address; a hidden folder wants to be left alone.
        let Some(own) = entry.file_name().to_str().filter(|own| !own.starts_with('.')).map(str::to_owned) else { continue };
        let (path, name) = (entry.path(), if name.is_empty() { own } else { format!("{name}/{own}") });
        if is_run(&path) {
            found.insert(name, path);
        } else if depth > 1 {
            collect(&path, &name, depth - 1, found);
        }
    }
}

fn is_run(folder: &Path) -> bool {
    SIGNS.iter().any(|sign| folder.join(sign).exists())
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

    #[test]
    fn runs_are_found_in_folders_of_folders_and_nothing_else_is() {
        let paths =
            ["b/status.json", "a/x/experiment.toml", "a/sweep.csv", ".c/status.json", "d/letter.txt", "1/2/3/4/5/status.json"];
        let folder = tree(&paths);
        assert_eq!(runs_below(folder.path()).into_keys().collect::<Vec<_>>(), ["a/x", "b"]);
    }

    #[test]
    fn a_run_itself_is_the_only_one() {
        let folder = tree(&["one/experiment.toml", "one/clients/status.json"]);
        assert_eq!(runs_below(&folder.path().join("one")).into_keys().collect::<Vec<_>>(), ["one"]);
    }

    #[test]
    fn a_folder_that_is_not_there_holds_nothing() {
        assert!(runs_below(Path::new("nowhere/at/all")).is_empty());
    }
}
