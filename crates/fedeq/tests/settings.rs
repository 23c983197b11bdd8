//! What a person sets is used or refused by name, in whatever order it is given.
mod run_support;

use std::fs;
use std::process::Command;

use fedeq_core::Method;
use fedeq_data::source::Source;
use fedeq_run::experiment::{Experiment, Override};
use fedeq_run::sweep::{NOTHING, SweepAxis, cells};
use run_support::{TINY, fedeq, json, refusal, run, run_command, succeed};
use tempfile::TempDir;

fn wishes(settings: &[&str]) -> Vec<Override> {
    settings.iter().map(|text| text.parse().expect("a setting")).collect()
}

fn read(settings: &[&str]) -> Result<Experiment, String> {
    Experiment::read(None, &wishes(settings)).map_err(|error| format!("{error}; {}", error.hint()))
}

/// An experiment in which the settings come in this order, and in the opposite one.
fn both_ways(settings: &[&str]) -> [Result<Experiment, String>; 2] {
    let reversed: Vec<&str> = settings.iter().rev().copied().collect();
    [read(settings), read(&reversed)]
}

#[test]
fn choosing_a_kind_keeps_what_was_said_of_it_before() {
    for experiment in both_ways(&["method.rho=5", "method=fedeq"]) {
        assert!(matches!(experiment.expect("sound").method, Method::Fedeq(fedeq) if fedeq.rho == 5.0));
    }
    for experiment in both_ways(&["model.hidden=64", "model=deq-mlp", "data.partition.shards=3", "data=cifar10"]) {
        let experiment = experiment.expect("sound");
        assert!(experiment.to_toml().expect("writable").contains("hidden = 64"));
        assert_eq!(
            experiment,
            read(&["model=deq-mlp", "model.hidden=64", "data=cifar10", "data.partition.shards=3"]).expect("sound")
        );
    }
}

#[test]
fn what_the_chosen_kind_does_not_have_is_refused_by_name() {
    for (settings, expected) in [
        (
            ["method.rho=5", "method=fedrep"],
            "there is no key `method.rho` where `method` is `fedrep`; leave it out, or set `method=fedeq`",
        ),
        (["model.hidden=64", "model=linear"], "there is no key `model.hidden` where `model` is `linear`"),
        (
            ["data.partition.shards=3", "data=femnist"],
            "there is no key `data.partition.shards` where `data.partition` is `natural`",
        ),
        (
            ["data.source.label=y", "data=images"],
            "there is no key `data.source.label` where `data.source` is `images`; leave it out, or set `data=csv`",
        ),
    ] {
        for problem in both_ways(&settings) {
            let problem = problem.expect_err("it would be lost");
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}

#[test]
fn a_setting_of_a_file_is_not_lost_to_a_choice_on_the_command_line() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("mine.toml");
    for text in ["[method]\nname = \"fedeq\"\nrho = 5\n", "[method]\nrho = 5\nname = \"fedeq\"\n"] {
        fs::write(&file, text).expect("written");
        let read = |settings: &[&str]| Experiment::read(Some(&file), &wishes(settings));
        assert!(matches!(read(&[]).expect("sound").method, Method::Fedeq(fedeq) if fedeq.rho == 5.0));
        assert!(matches!(read(&["method=fedeq"]).expect("sound").method, Method::Fedeq(fedeq) if fedeq.rho == 5.0));
        assert!(matches!(read(&["method.rho=7"]).expect("sound").method, Method::Fedeq(fedeq) if fedeq.rho == 7.0));
        let error = read(&["method=fedrep"]).expect_err("rho would be lost");
        assert_eq!(error.to_string(), "there is no key `method.rho` where `method` is `fedrep`");
        assert!(
            error.hint().contains("it stands in the file") && error.hint().contains("--set 'method={ name ="),
            "{}",
            error.hint()
        );
        assert!(matches!(read(&["method={ name = 'fedrep' }"]).expect("replaced").method, Method::Fedrep(_)));
    }
}

#[test]
fn what_is_set_is_what_a_run_trains_with() {
    let folder = TempDir::new().expect("a folder");
    let rho = |out: &str, settings: &[&str]| {
        let path = run(&folder, out, &[&["model=mlp", "plan.rounds=1"], settings].concat());
        fs::read_to_string(path.join("experiment.toml")).expect("readable").contains("rho = 5.0")
    };
    assert!(rho("before", &["method.rho=5", "method=fedeq"]) && rho("after", &["method=fedeq", "method.rho=5"]));
    run_support::assert_same_files(&folder.path().join("before"), &folder.path().join("after"), "the order means nothing");
}

fn axes(texts: &[&str]) -> Vec<SweepAxis> {
    texts.iter().map(|text| text.parse().expect("an axis")).collect()
}

/// The values of every cell of a sweep.
fn grid(settings: &[&str], axes_of: &[&str]) -> Result<(Vec<Vec<String>>, Vec<String>), String> {
    let grid = cells(None, &wishes(settings), &axes(axes_of), &[], "out".as_ref());
    let grid = grid.map_err(|error| format!("{error}; {}", error.hint()))?;
    Ok((grid.cells.into_iter().map(|cell| cell.values).collect(), grid.notes))
}

#[test]
fn an_axis_that_some_cells_do_not_have_is_left_out_there_whatever_the_order() {
    let (values, notes) = grid(&[], &["method.rho=0.01,0.1", "method=fedeq,fedrep"]).expect("sound");
    assert_eq!(values, [["0.01", "fedeq"], [NOTHING, "fedrep"], ["0.1", "fedeq"]]);
    assert_eq!(notes, ["`method.rho` does not apply to `method=fedrep`: carried out once, without it"]);
    let (values, notes) = grid(&[], &["method=fedeq,fedrep", "method.rho=0.01,0.1"]).expect("sound");
    assert_eq!(values, [["fedeq", "0.01"], ["fedeq", "0.1"], ["fedrep", NOTHING]]);
    assert_eq!(notes.len(), 1);
}

#[test]
fn an_axis_that_no_cell_has_is_refused() {
    let problem = grid(&[], &["method=fedavg,fedrep", "method.rho=0.01,0.1"]).expect_err("nobody has it");
    assert!(problem.starts_with("there is no key `method.rho` where `method` is `fedavg`"), "{problem}");
    let problem = grid(&[], &["method.roh=0.01,0.1", "method=fedeq,fedrep"]).expect_err("mistyped");
    assert!(problem.contains("did you mean `method.rho`?"), "{problem}");
    assert!(grid(&[], &["method.rho=0.01,0.1", "method=fedeq,fedeqq"]).is_err());
}

#[test]
fn a_setting_that_only_some_cells_can_use_is_refused_with_a_way_to_give_it_to_these() {
    let problem = grid(&["method.rho=5"], &["method=fedeq,fedrep"]).expect_err("FedRep has no rho");
    let (error, hint) = problem.split_once("; ").expect("a hint");
    assert_eq!(error, "there is no key `method.rho` where `method` is `fedrep`");
    assert!(hint.contains("--grid 'method={ name = \"NAME\", rho = 5 },OTHER'"), "{hint}");
    let (values, _) = grid(&[], &["method={ name = \"fedeq\", rho = 5 },fedrep"]).expect("sound");
    assert_eq!(values.len(), 2);
}

#[test]
fn a_key_is_an_axis_once_and_has_no_other_value() {
    assert!(
        grid(&["method=fedeq"], &["method=fedeq,fedrep"])
            .expect_err("twice")
            .starts_with("`method=fedeq` is set, and `method` is an axis")
    );
    assert!(grid(&[], &["seed=1,2", "seed=3"]).expect_err("twice").starts_with("there are two axes `seed`"));
    assert!(grid(&[], &["method=local,local"]).expect_err("twice").starts_with("the sweep names the same experiment twice"));
}

fn sweep(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = fedeq(folder);
    command.args(["sweep", "--out", "sweep", "--quiet"]);
    TINY.iter().chain(&["model=mlp", "plan.rounds=1"]).for_each(|setting| {
        command.args(["--set", setting]);
    });
    command.args(arguments);
    command
}

#[test]
fn seeds_may_be_a_range_without_its_end() {
    let folder = TempDir::new().expect("a folder");
    succeed(&mut sweep(&folder, &["--seeds", "0..3", "--set", "method=local"]));
    let csv = fs::read_to_string(folder.path().join("sweep/sweep.csv")).expect("written");
    let seeds: Vec<&str> = csv.lines().skip(1).filter_map(|row| row.split(',').next()).collect();
    assert_eq!(seeds, ["0", "1", "2"]);
    let (error, hint) = refusal(&mut sweep(&folder, &["--seeds", "3..0"]), 2);
    assert!(error.contains("`3..0`") && hint.contains("`0..3`"), "{error} {hint}");
    let (error, _) = refusal(&mut sweep(&folder, &["--seeds", "0..3", "--set", "seed=7"]), 2);
    assert!(error.contains("`seed` is set as well"), "{error}");
}

/// A table of three clients.
fn table() -> String {
    let row = |index: usize| {
        let label = if index.is_multiple_of(2) { "well" } else { "ill" };
        format!("ward-{},{label},{},{}\n", index % 3, index % 2 * 200 + index % 7, 20 + index % 5)
    };
    format!("client,label,pulse,age\n{}", (0..60).map(row).collect::<String>())
}

/// Three clients with four grey pictures of two classes each.
fn pictures(root: &std::path::Path) {
    for (client, class) in [("a", "dark"), ("a", "light"), ("b", "dark"), ("b", "light"), ("c", "dark"), ("c", "light")] {
        let folder = root.join(client).join(class);
        fs::create_dir_all(&folder).expect("a folder");
        for number in 0..4_u8 {
            let level = number + if class == "dark" { 10 } else { 200 };
            fs::write(folder.join(format!("{number}.pgm")), [&b"P5 8 8 255\n"[..], &[level; 64]].concat()).expect("written");
        }
    }
}

#[test]
fn the_kind_of_data_is_told_from_its_looks() {
    let folder = TempDir::new().expect("a folder");
    pictures(&folder.path().join("my/folder"));
    fs::write(folder.path().join("mine.csv"), table()).expect("written");
    let line = |client: usize| format!("{{\"client\": \"c{client}\", \"text\": \"to be or not to be, that is the question\"}}\n");
    fs::write(folder.path().join("mine.jsonl"), (0..3).map(line).collect::<String>()).expect("written");
    for (path, kind, model) in
        [("my/folder", "images", "mlp"), ("mine.csv", "csv", "mlp"), ("mine.jsonl", "text", "transformer-4")]
    {
        let settings = [
            format!("model={model}"),
            "plan.rounds=1".into(),
            "plan.sampling.fraction=1".into(),
            "data.unseen={ count = 0 }".into(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        succeed(run_command(&folder, kind, &settings).args(["--data", path]));
        assert_eq!(json(&folder.path().join(kind).join("summary.json"))["data"], kind);
    }
}

#[test]
fn a_place_without_data_is_refused() {
    let folder = TempDir::new().expect("a folder");
    fs::create_dir_all(folder.path().join("empty")).expect("a folder");
    fs::write(folder.path().join("notes.txt"), "no data").expect("written");
    for (path, expected) in
        [("nowhere", "there is nothing at `nowhere`"), ("notes.txt", "`notes.txt` is neither"), ("empty", "no pictures")]
    {
        for command in [&["run", "--out", "out"][..], &["sweep", "--out", "out"], &["init-federation", "--out", "out"]] {
            let (error, _) = refusal(fedeq(&folder).args(command).args(["--data", path]), 2);
            assert!(error.contains(expected), "{command:?} {path}: {error}");
            assert!(!folder.path().join("out").exists());
        }
    }
}

#[test]
fn a_place_for_data_that_is_part_of_the_program_is_refused_everywhere() {
    let folder = TempDir::new().expect("a folder");
    run(&folder, "done", &["model=mlp", "plan.rounds=1"]);
    fs::write(folder.path().join("mine.toml"), "data = { source = 'digits', folder = 'mine' }\n").expect("written");
    for arguments in [
        &["run", "--set", "data=digits", "--data", "mine"][..],
        &["run", "--set", "data=digits", "--set", "data.folder=mine"],
        &["run", "--set", "data=synthetic", "--data", "mine"],
        &["run", "mine.toml"],
        &["sweep", "--out", "sweep", "--set", "data=digits", "--data", "mine"],
        &["init-federation", "--out", "app", "--set", "data=digits", "--data", "mine"],
        &["resume", "done", "--previous", "--data", "mine"],
        &["evaluate", "done", "--data", "mine"],
        &["predict", "done", "--client", "client-00", "--data", "mine"],
        &["export", "done", "--out", "models", "--data", "mine"],
        &["report", "done", "--data", "mine"],
        &["data", "inspect", "--data", "mine"],
        &["data", "partition", "--data", "mine"],
    ] {
        let (error, _) = refusal(fedeq(&folder).args(arguments), 2);
        assert!(
            error.contains("is part of the program") && error.contains("`mine`") || error.contains("--data mine"),
            "{arguments:?}: {error}"
        );
    }
    let (error, _) = refusal(fedeq(&folder).args(["reproduce", "fig-rho", "--dry-run", "--data", "mine"]), 2);
    assert!(error.contains("need no data"), "{error}");
    for (option, value) in [("--time-budget", "nan"), ("--time-budget", "-1s"), ("--seeds", "18446744073709551615")] {
        let (error, _) = refusal(fedeq(&folder).args(["reproduce", "fig-rho", "--dry-run"]).arg(format!("{option}={value}")), 2);
        assert!(error.contains(option), "{error}");
    }
}

#[test]
fn a_data_folder_of_the_environment_is_where_sets_are_kept_and_no_wish_for_one_of_them() {
    let folder = TempDir::new().expect("a folder");
    let mut command = run_command(&folder, "digits", &["model=mlp", "plan.rounds=1"]);
    succeed(command.env("FEDEQ_DATA", "elsewhere"));
    assert_eq!(json(&folder.path().join("digits/summary.json"))["data"], "digits");
    let (error, _) = refusal(run_command(&folder, "cifar", &["data=cifar10"]).env("FEDEQ_DATA", "elsewhere"), 2);
    assert!(error.contains("`cifar10` is not in the data folder") && error.contains("elsewhere"), "{error}");
    fs::write(folder.path().join("mine.csv"), table()).expect("written");
    let settings = ["model=mlp", "plan.rounds=1", "plan.sampling.fraction=1", "data.unseen={ count = 0 }"];
    succeed(run_command(&folder, "own", &settings).args(["--data", "mine.csv"]).env("FEDEQ_DATA", "elsewhere"));
    succeed(fedeq(&folder).args(["evaluate", "own"]).env("FEDEQ_DATA", "elsewhere"));
}

#[test]
fn what_is_said_in_two_ways_must_agree() {
    let folder = TempDir::new().expect("a folder");
    for (arguments, expected) in [
        (["--preset", "paper", "--set", "preset=reference"], "`--preset paper` and `--set preset=reference` contradict"),
        (["--workers", "2", "--set", "engine.workers=3"], "`--workers 2` and `--set engine.workers=3` contradict"),
        (["--device", "cpu", "--set", "engine.device=cuda"], "`--device cpu` and `--set engine.device=cuda` contradict"),
        (["--data", "a.csv", "--set", "data.folder=b.csv"], "`--data a.csv` and `--set data.folder=b.csv` contradict"),
    ] {
        let (error, _) = refusal(fedeq(&folder).arg("run").args(arguments), 2);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn numbers_and_kinds_are_asked_for_in_plain_words() {
    for (setting, error, hint) in [
        ("seed=-1", "`seed` is `-1`", "give a whole number from 0, below 2^63"),
        ("training.epochs=1.5", "`training.epochs` is `1.5`", "give a whole number from 0"),
        ("training.batch_size=0", "`training.batch_size` is `0`", "give a whole number from 1"),
        ("training.learning_rate=fast", "`training.learning_rate` is `fast`", "give a number"),
        ("method.dual=3", "`method.dual` is `3`", "give `none`, `zero`, `{ constant = .. }` or `{ uniform = .. }`"),
        ("data.unseen={}", "`data.unseen` is not one of several kinds", "name one of them"),
        ("model.hidden=x", "there is no key `model.hidden` where `model` is `deq-resnet-xs`", "`model=mlp` or `model=deq-mlp`"),
        ("plan.measure_theory=3", "`plan.measure_theory` is `3`", "give `true` or `false`"),
        ("seed=9223372036854775808", "`seed` is `9223372036854775808`", "below 2^63"),
    ] {
        let problem = read(&[setting]).expect_err("refused");
        assert!(problem.starts_with(error) && problem.contains(hint), "{problem}");
    }
}

#[test]
fn a_seed_that_cannot_be_written_is_refused_before_anything_is_trained() {
    let folder = TempDir::new().expect("a folder");
    let (error, _) = refusal(fedeq(&folder).args(["demo", "--quiet", "--out", "demo", "--seed", "18446744073709551615"]), 2);
    assert_eq!(error, "`seed` is `18446744073709551615`");
}

#[test]
fn one_round_is_one_round() {
    let folder = TempDir::new().expect("a folder");
    let output = succeed(&mut run_command(&folder, "one", &["model=mlp", "plan.rounds=1"]));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.starts_with("fedeq on digits with mlp, 1 round\n"), "{text}");
}

#[test]
fn every_source_is_told_by_its_name_too() {
    for source in Source::all() {
        assert_eq!(read(&[&format!("data={}", source.name())]).expect("sound").data.source.name(), source.name());
    }
}

#[test]
fn a_table_that_names_no_clients_is_refused_with_the_settings_that_help() {
    let folder = TempDir::new().expect("a folder");
    let rows: String = (0..100).map(|index| format!("{},{index},{}\n", ["well", "ill"][index % 2], 7 * index % 13)).collect();
    fs::write(folder.path().join("mine.csv"), format!("label,a,b\n{rows}")).expect("writable");
    let run = |settings: &[&str]| {
        let mut command = fedeq(&folder);
        command.args(["run", "--data", "mine.csv", "--out", "own", "--set", "plan.rounds=1"]).args(settings);
        command
    };
    let (error, hint) = refusal(&mut run(&[]), 2);
    assert_eq!(error, "`csv` does not say whose each sample is");
    assert!(hint.contains("`--set data.partition=iid`"), "{hint}");
    succeed(&mut run(&["--set", "data.partition=iid"]));
}
