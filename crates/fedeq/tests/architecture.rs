//! Crates depend on each other only in the direction of ARCHITECTURE.md, and spare their users what they do not need.
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Every crate of the house, also those still to come, and the crates it may know.
const ALLOWED: &[(&str, &[&str])] = &[
    ("fedeq-equilibrium", &["burn"]),
    ("fedeq-kernels", &[]),
    ("fedeq-data", &[]),
    ("fedeq-memory", &[]),
    ("fedeq-secure", &[]),
    ("fedeq-models", &["fedeq-equilibrium"]),
    ("fedeq-reference", &["burn", "fedeq-equilibrium", "fedeq-models"]),
    // The engine in core's tests only.
    ("fedeq-core", &["fedeq-equilibrium", "fedeq-data", "fedeq-memory", "fedeq-models", "fedeq-secure", "fedeq-cpu"]),
    (
        "fedeq-cpu",
        &["fedeq-equilibrium", "fedeq-kernels", "fedeq-data", "fedeq-memory", "fedeq-models", "fedeq-core", "fedeq-reference"],
    ),
    // The CPU's kernels and engine in tests only.
    ("fedeq-cuda", &["fedeq-equilibrium", "fedeq-kernels", "fedeq-data", "fedeq-models", "fedeq-core", "fedeq-cpu"]),
    ("fedeq-flower", &["fedeq-equilibrium", "fedeq-data", "fedeq-models", "fedeq-core"]),
    // burn in a test only.
    ("fedeq-run", &["burn", "fedeq-equilibrium", "fedeq-data", "fedeq-models", "fedeq-core", "fedeq-cpu", "fedeq-cuda"]),
    ("fedeq-viewer", &["fedeq-data", "fedeq-core", "fedeq-run"]),
    ("fedeq-report", &["fedeq-data", "fedeq-core", "fedeq-run", "fedeq-viewer"]),
    ("fedeq-dashboard", &["fedeq-core", "fedeq-run", "fedeq-viewer"]),
    (
        "fedeq",
        &[
            "fedeq-data",
            "fedeq-memory",
            "fedeq-models",
            "fedeq-core",
            "fedeq-flower",
            "fedeq-run",
            "fedeq-report",
            "fedeq-dashboard",
        ],
    ),
    (
        "fedeq-benchmarks",
        &[
            "fedeq-equilibrium",
            "fedeq-kernels",
            "fedeq-data",
            "fedeq-memory",
            "fedeq-models",
            "fedeq-core",
            "fedeq-cpu",
            "fedeq-cuda",
        ],
    ),
];

/// What a crate must not need, not even through others: who takes it as a library does not compile these.
const SPARED: &[(&str, &[&str])] = &[
    // burn alone would be most of a build; the tests have it, to compare with.
    ("fedeq", &["burn", "fedeq-reference"]),
    ("fedeq-run", &["axum", "clap", "resvg", "tokio"]),
    ("fedeq-viewer", &["axum", "clap", "resvg", "tokio"]),
    ("fedeq-report", &["axum", "clap", "tokio"]),
    ("fedeq-dashboard", &["clap", "resvg"]),
];

/// For every crate of the workspace, which of burn and our own crates it depends on, tests and build scripts included.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let metadata: Value = serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version=1"])).expect("JSON");
    let known = |name: &str| name == "burn" || name.starts_with("burn-") || name.starts_with("fedeq");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let dependencies = |package: &Value| {
        let names = package["dependencies"].as_array().expect("a list").iter().map(|dependency| text(&dependency["name"]));
        names.filter(|name| known(name)).collect()
    };
    let packages = metadata["packages"].as_array().expect("a list");
    packages.iter().map(|package| (text(&package["name"]), dependencies(package))).collect()
}

/// What cargo says of the workspace.
fn cargo(arguments: &[&str]) -> String {
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = Command::new(env!("CARGO")).current_dir(workspace).args(arguments).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn cargo_run_can_only_mean_fedeq() {
    let metadata: Value = serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version=1"])).expect("JSON");
    let targets = metadata["packages"]
        .as_array()
        .expect("a list")
        .iter()
        .flat_map(|package| package["targets"].as_array().expect("a list"));
    let binaries = targets.filter(|target| target["kind"][0] == "bin").map(|target| target["name"].clone());
    assert_eq!(binaries.collect::<Vec<_>>(), ["fedeq"]);
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

/// Every package that building a crate needs, but for its tests.
fn needed_by(name: &str) -> BTreeSet<String> {
    let tree = cargo(&["tree", "--package", name, "--edges", "normal,build", "--prefix=none", "--format={p}"]);
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn libraries_spare_their_users_what_only_the_program_needs() {
    for (name, spared) in SPARED {
        let needed = needed_by(name);
        assert!(needed.contains("fedeq-core"), "`{name}` needs {needed:?}");
        for package in *spared {
            assert!(!needed.contains(*package), "`{name}` must do without `{package}`");
        }
    }
}

#[test]
fn the_check_sees_the_edges_there_are() {
    let edges = edges();
    assert!(needed_by("fedeq").contains("clap"));
    assert!(edges["fedeq-models"].contains("fedeq-equilibrium"));
    assert!(edges["fedeq-data"].is_empty());
}
