//! The words are true: every command on the pages for users works, and every help text has examples.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Before a page's commands: stop at the first that fails, and do not wait for a server to end.
const PRELUDE: &str = r#"set -euo pipefail
fedeq() {
    if [ "${1-}" = dashboard ]; then timeout --signal=INT 3 "$PROGRAM" "$@" --port 0 || [ $? = 124 ]; else "$PROGRAM" "$@"; fi
}
"#;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The lines of all blocks of shell commands on a page.
fn commands(page: &str) -> String {
    let mut script = String::new();
    let mut is_inside = false;
    for line in page.lines() {
        match (is_inside, line) {
            (false, "```sh") => is_inside = true,
            (true, "```") => is_inside = false,
            (true, line) => script.extend([line, "\n"]),
            _ => {}
        }
    }
    script
}

fn shell(script: &str, folder: &Path) -> Output {
    Command::new("bash")
        .args(["-c", script])
        .current_dir(folder)
        .env("PROGRAM", env!("CARGO_BIN_EXE_fedeq"))
        .env_remove("FEDEQ_DATA")
        .output()
        .expect("bash is there")
}

/// Runs a page from top to bottom in an empty folder.
fn follow(page: &str) {
    let text = fs::read_to_string(docs().join(page)).expect("the page is there");
    let folder = tempfile::tempdir().expect("a folder");
    let script = commands(&text);
    assert!(script.contains("fedeq "), "`{page}` has no commands");
    let output = shell(&format!("{PRELUDE}{script}"), folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{page}` fails: {said}");
}

#[test]
fn getting_started_works() {
    follow("getting-started.md");
}

#[test]
fn how_to_choose_works() {
    follow("how-to-choose.md");
}

#[test]
fn adding_a_data_set_works() {
    follow("add-a-dataset.md");
}

#[test]
fn adding_a_method_works() {
    follow("add-a-method.md");
}

#[test]
fn questions_are_answered_by_what_works() {
    follow("faq.md");
}

/// The subcommands that a help text lists.
fn subcommands(path: &[String]) -> Vec<String> {
    let help = help(path);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Continued descriptions are indented further than names.
    let names = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn help(path: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fedeq")).args(path).arg("--help").output().expect("it runs");
    assert!(output.status.success(), "{path:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn assert_examples(path: &[String]) {
    assert!(help(path).contains("Examples:"), "`fedeq {} --help` has no examples", path.join(" "));
    for name in subcommands(path) {
        assert_examples(&[path, &[name]].concat());
    }
}

#[test]
fn every_help_has_examples() {
    assert!(subcommands(&[]).len() > 8);
    assert_examples(&[]);
}

#[test]
fn pages_link_to_what_is_there() {
    for entry in fs::read_dir(docs()).expect("docs") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_local = !target.is_empty() && !target.starts_with("http");
            assert!(!is_local || docs().join(target).exists(), "`{}` links to `{target}`", path.display());
        }
    }
}
