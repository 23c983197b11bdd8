//! Crates depend on each other only in the direction of ARCHITECTURE.md.
use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::MetadataCommand;

/// Every crate of the house, also those still to come, and the crates it may know.
const ALLOWED: &[(&str, &[&str])] = &[
    ("fedeq-equilibrium", &["burn"]),
    ("fedeq-kernels", &["burn"]),
    ("fedeq-data", &[]),
    ("fedeq-models", &["burn", "fedeq-equilibrium", "fedeq-kernels"]),
    ("fedeq-core", &["burn", "fedeq-equilibrium", "fedeq-kernels", "fedeq-data", "fedeq-models"]),
    ("fedeq-flower", &["burn", "fedeq-equilibrium", "fedeq-data", "fedeq-models", "fedeq-core"]),
    ("fedeq", &["burn", "fedeq-equilibrium", "fedeq-kernels", "fedeq-data", "fedeq-models", "fedeq-core", "fedeq-flower"]),
    ("fedeq-benchmarks", &["burn", "fedeq-equilibrium", "fedeq-kernels", "fedeq-data", "fedeq-models", "fedeq-core"]),
];

/// For every crate of the workspace, which of burn and our own crates it depends on, tests and build scripts included.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().expect("cargo metadata");
    let known = |name: &str| name == "burn" || name.starts_with("burn-") || name.starts_with("fedeq");
    let dependencies = |package: &cargo_metadata::Package| {
        let names = package.dependencies.iter().map(|dependency| dependency.name.clone());
        names.filter(|name| known(name)).collect()
    };
    metadata.packages.iter().map(|package| (package.name.to_string(), dependencies(package))).collect()
}

#[test]
fn crates_depend_only_in_the_allowed_direction() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for (name, dependencies) in edges() {
        let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("`{name}` has no place in ARCHITECTURE.md yet"));
        for dependency in dependencies {
            assert!(may.contains(&dependency.as_str()), "`{name}` must not depend on `{dependency}`");
        }
    }
}

#[test]
fn the_check_sees_the_edges_there_are() {
    let edges = edges();
    assert!(edges["fedeq-models"].contains("fedeq-equilibrium"));
    assert!(edges["fedeq-data"].is_empty());
}
