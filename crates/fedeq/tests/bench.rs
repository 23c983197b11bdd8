//! What makes it a bench to work at: settings that can be found, short forms, dry runs, completion, searches and tables for other programs.
mod run_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use run_support::TINY;
use serde_json::Value;
use tempfile::TempDir;

fn fedeq(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    command.current_dir(folder).env_remove("FEDEQ_DATA").env_remove("COLUMNS");
    command
}

fn output(folder: &Path, arguments: &[&str]) -> Output {
    fedeq(folder).args(arguments).output().expect("it runs")
}

fn stdout(folder: &Path, arguments: &[&str]) -> String {
    let output = output(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What a refused command says.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = output(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// Settings of a run of a second.
fn tiny<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    arguments.iter().copied().chain(TINY.iter().flat_map(|setting| ["--set", setting])).collect()
}

#[test]
fn the_page_of_settings_is_up_to_date() {
    let folder = TempDir::new().expect("a folder");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let written = stdout(folder.path(), &["settings", "--format", "markdown"]);
    assert!(
        fs::read_to_string(page).is_ok_and(|page| page == written),
        "write it again with `fedeq settings --format markdown > docs/settings.md`"
    );
}

#[test]
fn settings_are_found_by_beginnings_and_by_parts_of_their_names() {
    let folder = TempDir::new().expect("a folder");
    let one = stdout(folder.path(), &["settings", "plan.rounds"]);
    assert!(one.starts_with("plan.rounds: whole number from 1 to 1,000,000 [60]\n    Rounds of training\n"), "{one}");
    // Long lines are folded, wherever that is.
    let unfolded = one.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unfolded.contains("400 for data shakespeare, text"), "{one}");
    let rates = stdout(folder.path(), &["settings", "rate"]);
    assert!(rates.contains("training.learning_rate:") && rates.contains("plan.aggregation.clip.adaptive.rate:"), "{rates}");
    let json: Value =
        serde_json::from_str(&stdout(folder.path(), &["settings", "method.rho", "--format", "json"])).expect("JSON");
    assert_eq!((&json[0]["default"], &json[0]["least"], &json[0]["type"]), (&0.01.into(), &0.into(), &"number".into()));
    assert!(refused(folder.path(), &["settings", "lerning_rate"]).contains("training.learning_rate"));
    assert!(refused(folder.path(), &["settings", "xyzzy"]).contains("there is no setting `xyzzy`"));
}

#[test]
fn short_forms_are_settings_and_what_is_said_twice_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let short = [
        "--method",
        "fedrep",
        "--model",
        "mlp",
        "--rounds",
        "3",
        "--clients",
        "5",
        "--lr",
        "0.2",
        "--seed",
        "9",
        "--device",
        "cpu",
    ];
    let whole: Value =
        serde_json::from_str(&stdout(folder.path(), &[&["run", "--dry-run", "--json", "-q"], &short[..]].concat()))
            .expect("JSON");
    let experiment = &whole["experiment"];
    assert_eq!((&experiment["method"]["name"], &experiment["model"]["name"]), (&"fedrep".into(), &"mlp".into()));
    assert_eq!((&experiment["plan"]["rounds"], &experiment["data"]["partition"]["clients"]), (&3.into(), &5.into()));
    assert_eq!((&experiment["training"]["learning_rate"], &experiment["seed"]), (&0.2.into(), &9.into()));
    for (flag, value, setting) in [
        ("--method", "fedrep", "method=fedeq"),
        ("--method", "fedrep", "method.name=fedrep"),
        ("--rounds", "3", "plan.rounds=4"),
        ("--lr", "0.1", "training.learning_rate=0.1"),
        ("--clients", "3", "data.partition.clients=4"),
        ("--seed", "1", "seed=2"),
    ] {
        let said = refused(folder.path(), &["run", flag, value, "--set", setting]);
        assert!(said.contains(&format!("`{flag} {value}` and `--set {setting}` both say")), "{said}");
    }
    assert_eq!(experiment["engine"]["device"], "cpu");
    let twice = refused(folder.path(), &["run", "--device", "cpu", "--set", "engine.device=cuda"]);
    assert!(twice.contains("`--device cpu` and `--set engine.device=cuda` contradict each other"), "{twice}");
    assert!(refused(folder.path(), &["run", "--rounds", "many"]).contains("give a whole number from 1 to 1,000,000"));
    assert!(refused(folder.path(), &["sweep", "--seed", "1", "--seeds", "0..2", "--out", "s"]).contains("`seed` is set as well"));
    assert!(
        refused(folder.path(), &["sweep", "--method", "fedeq", "--grid", "method=fedeq,fedrep", "--out", "s"])
            .contains("is an axis of the grid as well")
    );
}

#[test]
fn a_dry_run_for_a_gpu_tells_a_lower_bound_of_its_memory_and_says_so() {
    let folder = TempDir::new().expect("a folder");
    let arguments = ["run", "--dry-run", "--quiet", "--device", "cuda"];
    let dry: Value = serde_json::from_str(&stdout(folder.path(), &[&arguments[..], &["--json"]].concat())).expect("JSON");
    let least = dry["device_memory_at_least"].as_u64().expect("a number");
    // The digits alone are 1,797 pictures of 64 bytes.
    assert!(least > 1_797 * 64 && dry["memory"].is_null(), "{dry}");
    assert!(dry["memory_note"].as_str().is_some_and(|note| note.contains("what a batch takes is planned")), "{dry}");
    let text = stdout(folder.path(), &arguments);
    assert!(text.contains("at least ") && text.contains("on the card, for samples"), "{text}");
}

#[test]
fn a_dry_run_says_what_a_run_then_takes() {
    let folder = TempDir::new().expect("a folder");
    let dry = forecast_of(folder.path(), &[]);
    assert!(!folder.path().join("run").exists());
    assert_bytes_are_as_told(folder.path(), &dry, &[]);
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("run/summary.json")).expect("a summary")).expect("JSON");
    assert_eq!(dry["parameters"]["shared"], summary["shared_parameters"]);
    assert_eq!(dry["parameters"]["personal"], summary["personal_parameters"]);
    assert!(dry["parameters"]["personal"].as_u64().is_some_and(|heads| heads > 0), "FeDEQ's clients keep heads of their own");
    let on_disk: u64 = files(&folder.path().join("run")).iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum();
    assert!(on_disk <= dry["disk"]["working"].as_u64().expect("a number"), "{on_disk}");
    let (told, held) =
        (dry["memory"].as_f64().expect("a number"), summary["resources"]["peak_memory"].as_f64().expect("a number"));
    assert!((0.5..=2.0).contains(&(told / held)), "{told} bytes of memory, of which {held} were held");
    assert!(dry["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let text = stdout(folder.path(), &tiny(&["run", "--dry-run", "--quiet", "--out", "run"]));
    assert!(
        text.contains("[training]") && text.contains("a round sends") && text.contains("run, which exists already"),
        "{text}"
    );
}

/// What a dry run says of a tiny run with some settings.
fn forecast_of(folder: &Path, settings: &[&str]) -> Value {
    let arguments = [&["run", "--dry-run", "--json", "--quiet", "--out", "run"], settings].concat();
    serde_json::from_str(&stdout(folder, &tiny(&arguments))).expect("JSON")
}

/// Carries it out, and compares the bytes of its first round with those that were told.
fn assert_bytes_are_as_told(folder: &Path, dry: &Value, settings: &[&str]) {
    stdout(folder, &tiny(&[&["run", "--quiet", "--out", "run"], settings].concat()));
    let journal = fs::read_to_string(folder.join("run/rounds.jsonl")).expect("a journal");
    let first: Value = serde_json::from_str(journal.lines().next().expect("a round")).expect("JSON");
    for way in ["up", "down"] {
        let (told, sent) =
            (dry["bytes_a_round"][way].as_f64().expect("a number"), first["traffic"][way].as_f64().expect("a number"));
        assert!((told / sent - 1.0).abs() < 0.03, "{settings:?} {way}: {told} of {sent}");
    }
}

#[test]
fn a_dry_run_counts_the_bytes_of_control_variates_and_of_codecs() {
    let codecs = ["--set", "plan.compression.up=int4", "--set", "plan.compression.down=int8"];
    for settings in [&["--method", "scaffold"][..], &codecs] {
        let folder = TempDir::new().expect("a folder");
        let dry = forecast_of(folder.path(), settings);
        assert_bytes_are_as_told(folder.path(), &dry, settings);
    }
}

#[test]
fn a_dry_run_needs_no_files_of_a_data_set_whose_shape_is_known() {
    let folder = TempDir::new().expect("a folder");
    let arguments = ["run", "--dry-run", "--json", "-q", "--set", "data=emnist", "--set", "data.source.split=letters"];
    let dry: Value = serde_json::from_str(&stdout(folder.path(), &arguments)).expect("JSON");
    assert_eq!((&dry["data_available"], &dry["clients"]), (&false.into(), &100.into()));
    let experiment = &dry["experiment"];
    assert_eq!(
        (&experiment["training"]["optimiser"], &experiment["plan"]["aggregation"]["rule"]),
        (&"sgd".into(), &"mean".into())
    );
}

#[test]
fn a_dry_run_in_words_is_an_experiment_with_everything_in_it() {
    let folder = TempDir::new().expect("a folder");
    let text = stdout(folder.path(), &tiny(&["run", "--dry-run", "-q"]));
    assert!(text.contains("optimiser = \"sgd\"\n") && text.contains("[plan.aggregation]\nrule = \"mean\"\n"), "{text}");
    let resolved: String = text.split("\n# ").next().expect("a file").to_owned();
    fs::write(folder.path().join("resolved.toml"), &resolved).expect("written");
    let again = stdout(folder.path(), &["run", "resolved.toml", "--dry-run", "-q"]);
    assert!(again.starts_with(&resolved), "{again}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    fs::read_dir(folder).expect("a folder").flat_map(|entry| below(entry.expect("an entry").path())).collect()
}

#[test]
fn axes_go_together_where_they_are_told_to() {
    let folder = TempDir::new().expect("a folder");
    let grid = ["--grid", "method=fedeq,fedrep", "--with", "model=deq-mlp,mlp"];
    let json: Value =
        serde_json::from_str(&stdout(folder.path(), &tiny(&[&["sweep", "--json", "-q", "--out", "pairs"], &grid[..]].concat())))
            .expect("JSON");
    let values: Vec<&Value> = json["points"].as_array().expect("points").iter().map(|point| &point["values"]).collect();
    assert_eq!(values, [&serde_json::json!(["fedeq", "deq-mlp"]), &serde_json::json!(["fedrep", "mlp"])]);
    let refusal = |more: &[&str]| refused(folder.path(), &[&["sweep", "--out", "no"], more].concat());
    assert!(refusal(&["--grid", "method=fedeq,fedrep", "--with", "model=mlp"]).contains("no axis has 1 value for"));
    let range = refusal(&["--grid", "method.rho=log:0.1..1"]);
    assert!(range.contains("`method.rho=log:0.1..1` is a range") && range.contains("--random N"), "{range}");
    let two = ["--grid", "method=fedeq,fedrep", "--grid", "training.epochs=1,2", "--with", "model=mlp,linear"];
    assert!(refusal(&two).contains("can go with `method` or with `training.epochs`"));
    assert!(refusal(&["--grid", "method=fedeq,fedrep", "--with", "plan:model=mlp,linear"]).contains("there is no axis `plan`"));
}

#[test]
fn halving_trains_the_better_ones_further_and_continues_where_it_was() {
    let folder = TempDir::new().expect("a folder");
    let rounds = ["--set", "plan.rounds=4", "--set", "plan.evaluate_every=1", "--set", "data.split.validation=0.2"];
    let search = [
        "sweep",
        "--grid",
        "training.learning_rate=log:0.0001..0.2",
        "--halving",
        "2",
        "--random",
        "4",
        "--out",
        "search",
        "-q",
        "--json",
    ];
    let command: Vec<&str> = search.iter().chain(&rounds).copied().chain(["--set", "data.limit.train=10"]).collect();
    let first = stdout(folder.path(), &command);
    let json: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(json["points"].as_array().map(Vec::len), Some(1), "one is trained to its end");
    let table = fs::read_to_string(folder.path().join("search/search.csv")).expect("a table");
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let mut reached: Vec<&str> = rows.iter().map(|row| row[1]).collect();
    reached.sort_unstable();
    assert_eq!(reached, ["1", "1", "2", "2"], "{table}");
    // Those that went on are the better half.
    let score = |row: &Vec<&str>| row[2].parse::<f64>().expect("a number");
    let kept = rows.iter().find(|row| row[3] == "true").expect("one is kept");
    assert!(rows.iter().filter(|row| row[1] == "2").all(|row| score(row) <= score(kept)), "{table}");
    assert_eq!(json["points"][0]["values"][0].as_str(), Some(kept[0]));
    let again = stdout(folder.path(), &command);
    assert_eq!(again, first, "nothing is left to do");
    let budget = refused(
        folder.path(),
        &["sweep", "--grid", "training.learning_rate=log:0.01..0.1", "--halving", "--budget", "3", "--out", "no"],
    );
    assert!(budget.contains("a budget of `3` rounds is less than the `60` of one run"), "{budget}");
}

#[test]
fn comparisons_are_written_for_papers_pages_and_narrow_terminals() {
    let folder = TempDir::new().expect("a folder");
    stdout(folder.path(), &tiny(&["sweep", "-q", "--grid", "method=fedeq,fedrep,local", "--seeds", "0..3", "--out", "all"]));
    let markdown = stdout(folder.path(), &["compare", "all", "--format", "markdown"]);
    assert!(
        markdown.starts_with("| method | model |") && markdown.contains("| ---: |") && markdown.contains(" effect "),
        "{markdown}"
    );
    let latex = stdout(folder.path(), &["compare", "all", "--format", "latex"]);
    assert!(["FeDEQ & ", "FedRep & ", "Local & "].iter().all(|name| latex.contains(name)), "{latex}");
    assert!(latex.contains("\\begin{tabular}{lllrr") && latex.contains("$\\pm$") && latex.contains("\\bottomrule"), "{latex}");
    let json: Value = serde_json::from_str(&stdout(folder.path(), &["compare", "all", "--format", "json"])).expect("JSON");
    let p =
        |contrast: &Value| [contrast["difference"]["p"].as_f64(), contrast["corrected"].as_f64()].map(|p| p.expect("a number"));
    let tests: Vec<[f64; 2]> = json["contrasts"].as_array().expect("tests").iter().map(p).collect();
    assert!(tests.len() == 2 && tests.iter().all(|[p, corrected]| corrected >= p), "{tests:?}");
    let output = fedeq(folder.path()).env("COLUMNS", "60").args(["compare", "all"]).output().expect("it runs");
    let narrow = String::from_utf8(output.stdout).expect("text");
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(
        narrow.split_whitespace().collect::<Vec<_>>().join(" ").contains("terminal is too narrow: parameters shared + own"),
        "{narrow}"
    );
}

#[test]
fn comparisons_of_a_sweep_say_what_differs_in_short_and_fold_it_where_there_is_little_room() {
    let folder = TempDir::new().expect("a folder");
    let grid = ["--grid", "method.rho=0.001,0.1", "--grid", "training.learning_rate=0.01,0.1", "--seeds", "0..2"];
    stdout(folder.path(), &tiny(&[&["sweep", "-q", "--out", "all"][..], &grid].concat()));
    let text = |columns: &str| {
        let output = fedeq(folder.path()).env("COLUMNS", columns).args(["compare", "all"]).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let width: usize = columns.parse().expect("a number");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{columns}: {text}");
        text
    };
    let wide = text("200");
    assert!(wide.contains("rho = 0.001, learning_rate = 0.01\n") && !wide.contains("method.rho"), "{wide}");
    let narrow = text("60");
    assert!(narrow.contains("FeDEQ") && narrow.contains("rho = 0.1, learning") | narrow.contains("rho = 0.1,\n"), "{narrow}");
    assert!(narrow.lines().filter(|line| line.contains("learning_rate = 0.01")).count() >= 2, "{narrow}");
    assert!(text("48").contains("rho = 0.001"));
    let markdown = stdout(folder.path(), &["compare", "all", "--format", "markdown", "--columns", "settings,shared,method"]);
    assert!(markdown.starts_with("| settings | shared % | method |\n"), "{markdown}");
    assert!(markdown.contains("| rho = 0.1, learning_rate = 0.1 | ") && markdown.contains(" | FeDEQ |"), "{markdown}");
    assert!(markdown.contains("- rho = 0."), "tests call groups by what differs: {markdown}");
    assert!(refused(folder.path(), &["compare", "all", "--csv", "--columns", "method"]).contains("`--columns` is for text"));
    assert!(refused(folder.path(), &["compare", "all", "--columns", "methods"]).contains("worst-tenth"));
}

#[test]
fn journals_are_written_as_mlflow_keeps_them_and_for_the_client_of_wandb() {
    let folder = TempDir::new().expect("a folder");
    stdout(folder.path(), &tiny(&["run", "--quiet", "--out", "runs/one"]));
    for _ in 0..2 {
        stdout(folder.path(), &["export-logs", "runs", "--to", "mlflow", "--out", "mlruns"]);
        stdout(folder.path(), &["export-logs", "runs/one", "--to", "wandb", "--out", "wandb"]);
    }
    let found = files(&folder.path().join("mlruns"));
    let file = |end: &str| {
        let path = found.iter().find(|path| path.to_string_lossy().ends_with(end)).unwrap_or_else(|| panic!("{end}: {found:?}"));
        fs::read_to_string(path).expect("a file")
    };
    assert_eq!(file("params/method.name"), "fedeq");
    let metadata = found.iter().filter(|path| path.ends_with("meta.yaml")).count();
    assert_eq!(metadata, 2, "an experiment and a run");
    let accuracy = found.iter().find(|path| path.to_string_lossy().contains("/metrics/")).expect("metrics");
    for line in fs::read_to_string(accuracy).expect("a file").lines() {
        let [time, value, step] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(
            time.parse::<u64>().is_ok_and(|time| time > 1_600_000_000_000)
                && value.parse::<f64>().is_ok()
                && step.parse::<u64>().is_ok()
        );
    }
    let wandb = files(&folder.path().join("wandb"));
    let history = wandb.iter().find(|path| path.ends_with("history.jsonl")).expect("a history");
    let last: Value =
        serde_json::from_str(fs::read_to_string(history).expect("a file").lines().last().expect("a step")).expect("JSON");
    assert!(
        last["step"].as_u64().is_some_and(|step| step > 0) && last["values"].as_object().is_some_and(|values| !values.is_empty())
    );
    let about = wandb.iter().find(|path| path.ends_with("run.json")).expect("what it is");
    let about: Value = serde_json::from_str(&fs::read_to_string(about).expect("a file")).expect("JSON");
    assert_eq!((&about["config"]["method.name"], &about["config"]["method.rho"]), (&"fedeq".into(), &0.01.into()));
    assert!(about["config"].as_object().is_some_and(|config| config["plan.rounds"].is_u64() && config["seed"].is_u64()));
    assert!(folder.path().join("wandb/import_wandb.py").exists());
}

#[test]
fn a_run_that_is_under_way_is_exported_as_running() {
    let folder = TempDir::new().expect("a folder");
    let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_fedeq"))
        .args(["run", "--quiet", "--rounds", "100000", "--model", "mlp", "--out", "runs/one"])
        .current_dir(folder.path())
        .spawn()
        .expect("it starts");
    let journal = folder.path().join("runs/one/rounds.jsonl");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while fs::read_to_string(&journal).map_or(0, |text| text.lines().count()) < 2 && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let exported = |to| {
        stdout(folder.path(), &["export-logs", "runs", "--to", to, "--out", to]);
    };
    exported("mlflow");
    exported("wandb");
    let read = |to: &str, end: &str| {
        let found = files(&folder.path().join(to));
        let all = found.iter().filter(|path| path.to_string_lossy().ends_with(end));
        all.map(|path| fs::read_to_string(path).expect("a file")).collect::<Vec<_>>()
    };
    let (about, meta) = (read("wandb", "run.json"), read("mlflow", "meta.yaml"));
    run.kill().expect("it ends");
    run.wait().expect("it has ended");
    let about: Value = serde_json::from_str(&about[0]).expect("JSON");
    assert_eq!(about["state"], "running");
    assert!(meta.iter().any(|text| text.contains("status: 1\n") && text.contains("end_time: null\n")), "{meta:?}");
    exported("wandb");
    let about: Value = serde_json::from_str(&read("wandb", "run.json")[0]).expect("JSON");
    assert_eq!(about["state"], "killed");
}
