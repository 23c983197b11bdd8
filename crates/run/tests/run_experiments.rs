//! Experiments: what a person leaves out is filled in, and what is written down is read back.
use std::fs;

use burn::tensor::{DType, Device, Tensor, TensorData};
use fedeq_core::{FineTuning, HeadOn, Method, PersonalStart, ThetaStart, Weighting};
use fedeq_data::partition::Partition;
use fedeq_data::source::Source;
use fedeq_equilibrium::{Adjoint, SolveOptions, WarmStart, solve_tensors};
use fedeq_models::{DeqTransformerOptions, GroupNormScope, ModelConfig};
use fedeq_run::experiment::{Experiment, Override};
use fedeq_run::preset::Preset;
use serde_json::Value;

fn read(wishes: &[&str]) -> Experiment {
    let wishes: Vec<Override> = wishes.iter().map(|wish| wish.parse().expect("a setting")).collect();
    Experiment::read(None, &wishes).unwrap_or_else(|error| panic!("{wishes:?}: {error}"))
}

#[test]
fn every_preset_method_and_data_set_is_read_back_as_it_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("experiment.toml");
    for preset in Preset::NAMES {
        for method in Method::NAMES {
            for source in Source::all() {
                let experiment =
                    read(&[&format!("preset={preset}"), &format!("method={method}"), &format!("data={}", source.name())]);
                let text = experiment.to_toml().expect("writable");
                assert_eq!(Experiment::from_resolved(&text).expect("resolved"), experiment);
                fs::write(&file, text).expect("writable");
                assert_eq!(Experiment::read(Some(&file), &[]).expect("read again"), experiment, "{preset} {method}");
            }
        }
    }
}

#[test]
fn every_model_is_read_back_as_it_was_written() {
    for preset in Preset::NAMES {
        for model in ModelConfig::NAMES {
            let experiment = read(&[&format!("preset={preset}"), &format!("model={model}")]);
            assert_eq!(Experiment::from_resolved(&experiment.to_toml().expect("writable")).expect("resolved"), experiment);
            assert_eq!(experiment.model.name(), model);
        }
    }
}

/// Data set, rounds, batch, rates of FeDEQ and of the others, and their models: the authors' run scripts.
const RUNNERS: [(&str, u64, usize, f64, f64, &str, &str); 4] = [
    ("femnist", 150, 10, 0.01, 0.01, "deq-resnet-s", "resnet-20"),
    ("cifar10", 150, 20, 0.01, 0.01, "deq-resnet-m", "resnet-34"),
    ("cifar100", 150, 20, 0.01, 0.05, "deq-resnet-m", "resnet-34"),
    ("shakespeare", 400, 16, 0.1, 0.1, "deq-transformer", "transformer-8"),
];

#[test]
fn the_values_of_the_authors_run_scripts_are_the_defaults() {
    for (data, rounds, batch, fedeq_rate, rate, equilibrium, explicit) in RUNNERS {
        for (method, rate, model) in [("fedeq", fedeq_rate, equilibrium), ("fedrep", rate, explicit)] {
            let experiment = read(&[&format!("data={data}"), &format!("method={method}")]);
            let training = &experiment.training;
            assert_eq!(
                (experiment.plan.rounds, training.batch_size.get(), training.learning_rate),
                (rounds, batch, rate),
                "{data}"
            );
            assert_eq!((training.epochs, training.personal_epochs), (5, 3));
            assert_eq!((experiment.model.name(), experiment.plan.sampling.fraction), (model, 0.1), "{data}");
        }
    }
    assert_eq!(read(&["data=cifar10"]).data.partition, Partition::LabelShards { clients: 100, shards: 5 });
}

#[test]
fn the_recommended_preset_is_the_paper_with_another_start_of_the_theta_step() {
    let mut recommended = read(&["data=cifar10"]);
    let paper = read(&["data=cifar10", "preset=paper"]);
    assert_ne!(recommended.method, paper.method);
    let Method::Fedeq(fedeq) = &mut recommended.method else { panic!("the default method") };
    assert_eq!(fedeq.start, ThetaStart::Received);
    fedeq.start = ThetaStart::Own;
    recommended.preset = Preset::Paper;
    assert_eq!(recommended, paper);
    assert!(matches!(paper.training.warm_start, WarmStart::BySample { .. }));
}

#[test]
fn the_recommended_preset_injects_symbols_eight_times_as_large() {
    let of = |preset: &str, more: &[&str]| {
        let experiment = read(&[&["data=shakespeare", &format!("preset={preset}")], more].concat());
        let ModelConfig::DeqTransformer(options) = experiment.model else { panic!("{}", experiment.model) };
        options
    };
    let [recommended, paper, reference] = ["recommended", "paper", "reference"].map(|preset| of(preset, &[]));
    assert_eq!([&recommended, &paper, &reference].map(|options| options.injection), [8.0, 1.0, 1.0]);
    let usual = DeqTransformerOptions::default();
    for options in [&recommended, &paper, &reference] {
        assert_eq!((options.layers, options.tied, options.state_scale), (usual.layers, usual.tied, usual.state_scale));
        assert_eq!((options.personal, options.injection_norm), (usual.personal, usual.injection_norm));
    }
    assert_eq!(paper, DeqTransformerOptions { injection: 1.0, ..recommended });
    assert_eq!(of("recommended", &["model.injection=1"]), paper, "what is given stands");
    assert_eq!(of("paper", &["model.injection=32", "model.personal=output"]).injection, 32.0);
    // A run of before has no such key, and meant one.
    let old = read(&["data=shakespeare", "model.injection=1"]);
    let text = old.to_toml().expect("writable");
    assert!(!text.contains("injection"), "{text}");
    assert_eq!(Experiment::from_resolved(&text).expect("resolved"), old);
}

#[test]
fn the_reference_preset_does_what_the_authors_code_does() {
    let of = |method: &str, data: &str| read(&["preset=reference", &format!("method={method}"), &format!("data={data}")]);
    let fedeq = of("fedeq", "cifar10");
    let ModelConfig::DeqResNetM(model) = &fedeq.model else { panic!("{}", fedeq.model) };
    assert!(matches!(model.equilibrium.adjoint, Adjoint::Implicit { .. }) && model.cell_norm == GroupNormScope::RowWise);
    assert_eq!((fedeq.plan.rounds, fedeq.training.warm_start), (151, WarmStart::Off));
    let Method::Fedeq(settings) = fedeq.method else { panic!("another method") };
    assert_eq!((settings.start, settings.head_on), (ThetaStart::OwnIfConsecutive, HeadOn::Start));
    assert_eq!(settings.weighting, Weighting::Samples);
    assert!(matches!(of("ditto", "cifar10").method, Method::Ditto(ditto) if ditto.start == PersonalStart::Trained));
    assert!(matches!(of("ditto", "shakespeare").method, Method::Ditto(ditto) if ditto.penalty == 0.1));
    assert!(matches!(of("fedper", "cifar10").method, Method::Fedper(fedper) if fedper.head_first));
    assert!(matches!(of("local", "cifar10").method, Method::Local(local) if local.everybody));
    assert!(matches!(of("fedavg-ft", "cifar10").method, Method::FedavgFt(tune) if tune.tuning == FineTuning::FromShare(0.3)));
    assert!(of("fedavg", "shakespeare").plan.sampling.replacement && !of("fedavg", "cifar10").plan.sampling.replacement);
}

#[test]
fn the_reference_preset_accelerates_as_jaxopt_does() {
    let golden: Value = serde_json::from_str(include_str!("golden/anderson.json")).expect("JSON");
    let numbers = |value: &Value| serde_json::from_value::<Vec<f64>>(value.clone()).expect("numbers");
    let on = (&Device::default(), DType::F64);
    let rows: Vec<f64> = golden["matrix"].as_array().expect("rows").iter().flat_map(numbers).collect();
    let matrix = Tensor::<2>::from_data(TensorData::new(rows, [12, 12]), on).transpose();
    let ModelConfig::DeqResNetM(model) = read(&["preset=reference", "data=cifar10"]).model else { panic!("another model") };
    for sample in golden["samples"].as_array().expect("samples") {
        let input = Tensor::<2>::from_data(TensorData::new(numbers(&sample["input"]), [1, 12]), on);
        let cell = |z: Tensor<2>| (z.matmul(matrix.clone()) + input.clone()).tanh();
        let options = SolveOptions { trace: true, ..SolveOptions::default() };
        let found = solve_tensors(cell, input.clone(), &model.equilibrium.solver, &model.equilibrium.stop, &options);
        let (residuals, trace) = (numbers(&sample["residuals"]), &found.report.trace.expect("asked for")[0]);
        assert_eq!(trace.len(), residuals.len());
        assert!(trace.iter().zip(&residuals).all(|(ours, theirs)| (ours - theirs).abs() < 1e-6 * theirs), "{trace:?}");
        let image: Vec<f64> = found.image.into_data().try_to_vec().expect("64 bits");
        assert!(image.iter().zip(numbers(&sample["image"])).all(|(ours, theirs)| (ours - theirs).abs() < 2e-8));
    }
}

#[test]
fn on_text_the_reference_preset_divides_the_admm_terms_by_the_symbols_of_a_batch() {
    let per_symbol = |wishes: &[&str]| matches!(read(wishes).method, Method::Fedeq(fedeq) if fedeq.per_symbol);
    assert!(per_symbol(&["preset=reference", "data=shakespeare"]));
    assert!(!per_symbol(&["preset=reference", "data=cifar10"]) && !per_symbol(&["data=shakespeare"]));
}

/// The refusal of settings that do not go together.
fn refused(wishes: &[&str]) -> String {
    read(wishes).prepare().err().unwrap_or_else(|| panic!("{wishes:?} are accepted")).to_string()
}

#[test]
fn heads_of_their_own_differ_between_clients_and_nothing_else_does() {
    let fresh = |wishes: &[&str]| {
        let prepared = read(&[wishes, &["model=deq-mlp", "data.partition.clients=5"]].concat()).prepare().expect("sound");
        [0, 1, 0].map(|client| prepared.fresh_state(client).own)
    };
    let [first, second, again] = fresh(&["training.initial_heads=own"]);
    assert_ne!(first.head(), second.head());
    assert_eq!((first.theta(), &first), (second.theta(), &again));
    let [same, other, _] = fresh(&[]);
    assert_eq!((same.theta(), &same), (first.theta(), &other));
}

#[test]
fn settings_of_heads_and_symbols_that_would_do_nothing_are_refused() {
    let error = refused(&["training.initial_heads=own", "method=fedavg", "model=mlp"]);
    assert!(error.contains("`training.initial_heads = own` does not go with `fedavg`"), "{error}");
    let error = refused(&["training.initial_heads=own", "method=fedrep", "model=resnet-20", "model.family=cifar10"]);
    assert!(error.contains("does not go with `resnet-20`, whose head always starts at the same numbers"), "{error}");
    let error = refused(&["method.per_symbol=true"]);
    assert!(error.contains("`method.per_symbol` does not go with `digits`, which is not text"), "{error}");
}

#[test]
fn warm_starts_say_what_memory_they_take() {
    let warm_bytes = |wishes: &[&str]| read(wishes).prepare().expect("sound").warm_bytes();
    let prepared = read(&["data.limit.train=40"]).prepare().expect("sound");
    assert_eq!(prepared.network.graph().state_size(), Some(4 * 4 * 16));
    assert_eq!(prepared.warm_bytes(), Some(40 * 4 * 4 * 16 * 2)); // 40 samples in half precision.
    assert_eq!(warm_bytes(&["training.warm_start.by-sample.capacity=1000"]), Some(1000));
    assert_eq!(warm_bytes(&["training.warm_start=off"]), None);
    assert_eq!(warm_bytes(&["method=fedrep"]), None);
}

#[test]
fn settings_complete_each_other_and_of_a_key_given_twice_the_last_value_counts() {
    let experiment =
        read(&["model=deq-mlp", "model.hidden=64", "model.equilibrium.solver={ broyden = { memory = 7 } }", "seed=1", "seed=2"]);
    let ModelConfig::DeqMlp(options) = &experiment.model else { panic!("{}", experiment.model) };
    assert_eq!((options.hidden, experiment.seed), (Some(64), 2));
    assert_eq!(options.equilibrium.solver, fedeq_equilibrium::Solver::broyden(7));
    assert_eq!(read(&["data.partition=iid"]).data.partition, Partition::Iid { clients: 30 });
    assert_eq!(read(&["data.partition.clients=4"]).data.partition, Partition::LabelShards { clients: 4, shards: 2 });
}

#[test]
fn experiments_are_told_apart_by_what_changes_their_results() {
    let identity = |wishes: &[&str]| read(wishes).identity().expect("writable");
    assert_eq!(identity(&["data=cifar10"]), identity(&["data=cifar10", "engine.workers=3", "data.folder=elsewhere"]));
    assert_ne!(identity(&[]), identity(&["seed=1"]));
    assert_ne!(identity(&[]), identity(&["method.rho=0.02"]));
    assert_eq!(
        identity(&[]),
        identity(&["engine.checkpoint_every=3", "engine.checkpoint_seconds=7", "engine.client_memory_mb=5"])
    );
    assert_ne!(identity(&[]), identity(&["engine.device=cuda"]), "devices round differently");
    assert_eq!(identity(&["engine.device=cuda"]), identity(&["engine.device=cuda:1"]), "which of several alike does not matter");
    assert_eq!(
        identity(&["engine.device=cuda"]),
        identity(&["engine.device=cuda", "engine.precision=mixed"]),
        "which is the default"
    );
    assert_ne!(
        identity(&["engine.device=cuda"]),
        identity(&["engine.device=cuda", "engine.precision=exact"]),
        "so do precisions"
    );
    assert_eq!(identity(&[]), identity(&["engine.precision=exact"]), "which the CPU always has");
    assert_eq!(identity(&["engine.device=cuda"]), identity(&["engine.device=cuda", "engine.device_memory_mb=100"]));
}
