//! A reader of two crates is not confused: their public types do not share a name, unless they are the same idea in two forms and say so. Nor is a reader of one crate, whose
//! modules show each other types.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The same idea in two forms, as their comments say, and what every crate has one of.
const SHARED: &[&str] = &["Activation", "Affine", "Cell", "Error", "Fusion", "NormScope", "Precision", "Result", "Values"];

/// Crates and the names that modules within them share: a layer and its launches in several networks, and a request as it is sent and as Python sees it.
const SHARED_WITHIN: &[(&str, &[&str])] =
    &[("cuda", &["Dense", "Into", "Lanes", "LayerNorm", "Storage"]), ("python", &["Request"])];

/// The type that a line of source defines for others to use, if it does; `is_for_all` leaves out what only modules of the crate can see. Associated types are indented, and so are
/// enumerations in `named!`.
fn shown_type(line: &str, is_for_all: bool) -> Option<&str> {
    let is_named = line.starts_with("    pub enum ");
    let definition = if is_named { line.trim_start() } else { line }.strip_prefix("pub")?;
    let definition = match definition.strip_prefix('(') {
        Some(_) if is_for_all => return None,
        Some(restricted) => restricted.split_once(") ")?.1,
        None => definition.strip_prefix(' ')?,
    };
    let (kind, rest) = definition.strip_prefix("unsafe ").unwrap_or(definition).split_once(' ')?;
    let name = rest.split(|letter: char| !letter.is_alphanumeric()).next()?;
    ["struct", "enum", "trait", "type", "union"].contains(&kind).then_some(name)
}

/// Names of types, and the files that define them.
type Types = BTreeMap<String, BTreeSet<String>>;

/// Every type below a folder that others can use. What only tests use is in folders of its own.
fn types_below(folder: &Path, is_for_all: bool, types: &mut Types) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() && entry.file_name().is_some_and(|name| name != "tests") {
            types_below(&entry, is_for_all, types);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&entry).expect("text");
            for name in text.lines().filter_map(|line| shown_type(line, is_for_all)) {
                types.entry(name.to_owned()).or_default().insert(entry.display().to_string());
            }
        }
    }
}

/// The folders of all crates.
fn crates() -> impl Iterator<Item = std::path::PathBuf> {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    fs::read_dir(crates).expect("a folder").map(|entry| entry.expect("an entry").path())
}

/// Those that several files define.
fn defined_twice(types: Types) -> Types {
    types.into_iter().filter(|(_, files)| files.len() > 1).collect()
}

#[test]
fn public_types_share_a_name_only_where_they_say_so() {
    let mut types = Types::new();
    crates().for_each(|folder| types_below(&folder.join("src"), true, &mut types));
    assert!(types.len() > 300, "only {} types were found", types.len());
    let shared = defined_twice(types);
    let names: Vec<&str> = shared.keys().map(String::as_str).collect();
    assert_eq!(names, SHARED, "{shared:#?}");
}

#[test]
fn types_that_modules_of_a_crate_show_each_other_share_few_names() {
    let mut counted = 0;
    for folder in crates() {
        let mut types = Types::new();
        types_below(&folder.join("src"), false, &mut types);
        counted += types.len();
        let shared = defined_twice(types);
        let names: Vec<&str> = shared.keys().map(String::as_str).collect();
        let of_this = SHARED_WITHIN.iter().find(|(name, _)| folder.ends_with(name));
        assert_eq!(names, of_this.map_or(&[][..], |(_, names)| *names), "{shared:#?}");
    }
    assert!(counted > 600, "only {counted} types were found");
}
