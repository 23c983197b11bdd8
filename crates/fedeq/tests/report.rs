//! `fedeq report`: runs on a page to keep.
mod run_support;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use run_support::{fedeq, json, refusal, run, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// Three runs that the tests share, two of which differ only in their seed; nothing they do changes them.
fn runs() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = TempDir::new().expect("a folder");
        run(&folder, "runs/deq-0", &["model=deq-mlp"]);
        run(&folder, "runs/deq-1", &["model=deq-mlp", "seed=1"]);
        run(&folder, "runs/fedavg <b>&'", &["method=fedavg", "model=linear"]);
        folder
    })
}

fn stdout(arguments: &[&str]) -> String {
    String::from_utf8(succeed(fedeq(runs()).arg("report").args(arguments)).stdout).expect("UTF-8")
}

/// The page about some runs.
fn page(name: &str, arguments: &[&str]) -> String {
    stdout(&[&["--out", name], arguments].concat());
    fs::read_to_string(runs().path().join(name)).expect("written")
}

/// A copy of a run that may be spoiled.
fn copy_of(name: &str) -> (TempDir, std::path::PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let copy = folder.path().join("copy");
    copy_folder(&runs().path().join("runs").join(name), &copy);
    (folder, copy)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("readable")) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[test]
fn a_page_holds_every_part_and_needs_no_other_file() {
    let page = page("one.html", &["runs/deq-0"]);
    for part in
        ["Accuracy over rounds", "megabytes", "Least accurate clients", "confusion matrix of", "Consensus gap", "Dual norm"]
    {
        assert!(page.contains(part), "{part}");
    }
    for part in [
        "Solver steps",
        "Relative residual",
        "Time by phase",
        "Memory of a client",
        "[plan]",
        "fedeq run runs/deq-0/experiment.toml",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let summary = json(&runs().path().join("runs/deq-0/summary.json"));
    let accuracy = 100.0 * summary["evaluation"]["local"]["mean"].as_f64().expect("a number");
    assert!(page.contains(&format!("{accuracy:.1} %")));
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!outside.contains("http") && !outside.contains("src=") && !outside.contains("<link") && !outside.contains("<script"));
}

#[test]
fn the_same_runs_give_the_same_bytes() {
    let arguments = ["runs"];
    assert_eq!(page("first.html", &arguments), page("second.html", &arguments));
}

#[test]
fn seeds_are_one_line_and_runs_stand_side_by_side() {
    let page = page("all.html", &["runs"]);
    assert!(page.contains(" ± ") && page.contains("one standard deviation over seeds"));
    assert!(page.contains("What the experiments differ in") && page.contains("<td>method.name</td>"));
    let report: Value = serde_json::from_str(&stdout(&["runs", "--format", "json"])).expect("JSON");
    let names: Vec<&str> = report["lines"].as_array().expect("a list").iter().filter_map(|line| line["name"].as_str()).collect();
    assert_eq!(names, ["FeDEQ", "FedAvg"]);
    assert_eq!(report["lines"][0]["members"], serde_json::json!([0, 1]));
}

#[test]
fn all_methods_are_shown_by_the_same_view_of_their_clients() {
    let views = |arguments: &[&str]| {
        let arguments = [arguments, &["--format", "json"]].concat();
        let report: Value = serde_json::from_str(&stdout(&arguments)).expect("JSON");
        let details =
            report["client_details"].as_array().expect("a list").iter().map(|detail| detail["available"]["view"].clone());
        (report["view"].clone(), details.collect::<Vec<_>>())
    };
    assert_eq!(views(&["runs"]), ("local".into(), vec!["local".into(); 2]));
    assert_eq!(views(&["runs", "--view", "shared"]), ("shared".into(), vec!["shared".into(); 2]));
    assert_eq!(views(&["runs/fedavg <b>&'"]), ("shared".into(), vec!["shared".into()]), "alone, by the model it names itself");
}

#[test]
fn names_of_folders_cannot_become_tags() {
    let page = page("escaped.html", &["runs"]);
    assert!(page.contains("fedavg &lt;b&gt;&amp;&#39;") && !page.contains("<b>"));
}

#[test]
fn markdown_and_csv_hold_the_same_numbers() {
    let csv = stdout(&["runs", "--format", "csv"]);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let place = reader.headers().expect("a heading").iter().position(|name| name == "local_mean").expect("a column");
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.iter().map(|row| &row[0]).collect::<Vec<_>>(), ["deq-0", "deq-1", "fedavg <b>&'"]);
    let linear: f64 = rows[2][place].parse().expect("a number");
    let markdown = stdout(&["runs", "--format", "md"]);
    let line =
        markdown.lines().find(|line| line.starts_with("| FedAvg |") && line.ends_with("| linear | 1 | 3 |")).expect("a line");
    assert!(line.contains(&format!("{:.1} %", 100.0 * linear)), "{line}");
}

#[test]
fn every_figure_is_written_as_svg_and_png_and_named_in_the_markdown() {
    let markdown = stdout(&["runs", "--figures", "pictures", "--format", "md"]);
    for name in ["accuracy-over-rounds", "accuracy-over-megabytes", "clients", "confusion-1", "solver-steps", "time-by-phase"] {
        let path = |ending: &str| runs().path().join("pictures").join(format!("{name}.{ending}"));
        assert!(fs::read_to_string(path("svg")).expect(name).starts_with("<svg"));
        assert!(fs::read(path("png")).expect(name).starts_with(b"\x89PNG"));
        assert!(markdown.contains(&format!("(pictures/{name}.svg)")), "{markdown}");
    }
}

#[test]
fn a_confusion_counts_all_a_client_is_judged_by() {
    let report: Value =
        serde_json::from_str(&stdout(&["runs/deq-0", "--client", "client-07", "--format", "json"])).expect("JSON");
    let detail = &report["client_details"][0]["available"];
    let (chosen, confusion) = (&detail["chosen"], &detail["confusion"]["available"]);
    assert_eq!(chosen["name"], "client-07");
    let rows = confusion["counts"].as_array().expect("rows");
    let number = |value: &Value| value.as_u64().expect("a number");
    let cells = rows.iter().flat_map(|row| row.as_array().expect("cells"));
    assert_eq!(cells.map(number).sum::<u64>(), number(&chosen["test"]));
    let names = |key: &str| confusion[key].as_array().expect("names").clone();
    let right: u64 = names("classes")
        .iter()
        .enumerate()
        .map(|(row, class)| {
            let column = names("answers").iter().position(|answer| answer == class).expect("every class is an answer");
            number(&rows[row][column])
        })
        .sum();
    let accuracy = chosen["accuracy"].as_f64().expect("a number");
    assert!((right as f64 / number(&chosen["test"]) as f64 - accuracy).abs() < 1e-9, "what was counted is what the run measured");
}

#[test]
fn a_run_that_is_not_finished_says_so() {
    let (_folder, copy) = copy_of("deq-0");
    fs::remove_file(copy.join("summary.json")).expect("removed");
    fs::write(copy.join("status.json"), r#"{"state": "running", "pid": 1}"#).expect("written");
    let page = page("new/folder/unfinished.html", &[copy.to_str().expect("UTF-8")]);
    assert!(page.contains("copy was killed before its end: 3 of 3 rounds are over") && page.contains("3 of 3</td>"));
    assert!(page.contains("the run is not finished") && page.contains("Accuracy over rounds"));
    for journal in ["rounds.jsonl", "evaluations.jsonl", "timings.jsonl", "metrics.csv"] {
        fs::remove_file(copy.join(journal)).expect("removed");
    }
    assert!(stdout(&[copy.to_str().expect("UTF-8"), "--format", "md"]).contains("0 of 3 rounds are over"));
}

#[test]
fn seeds_are_put_together_only_after_the_same_number_of_rounds_and_unfinished_runs_are_never_the_best() {
    let folder = TempDir::new().expect("a folder");
    for name in ["deq-0", "deq-1", "fedavg <b>&'"] {
        copy_folder(&runs().path().join("runs").join(name), &folder.path().join("runs").join(name));
    }
    run(&folder, "runs/fedavg-1", &["method=fedavg", "model=linear", "seed=1"]);
    let table = |folder: &TempDir| {
        let text = succeed(fedeq(folder).args(["report", "runs", "--format", "md"])).stdout;
        String::from_utf8(text).expect("UTF-8")
    };
    let row = |text: &str, method: &str| {
        let start = format!("| {method} |");
        text.lines().find(|line| line.starts_with(&start) && line.contains(" % ")).map(str::to_owned).expect("a row")
    };
    let whole = table(&folder);
    assert!(row(&whole, "FeDEQ").contains("**") || row(&whole, "FedAvg").contains("**"), "{whole}");
    assert!(whole.contains("paired t-test, n = 2"), "{whole}");
    // Seed 1 of FeDEQ as if it had been killed after its second round.
    let killed = folder.path().join("runs/deq-1");
    fs::remove_file(killed.join("summary.json")).expect("removed");
    fs::write(killed.join("status.json"), r#"{"state": "running", "pid": 1}"#).expect("written");
    for journal in ["rounds.jsonl", "evaluations.jsonl", "timings.jsonl"] {
        let text = fs::read_to_string(killed.join(journal)).expect("readable");
        let before = |line: &&str| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            line["round"].as_u64().expect("a round") < if journal == "rounds.jsonl" { 2 } else { 3 }
        };
        let kept: String = text.lines().filter(before).map(|line| format!("{line}\n")).collect();
        fs::write(killed.join(journal), kept).expect("written");
    }
    let text = table(&folder);
    let summary = json(&folder.path().join("runs/deq-0/summary.json"));
    let finished = 100.0 * summary["evaluation"]["local"]["mean"].as_f64().expect("a number");
    assert!(row(&text, "FeDEQ").contains(&format!("| {finished:.1} % † |")), "only the finished seed: {text}");
    assert!(row(&text, "FeDEQ").ends_with("| 1 (1 unfinished) | 3 |") && !row(&text, "FeDEQ").contains("**"), "{text}");
    assert!(text.contains("deq-1 was killed before its end: 2 of 3 rounds are over, so it is not among the numbers"), "{text}");
    assert!(!row(&text, "FedAvg").contains("**"), "the only one that can be judged is not the best of anything: {text}");
}

#[test]
fn a_run_without_its_models_or_its_data_is_shown_without_them() {
    let (_folder, copy) = copy_of("deq-0");
    fs::remove_dir_all(copy.join("checkpoints")).expect("removed");
    let told = page("models.html", &[copy.to_str().expect("UTF-8")]);
    assert!(told.contains("its models were not kept") && told.contains("client-"));

    let folder = TempDir::new().expect("a folder");
    let row = |index: usize| {
        format!("ward-{},{},{}\n", index % 3, index as f64 / 7.0, if index.is_multiple_of(2) { "well" } else { "ill" })
    };
    fs::write(folder.path().join("data.csv"), format!("ward,age,outcome\n{}", (0..60).map(row).collect::<String>()))
        .expect("written");
    let settings = [
        "data=csv",
        "data.folder=data.csv",
        "data.source.client=ward",
        "data.source.label=outcome",
        "model=mlp",
        "data.unseen={ count = 1 }",
    ];
    run(&folder, "own", &[&settings[..], &["plan.sampling.fraction=1.0"]].concat());
    fs::rename(folder.path().join("data.csv"), folder.path().join("moved.csv")).expect("moved");
    let text = |arguments: &[&str]| {
        let output = succeed(fedeq(&folder).args(["report", "own", "--format", "md"]).args(arguments));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let without = text(&[]);
    assert!(without.contains("data is not available: no `") && without.contains("data.csv"), "{without}");
    assert!(text(&["--data", "moved.csv"]).contains("well ("));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let refused = |arguments: &[&str]| refusal(fedeq(runs()).arg("report").args(arguments), 2);
    assert!(refused(&["nowhere"]).0.contains("`nowhere` is not a run folder"));
    let (error, hint) = refused(&["runs/deq-0", "--client", "nobody", "--format", "md"]);
    assert!(error.contains("there is no client `nobody`") && hint.contains("client-"), "{error} {hint}");
    for (file, content) in
        [("summary.json", "{"), ("rounds.jsonl", "nonsense\n"), ("experiment.toml", "seed = 'x'"), ("version.json", "7")]
    {
        let (_folder, copy) = copy_of("deq-0");
        fs::write(copy.join(file), content).expect("written");
        let (error, _) = refused(&[copy.to_str().expect("UTF-8"), "--format", "md"]);
        assert!(error.contains(file), "{error}");
    }
    let (_folder, copy) = copy_of("deq-0");
    fs::remove_file(copy.join("evaluations.jsonl")).expect("removed");
    let (error, _) = refused(&[copy.to_str().expect("UTF-8")]);
    assert!(error.contains("evaluations.jsonl`: it is missing"), "{error}");
}
