//! Results are the same bytes on every machine: no library takes `exp`, `ln` and their like from the system, whose last bit differs from one C library to the next. `fedeq-kernels` and `libm`
//! have the ones that are used.
use std::fs;
use std::path::Path;

/// Functions of `f32` and `f64` that the standard library leaves to the system. Not among them: square roots, rounding and fused products, which are exact.
const SYSTEM: [&str; 22] = [
    ".exp()",
    ".exp2()",
    ".exp_m1()",
    ".ln()",
    ".ln_1p()",
    ".log(",
    ".log2()",
    ".log10()",
    ".powf(",
    ".sin()",
    ".cos()",
    ".sin_cos()",
    ".tan()",
    ".asin()",
    ".acos()",
    ".atan()",
    ".atan2(",
    ".sinh()",
    ".cosh()",
    ".tanh()",
    ".hypot(",
    ".cbrt()",
];

/// Crates that take them from the system whenever anything else in a build wants the standard library's.
const BY_SYSTEM: [&str; 3] = ["num-traits", "rand_distr", "statrs"];

/// What is left out: tests, the networks run by burn for tests, and the layer for those who bring networks of burn's tensors.
const LEFT_OUT: [&str; 3] = ["tests", "reference", "tensor"];

/// Every use in the sources below a folder, but for tests and comments.
fn uses(folder: &Path, found: &mut Vec<String>, files: &mut usize) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if LEFT_OUT.iter().any(|name| entry.file_stem().is_some_and(|stem| stem == *name)) {
            continue;
        }
        if entry.is_dir() {
            uses(&entry, found, files);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            *files += 1;
            let text = fs::read_to_string(&entry).expect("text");
            let code =
                text.lines().take_while(|line| line.trim() != "#[cfg(test)]").filter(|line| !line.trim_start().starts_with("//"));
            let of_system = code.filter(|line| SYSTEM.iter().any(|name| line.contains(name)));
            found.extend(of_system.map(|line| format!("{}: {}", entry.display(), line.trim())));
        }
    }
}

#[test]
fn no_library_takes_elementary_functions_from_the_system() {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let (mut found, mut files) = (Vec::new(), 0);
    for entry in fs::read_dir(crates).expect("a folder").map(|entry| entry.expect("an entry")) {
        if !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            uses(&entry.path().join("src"), &mut found, &mut files);
        }
    }
    assert!(files > 500, "only {files} files were found");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_library_depends_on_a_crate_that_does() {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for entry in fs::read_dir(crates).expect("a folder").map(|entry| entry.expect("an entry")) {
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let manifest: toml::Table = manifest.parse().expect("a manifest");
        let needed = manifest.get("dependencies").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        assert!(BY_SYSTEM.iter().all(|name| !needed.contains_key(*name)), "{}: {needed:?}", entry.path().display());
    }
}
