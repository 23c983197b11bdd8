//! `fedeq data`, as a person meets it.
use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// The program in an empty folder, with no data folder from outside.
fn fedeq(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("fedeq").unwrap();
    command.current_dir(folder.path()).env_remove("FEDEQ_DATA").args(arguments);
    command
}

/// Runs a command that must succeed and returns its stdout.
fn stdout(folder: &TempDir, arguments: &[&str]) -> String {
    let output = fedeq(folder, arguments).assert().success().get_output().stdout.clone();
    String::from_utf8(output).unwrap()
}

fn json(folder: &TempDir, arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(folder, arguments)).unwrap()
}

/// Runs a command that must fail with this exit code, and returns its error and its hint.
fn failure(folder: &TempDir, code: i32, arguments: &[&str]) -> (String, String) {
    let output = fedeq(folder, arguments).assert().failure().code(code).get_output().clone();
    assert!(output.stdout.is_empty(), "a failure writes nothing to stdout");
    let text = String::from_utf8(output.stderr).unwrap();
    let (error, hint) = text.split_once("\nhint: ").unwrap_or_else(|| panic!("no hint in:\n{text}"));
    (error.strip_prefix("error: ").expect("starts with `error: `").into(), hint.trim_end().into())
}

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Width and height of a PNG file, all of it decoded.
fn png_size(path: &Path) -> (u32, u32) {
    let picture = image::open(path).expect("a picture that can be read").into_rgb8();
    let first = *picture.get_pixel(0, 0);
    assert!(picture.pixels().any(|pixel| *pixel != first), "the picture is empty");
    picture.dimensions()
}

fn empty() -> TempDir {
    TempDir::new().unwrap()
}

#[test]
fn inspecting_nothing_in_particular_shows_the_digits() {
    let expected = "\
digits
  samples  1,797, not split into training and test
  sample   8x8x1 picture
  classes  10, 174 to 183 samples (mean 179.7) each
  clients  not named; `fedeq data partition digits` makes some
";
    assert_eq!(stdout(&empty(), &["data", "inspect"]), expected);
}

#[test]
fn a_contact_sheet_is_a_png() {
    let folder = empty();
    stdout(&folder, &["data", "inspect", "--out", "sheet.png"]);
    let (width, height) = png_size(&folder.path().join("sheet.png"));
    assert!(width > 500 && height > 500);
}

#[test]
fn the_same_data_gives_the_same_picture() {
    let folder = empty();
    stdout(&folder, &["data", "partition", "--clients", "5", "--out", "one.png"]);
    stdout(&folder, &["data", "partition", "--clients", "5", "--out", "two.png"]);
    assert!(fs::read(folder.path().join("one.png")).unwrap() == fs::read(folder.path().join("two.png")).unwrap());
}

#[test]
fn the_list_names_everything_and_says_where_it_is() {
    let folder = empty();
    let list = stdout(&folder, &["data", "list"]);
    let all =
        "digits cifar10 cifar100 mnist fashion-mnist emnist svhn tiny-imagenet femnist shakespeare text images csv synthetic";
    for name in all.split(' ') {
        assert!(list.lines().any(|line| line.starts_with(&format!("{name}: "))), "{name} is missing from\n{list}");
    }
    assert!(list.contains("where    not in `data`: `fedeq data get cifar10`"));
    assert!(list.contains("size     170 MB to download, 184 MB on disk"));
}

#[test]
fn the_list_finds_what_is_in_the_data_folder() {
    let folder = empty();
    write(&folder, "mine/shakespeare/roles.jsonl", "");
    let found = |arguments: &[&str]| {
        let list = json(&folder, arguments);
        let entry = list.as_array().unwrap().iter().find(|entry| entry["name"] == "shakespeare").unwrap().clone();
        entry["available"].as_bool().unwrap()
    };
    assert!(!found(&["data", "list", "--json"]));
    assert!(found(&["data", "list", "--json", "--data", "mine"]));
}

#[test]
fn the_data_folder_may_come_from_the_environment() {
    let folder = empty();
    write(&folder, "mine/shakespeare/roles.jsonl", r#"{"client": "HAMLET", "text": "To be, or not to be"}"#);
    let mut command = fedeq(&folder, &["data", "inspect", "shakespeare"]);
    let output = command.env("FEDEQ_DATA", "mine").assert().success().get_output().stdout.clone();
    assert!(String::from_utf8(output).unwrap().contains("clients  1\n"));
}

#[test]
fn a_partition_prints_a_line_a_client_and_a_summary() {
    let table = stdout(&empty(), &["data", "partition", "--rule", "distinct-labels", "--clients", "20", "--labels", "3"]);
    assert_eq!(table.lines().filter(|line| line.starts_with("client-")).count(), 20);
    assert!(table.contains("digits: 3 distinct labels each, seed 0"));
    assert!(table.contains("labels    3 different ones each"));
}

#[test]
fn a_partition_in_json_gives_out_every_sample_once() {
    let report = json(&empty(), &["data", "partition", "--rule", "dirichlet", "--alpha", "0.5", "--clients", "10", "--json"]);
    let clients = report["clients"]["clients"].as_array().unwrap();
    let total = |part: &str| clients.iter().map(|client| client[part]["samples"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(clients.len(), 10);
    assert_eq!(total("train") + total("validation") + total("test"), 1_797);
    assert_eq!(report["partition"]["rule"], "dirichlet");
}

#[test]
fn unseen_clients_are_listed_and_drawn_apart() {
    let folder = empty();
    let table = stdout(&folder, &["data", "partition", "--clients", "10", "--unseen", "0.2", "--out", "map.png"]);
    assert_eq!(table.lines().filter(|line| line.contains("  unseen  ")).count(), 2);
    assert!(table.contains("clients   8 to train, 2 unseen"));
    png_size(&folder.path().join("map.png"));
}

#[test]
fn another_seed_gives_other_clients() {
    let folder = empty();
    let with_seed = |seed: &str| stdout(&folder, &["data", "partition", "--clients", "10", "--seed", seed]);
    assert_eq!(with_seed("1"), with_seed("1"));
    assert_ne!(with_seed("1"), with_seed("2"));
}

#[test]
fn own_text_is_read_from_its_path_and_drawn_as_text() {
    let folder = empty();
    let lines = [("ann", "one two three"), ("bob", "four five"), ("ann", "six")];
    let lines = lines.map(|(client, text)| format!(r#"{{"client": "{client}", "text": "{text}"}}"#));
    write(&folder, "mine.jsonl", lines.join("\n"));
    let summary = stdout(&folder, &["data", "inspect", "mine.jsonl", "--out", "text.png"]);
    assert!(summary.contains("clients  2\n"), "{summary}");
    let ann = stdout(&folder, &["data", "inspect", "mine.jsonl", "--client", "ann", "--out", "ann.png"]);
    assert!(ann.starts_with("text, client ann\n"), "{ann}");
    stdout(&folder, &["data", "partition", "mine.jsonl", "--out", "sizes.png"]);
    for name in ["text.png", "ann.png", "sizes.png"] {
        png_size(&folder.path().join(name));
    }
}

#[test]
fn own_numbers_are_read_from_their_path() {
    let folder = empty();
    write(&folder, "mine.csv", "client,label,a,b\nann,yes,1,2\nbob,no,3,4\nann,no,5,6\n");
    let report = json(&folder, &["data", "inspect", "mine.csv", "--json"]);
    assert_eq!((&report["training"], &report["classes"], &report["clients"]), (&3.into(), &2.into(), &2.into()));
    let (error, _) = failure(&folder, 2, &["data", "inspect", "mine.csv", "--out", "x.png"]);
    assert!(error.contains("are numbers, which cannot be shown as pictures"), "{error}");
}

#[test]
fn own_pictures_are_read_from_their_folder() {
    let folder = empty();
    for (index, path) in ["ann/cat", "ann/dog", "bob/cat"].iter().enumerate() {
        let picture = image::GrayImage::from_pixel(12, 9, image::Luma([40 * index as u8 + 9]));
        fs::create_dir_all(folder.path().join("mine").join(path)).unwrap();
        picture.save(folder.path().join("mine").join(path).join("1.png")).unwrap();
    }
    let summary = stdout(&folder, &["data", "inspect", "mine", "--client", "ann", "--out", "ann.png"]);
    assert!(summary.contains("sample   9x12x1 picture") && summary.contains("classes  2, 1 sample each"), "{summary}");
    png_size(&folder.path().join("ann.png"));
}

#[test]
fn a_mistyped_name_is_answered_with_the_nearest() {
    let (error, hint) = failure(&empty(), 2, &["data", "inspect", "cifr10"]);
    assert_eq!(error, "there is no data set or path `cifr10`");
    assert!(hint.starts_with("did you mean `cifar10`?"), "{hint}");
    let (_, hint) = failure(&empty(), 2, &["data", "get", "shakespear"]);
    assert!(hint.starts_with("did you mean `shakespeare`?"), "{hint}");
}

#[test]
fn a_set_that_is_not_there_is_answered_with_how_to_get_it() {
    let (error, hint) = failure(&empty(), 2, &["data", "inspect", "cifar10"]);
    assert_eq!(error, "`cifar10` is not in the data folder `data`");
    assert!(hint.starts_with("get it with `fedeq data get cifar10`"), "{hint}");
}

#[test]
fn a_set_without_a_download_is_answered_with_the_recipe() {
    let (error, hint) = failure(&empty(), 2, &["data", "get", "femnist"]);
    assert!(error.contains("cannot be downloaded ready for use"), "{error}");
    assert!(hint.contains("git clone https://github.com/TalwalkarLab/leaf"), "{hint}");
}

#[test]
fn there_is_nothing_to_fetch_for_what_is_built_in_or_your_own() {
    assert!(failure(&empty(), 2, &["data", "get", "digits"]).0.contains("built in"));
    assert!(failure(&empty(), 2, &["data", "get", "images"]).0.contains("your own"));
}

#[test]
fn prepared_files_are_brought_in_and_then_found() {
    let folder = empty();
    write(&folder, "made/roles.jsonl", r#"{"client": "HAMLET", "text": "To be, or not to be"}"#);
    stdout(&folder, &["data", "get", "shakespeare", "--from", "made"]);
    assert!(stdout(&folder, &["data", "inspect", "shakespeare"]).contains("clients  1\n"));
}

#[test]
fn a_file_that_is_no_archive_is_refused_with_its_name() {
    let folder = empty();
    write(&folder, "page.html", "<html>sign in to the network</html>");
    let (error, _) = failure(&folder, 2, &["data", "get", "cifar10", "--from", "page.html"]);
    assert!(error.starts_with("`page.html`: not a readable"), "{error}");
}

#[test]
fn a_client_that_is_not_there_is_answered_with_the_nearest() {
    let folder = empty();
    write(&folder, "mine.csv", "client,label,a\nann,yes,1\nbob,no,3\n");
    let (error, hint) = failure(&folder, 2, &["data", "inspect", "mine.csv", "--client", "anne"]);
    assert_eq!((error.as_str(), hint.as_str()), ("there is no client `anne`", "did you mean `ann`?"));
    let (error, _) = failure(&folder, 2, &["data", "inspect", "--client", "ann"]);
    assert_eq!(error, "`digits` does not say whose its samples are");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let refused: [&[&str]; 8] = [
        &["--clients", "0"],
        &["--clients", "100000"],
        &["--rule", "natural"],
        &["--rule", "distinct-labels", "--labels", "11"],
        &["--rule", "iid", "--labels", "2"],
        &["--rule", "iid", "--alpha", "2"],
        &["--rule", "dirichlet", "--alpha", "-1"],
        &["--unseen", "1.5"],
    ];
    for options in refused {
        let arguments: Vec<&str> = ["data", "partition"].iter().chain(options).copied().collect();
        let (error, hint) = failure(&empty(), 2, &arguments);
        assert!(error.contains('`') && !hint.is_empty(), "{options:?}: {error} / {hint}");
    }
}

#[test]
fn malformed_data_is_named_with_its_place() {
    let folder = empty();
    write(&folder, "mine.csv", "client,label,a\nann,yes,1\nbob,no,three\n");
    let (error, _) = failure(&folder, 2, &["data", "inspect", "mine.csv"]);
    assert!(error.starts_with("`mine.csv`") && error.contains("`three`"), "{error}");
}

#[test]
fn a_path_of_no_known_kind_is_refused() {
    let folder = empty();
    write(&folder, "mine.bin", "");
    let (error, hint) = failure(&folder, 2, &["data", "inspect", "mine.bin"]);
    assert!(error.contains("`mine.bin` is neither"), "{error}");
    assert!(hint.contains("CSV"), "{hint}");
}

#[test]
fn pictures_are_only_written_as_png_and_only_where_there_is_a_folder() {
    let folder = empty();
    fedeq(&folder, &["data", "inspect", "--out", "sheet.jpg"]).assert().failure().code(2);
    let (error, _) = failure(&folder, 2, &["data", "inspect", "--out", "no/such/sheet.png"]);
    assert!(error.contains("no/such/sheet.png"), "{error}");
}

#[test]
fn bad_usage_has_exit_code_two_and_help_has_none() {
    for arguments in [&["data", "lst"][..], &["data", "partition", "--rule", "random"], &["data", "get"], &["--no-such"]] {
        fedeq(&empty(), arguments).assert().failure().code(2);
    }
    for arguments in [&["--help"][..], &["data", "list", "--help"], &["data", "get", "--help"], &["--version"]] {
        fedeq(&empty(), arguments).assert().success();
    }
}

#[test]
fn pictures_are_drawn_unless_they_are_declined_or_a_program_reads() {
    let drawn = |arguments: &[&str]| {
        let folder = empty();
        stdout(&folder, arguments);
        let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<_>>()
    };
    assert_eq!(drawn(&["data", "inspect"]), ["digits-sheet.png"]);
    assert_eq!(drawn(&["data", "partition", "--clients", "5"]), ["digits-partition.png"]);
    assert!(drawn(&["data", "inspect", "--no-picture"]).is_empty());
    assert!(drawn(&["data", "inspect", "--json"]).is_empty());
    assert!(drawn(&["data", "inspect", "synthetic"]).is_empty(), "rows of numbers have no looks");
}

#[test]
fn every_command_shows_examples_in_its_help() {
    for command in ["list", "get", "inspect", "partition"] {
        let help = stdout(&empty(), &["data", command, "--help"]);
        assert!(help.contains("Examples:\n  fedeq data"), "{help}");
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_fedeq"))
        .args(["data", "partition", "--rule", "iid", "--clients", "1000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}

#[test]
fn columns_of_a_table_are_named_and_can_be_chosen() {
    let folder = empty();
    let rows: String = (0..40).map(|row| format!("w{},{},{}\n", row % 4, row as f64 / 7.0, ["ill", "well"][row % 2])).collect();
    fs::write(folder.path().join("patients.csv"), format!("ward,age,outcome\n{rows}")).expect("written");
    fs::write(folder.path().join("semi.csv"), "ward;age;outcome\nw0;1;ill\n").expect("written");
    let (error, hint) = failure(&folder, 2, &["data", "inspect", "patients.csv"]);
    assert!(error.contains("no column `label` among `ward`, `age`, `outcome`"), "{error}");
    assert!(hint.contains("--set data.source.label=COLUMN"), "{hint}");
    let (error, _) = failure(&folder, 2, &["data", "inspect", "semi.csv"]);
    assert!(error.contains("which has `;` in it"), "{error}");
    let chosen = ["--set", "data.source.label=outcome", "--set", "data.source.client=ward"];
    let text = stdout(&folder, &[&["data", "inspect", "patients.csv"], &chosen[..]].concat());
    assert!(text.contains("classes  2, ") && text.contains("clients  4\n"), "{text}");
    assert!(
        failure(&folder, 2, &["data", "inspect", "patients.csv", "--set", "plan.rounds=3"])
            .0
            .contains("no setting of a data set")
    );
}
