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

/// The data inside a page.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script id=\"data\" type=\"application/json\">").expect("a block of data");
    serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON")
}

#[test]
fn a_page_holds_its_data_and_needs_no_other_file() {
    let page = page("one.html", &["runs/deq-0"]);
    let data = data(&page);
    let summary = json(&runs().path().join("runs/deq-0/summary.json"));
    let [row, story, report] = [&data["rows"][0], &data["stories"][0], &data["report"]];
    assert_eq!((&row["run"], &row["state"]), (&"deq-0".into(), &"finished".into()));
    assert_eq!(row["local"]["accuracy"], summary["evaluation"]["local"]["mean"], "the same number as everywhere");
    for (journal, column, lines) in [("rounds", "steps", 3), ("evaluations", "local", 2), ("timings", "client_memory", 3)] {
        assert_eq!(story[journal][column].as_array().map(Vec::len), Some(lines), "{journal} {column}");
    }
    assert_eq!(data["clients"]["deq-0"].as_array().map(Vec::len), Some(30));
    assert!(data["experiments"]["deq-0"].as_str().is_some_and(|text| text.contains("[plan]")));
    assert!(report["commands"].as_str().is_some_and(|text| text.contains("fedeq run runs/deq-0/experiment.toml")));
    let portraits = &data["portraits"]["deq-0"];
    assert_eq!(portraits["clients"].as_array().map(Vec::len), Some(30), "a page for every client");
    assert_eq!(portraits["clients"][0]["evaluations"]["round"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["left_out"], serde_json::json!([]));
    let matrices = data["confusions"]["deq-0"]["clients"].as_array().expect("matrices");
    assert_eq!(matrices.len(), 5, "of the least accurate");
    let matrix = &matrices[0];
    let counts = matrix["counts"].as_array().expect("rows");
    assert!(counts.iter().all(|row| row.as_array().map(Vec::len) == Some(counts.len())), "square: {matrix}");
    let outside = page.replace("http://www.w3.org/2000/svg", "").replace("https://github.com/leeoniya/uPlot", "");
    assert!(!outside.contains("http://") && !outside.contains("https://") && !outside.contains("src="));
    assert!(page.contains("default-src 'none'; script-src 'sha256-"), "its own policy keeps everything else out");
}

/// Copies of a run, each with a seed of its own and its journals as long as those of a run of 400 rounds.
fn many_runs(folder: &TempDir, amount: usize, rounds: usize) {
    let first = runs().path().join("runs/deq-0");
    let long = |journal: &str| {
        let text = fs::read_to_string(first.join(journal)).expect("a journal");
        let line: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        let lines = (0..rounds).map(|round| {
            let mut line = line.clone();
            line["round"] = (round + usize::from(journal != "rounds.jsonl")).into();
            format!("{line}\n")
        });
        lines.collect::<String>()
    };
    let journals = ["rounds.jsonl", "evaluations.jsonl", "timings.jsonl"].map(|journal| (journal, long(journal)));
    let experiment = fs::read_to_string(first.join("experiment.toml")).expect("text");
    for number in 0..amount {
        let path = folder.path().join(format!("many/{number:03}"));
        fs::create_dir_all(&path).expect("writable");
        for kept in ["status.json", "clients.json", "summary.json"] {
            fs::copy(first.join(kept), path.join(kept)).expect("writable");
        }
        fs::write(path.join("experiment.toml"), experiment.replace("seed = 0", &format!("seed = {number}"))).expect("writable");
        journals.iter().for_each(|(journal, text)| fs::write(path.join(journal), text).expect("writable"));
    }
}

#[test]
fn many_long_runs_are_told_with_as_many_points_as_can_be_told_apart() {
    let folder = TempDir::new().expect("a folder");
    many_runs(&folder, 60, 900);
    succeed(fedeq(&folder).args(["report", "many"]));
    let data = data(&fs::read_to_string(folder.path().join("many/report.html")).expect("written"));
    let stories = data["stories"].as_array().expect("stories");
    assert_eq!(stories.len(), 60);
    for story in stories {
        let rounds = story["rounds"]["round"].as_array().expect("a column");
        // Every fourth of 900: at most 400 each, so that 60 runs are 24,000 points.
        assert_eq!((rounds.len(), &rounds[1]), (225, &serde_json::json!(5)));
        assert_eq!(story["tail"]["rounds"]["round"], serde_json::json!([900]), "and the last, always");
    }
}

#[test]
fn the_same_runs_give_the_same_bytes() {
    let arguments = ["runs"];
    assert_eq!(page("first.html", &arguments), page("second.html", &arguments));
}

#[test]
fn seeds_are_one_line_and_runs_stand_side_by_side() {
    let page = page("all.html", &["runs"]);
    let data = data(&page);
    let cells = data["report"]["overview"]["rows"][0].as_array().expect("cells").clone();
    assert!(cells.iter().any(|cell| cell.as_str().is_some_and(|text| text.contains(" ± "))), "{cells:?}");
    let methods: Vec<&Value> =
        data["stories"].as_array().expect("stories").iter().map(|story| &story["settings"]["method.name"]).collect();
    assert_eq!(methods, ["\"fedeq\"", "\"fedeq\"", "\"fedavg\""]);
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
    assert!(page.contains("fedavg \\u003cb>&'") && !page.contains("<b>"));
    assert_eq!(data(&page)["rows"][2]["run"], "fedavg <b>&'");
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
fn a_confusion_counts_all_a_client_is_evaluated_by() {
    let report: Value =
        serde_json::from_str(&stdout(&["runs/deq-0", "--client", "client-07", "--format", "json"])).expect("JSON");
    let detail = &report["client_details"][0]["available"];
    let (chosen, confusion) = (&detail["chosen"], &detail["confusion"]["available"]);
    assert_eq!(chosen["name"], "client-07");
    let rows = confusion["counts"].as_array().expect("rows");
    let number = |value: &Value| value.as_u64().expect("a number");
    let cells = rows.iter().flat_map(|row| row.as_array().expect("cells"));
    assert_eq!(cells.map(number).sum::<u64>(), number(&chosen["test"]));
    let right: u64 = rows.iter().enumerate().map(|(place, row)| number(&row[place])).sum();
    let accuracy = chosen["accuracy"].as_f64().expect("a number");
    assert!((right as f64 / number(&chosen["test"]) as f64 - accuracy).abs() < 1e-9, "what was counted is what the run measured");
}

#[test]
fn a_run_that_is_not_finished_says_so() {
    let (_folder, copy) = copy_of("deq-0");
    fs::remove_file(copy.join("summary.json")).expect("removed");
    fs::write(copy.join("status.json"), r#"{"state": "running", "pid": 1}"#).expect("written");
    let page = page("new/folder/unfinished.html", &[copy.to_str().expect("UTF-8")]);
    let data = data(&page);
    assert_eq!((&data["rows"][0]["state"], &data["rows"][0]["round"]), (&"killed".into(), &3.into()));
    let unfinished = data["report"]["unfinished"][0].as_str().expect("a sentence");
    assert!(unfinished.contains("copy was killed before its end: 3 of 3 rounds are over"), "{unfinished}");
    assert_eq!(data["confusions"]["copy"]["problem"], "the run is not finished");
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
    assert!(whole.contains("paired t-test, n = 2, effect "), "{whole}");
    assert!(whole.contains("- effect: the difference divided by a standard deviation"), "what that is stands below it: {whole}");
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
    assert!(!row(&text, "FedAvg").contains("**"), "the only one that can be evaluated is not the best of anything: {text}");
}

#[test]
fn a_run_without_its_models_or_its_data_is_shown_without_them() {
    let (_folder, copy) = copy_of("deq-0");
    fs::remove_dir_all(copy.join("checkpoints")).expect("removed");
    let told = page("models.html", &[copy.to_str().expect("UTF-8")]);
    let data = data(&told);
    assert_eq!(data["confusions"]["copy"]["problem"], "its models were not kept");
    assert!(data["clients"]["copy"][0]["name"].as_str().is_some_and(|name| name.starts_with("client-")));

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
