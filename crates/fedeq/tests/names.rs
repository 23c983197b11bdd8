//! A reader of two crates is not confused: their public types do not share a name, unless they are the same idea in two forms and say so.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The same idea in two forms, as their comments say, and what every crate has one of.
const SHARED: &[&str] = &["Activation", "Affine", "Cell", "Error", "Fusion", "NormScope", "Precision", "Result", "Values"];

/// The type that a line of source defines for all to use, if it does. Associated types are indented, and so are enumerations in `named!`.
fn public_type(line: &str) -> Option<&str> {
    let is_named = line.starts_with("    pub enum ");
    let definition = if is_named { line.trim_start() } else { line }.strip_prefix("pub ")?;
    let (kind, rest) = definition.strip_prefix("unsafe ").unwrap_or(definition).split_once(' ')?;
    let name = rest.split(|letter: char| !letter.is_alphanumeric()).next()?;
    ["struct", "enum", "trait", "type", "union"].contains(&kind).then_some(name)
}

/// Every public type below a folder, with the file that defines it.
fn public_types(folder: &Path, types: &mut BTreeMap<String, BTreeSet<String>>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            public_types(&entry, types);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&entry).expect("text");
            for name in text.lines().filter_map(public_type) {
                types.entry(name.to_owned()).or_default().insert(entry.display().to_string());
            }
        }
    }
}

#[test]
fn public_types_share_a_name_only_where_they_say_so() {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut types = BTreeMap::new();
    for entry in fs::read_dir(crates).expect("a folder") {
        public_types(&entry.expect("an entry").path().join("src"), &mut types);
    }
    assert!(types.len() > 300, "only {} types were found", types.len());
    let shared: BTreeMap<_, _> = types.into_iter().filter(|(_, files)| files.len() > 1).collect();
    let names: Vec<&str> = shared.keys().map(String::as_str).collect();
    assert_eq!(names, SHARED, "{shared:#?}");
}
