//! The words are true: every command on the pages for users works, and every help text has examples.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fedeq_core::Method;

/// Before a page's commands: stop at the first that fails, and do not wait for a server to end.
const PRELUDE: &str = r#"set -euo pipefail
fedeq() {
    if [ "${1-}" = dashboard ]; then timeout --signal=INT 3 "$PROGRAM" "$@" --port 0 || [ $? = 124 ]; else "$PROGRAM" "$@"; fi
}
"#;

/// Where the README and the folder of pages are.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Who runs a block of shell commands: said after ```` ```sh ````, on a page where they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunBy {
    /// This test, page by page, in an empty folder: nothing is said.
    Test,
    /// `.ci/run`, in the checkout: `checkout`.
    Ci,
    /// Nobody, since tests have no connection; this test sees that nothing else is missing: `internet`.
    Internet,
    /// Nobody, since tests have no GPU; this test sees that nothing else is missing: `gpu`.
    Gpu,
    /// `python/tests/test_deploy.py`, as the machines that are named there; only in `docs/deploy.md`.
    Deploy,
    /// Nobody, since it takes too long: `long`. The page says that it is not run by CI.
    Long,
}

impl RunBy {
    fn named(page: &str, words: &str) -> Option<Self> {
        match words {
            "" => Some(Self::Test),
            "checkout" => Some(Self::Ci),
            "internet" => Some(Self::Internet),
            "gpu" => Some(Self::Gpu),
            "long" => Some(Self::Long),
            _ if page == "docs/deploy.md" => Some(Self::Deploy),
            _ => None,
        }
    }
}

/// The lines of all blocks of shell commands on a page, block by block.
fn blocks(page: &str) -> Vec<(RunBy, String)> {
    let text = fs::read_to_string(root().join(page)).expect("the page is there");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(words) = line.trim_start().strip_prefix("```sh") else { continue };
        let run_by = RunBy::named(page, words.trim()).unwrap_or_else(|| panic!("`{page}`: who runs ```sh{words}?"));
        let commands = lines.by_ref().take_while(|line| line.trim_start() != "```");
        blocks.push((run_by, commands.map(|line| format!("{line}\n")).collect()));
    }
    blocks
}

/// All commands of a page that are run by someone.
fn commands(page: &str, by: RunBy) -> String {
    blocks(page).into_iter().filter(|(run_by, _)| *run_by == by).map(|(_, commands)| commands).collect()
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
    let folder = tempfile::tempdir().expect("a folder");
    let script = commands(page, RunBy::Test);
    assert!(script.contains("fedeq "), "`{page}` has no commands");
    let output = shell(&format!("{PRELUDE}set -x\n{script}"), folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{page}` fails: {said}");
}

/// The pages whose commands are run here, a test each so that they run side by side.
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const FOLLOWED: &[&str] = &[$($page),*];
        $(#[test] fn $name() { follow($page); })*
    };
}

pages! {
    the_readme_works: "README.md",
    getting_started_works: "docs/getting-started.md",
    how_to_choose_works: "docs/how-to-choose.md",
    adding_a_data_set_works: "docs/add-a-dataset.md",
    adding_a_method_works: "docs/add-a-method.md",
    adding_a_network_works: "docs/add-a-network.md",
    methods_optimisers_and_harder_data_work: "docs/methods.md",
    one_gpu_for_all_clients_works: "docs/gpu.md",
    time_limits_work: "docs/clusters.md",
    private_models_work: "docs/privacy.md",
    trials_with_liars_work: "docs/robust.md",
    compressed_messages_work: "docs/compression.md",
    secure_aggregation_works: "docs/secure-aggregation.md",
    questions_are_answered_by_what_works: "docs/faq.md",
    setting_up_an_experiment_works: "docs/experiments.md",
    sweeps_work: "docs/sweeps.md",
    comparisons_work: "docs/compare.md",
}

/// The README and every page in `docs`.
fn pages() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("an entry").file_name());
    let named = entries.map(|name| format!("docs/{}", name.to_string_lossy()));
    named.filter(|page| page.ends_with(".md")).chain(["README.md".to_owned()]).collect()
}

#[test]
fn every_page_with_commands_is_followed() {
    for page in pages() {
        let has_commands = !commands(&page, RunBy::Test).is_empty();
        assert_eq!(has_commands, FOLLOWED.contains(&page.as_str()), "`{page}`: name it in `pages!`, or take it out");
    }
}

#[test]
fn pages_admit_what_nobody_runs() {
    for page in pages() {
        let is_admitted = || fs::read_to_string(root().join(&page)).expect("a page").contains("not run by CI");
        assert!(
            commands(&page, RunBy::Long).is_empty() || is_admitted(),
            "`{page}` has commands that are not run by CI, and does not say so"
        );
    }
}

#[test]
fn what_ci_runs_in_the_checkout_stands_where_ci_looks() {
    let readme = commands("README.md", RunBy::Ci);
    assert!(readme.contains("cargo run") && readme.contains("cargo test"), "{readme}");
    let script = fs::read_to_string(root().join(".ci/run")).expect("CI's script");
    assert!(script.contains("README.md docs/*.md"), "CI takes the commands from all pages");
}

/// Exit code 2 would say that the command itself is wrong; 1 says that the work failed, here for want of a connection.
#[test]
fn what_needs_the_internet_lacks_nothing_else() {
    for page in pages() {
        for command in commands(&page, RunBy::Internet).lines().filter(|line| !line.trim().is_empty()) {
            let folder = tempfile::tempdir().expect("a folder");
            let nowhere = "export HTTPS_PROXY=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9\n";
            let output = shell(&format!("{PRELUDE}{nowhere}{command}"), folder.path());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "`{command}` on `{page}`: {said}");
        }
    }
}

/// What cannot be used is the device and nothing else: settings are looked at before it.
#[test]
fn what_needs_a_gpu_lacks_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let devices = shell(&format!("{PRELUDE}fedeq devices"), folder.path());
    if !String::from_utf8_lossy(&devices.stdout).contains("no GPU: ") {
        return; // They would be carried out, which takes too long.
    }
    for page in pages() {
        for command in commands(&page, RunBy::Gpu).lines().filter(|line| !line.trim().is_empty()) {
            let output = shell(&format!("{PRELUDE}{command}"), folder.path());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "`{command}` on `{page}`: {said}");
            assert!(said.contains("cannot be used: "), "`{command}` on `{page}`: {said}");
        }
    }
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
    for page in pages() {
        let page = root().join(page);
        let text = fs::read_to_string(&page).unwrap_or_default();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_local = !target.is_empty() && !target.starts_with("http");
            assert!(!is_local || page.with_file_name(target).exists(), "`{}` links to `{target}`", page.display());
        }
    }
}

/// What stands in the first column of the table below a header, separated by commas.
fn named_in_table(file: &str, header: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(file)).expect("a file");
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("/// "));
    let rows = lines.skip_while(|line| !line.starts_with(header)).skip(2).take_while(|line| line.starts_with('|'));
    let cells: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).collect();
    cells.iter().flat_map(|cell| cell.split(", ")).map(|name| name.trim().replace('`', "")).collect()
}

/// Tables are written by people: this is what keeps a new method from being forgotten there.
#[test]
fn tables_of_methods_name_them_all_and_no_others() {
    let titles: BTreeSet<String> = Method::NAMES.iter().map(|name| Method::title(name).to_owned()).collect();
    assert_eq!(named_in_table("crates/core/src/algorithm/mod.rs", "| method | local | shared |"), titles);
    assert_eq!(named_in_table("docs/security.md", "| method | sent after training |"), titles);
    let names: BTreeSet<String> = Method::NAMES.map(str::to_owned).into();
    assert_eq!(named_in_table("docs/methods.md", "| name | method |"), names);
}
