//! Experiments: what a person leaves out is filled in, and what is written down is read back.
use std::fs;

use fedeq::experiment::{Experiment, Override};
use fedeq::preset::Preset;
use fedeq_core::{FineTuning, HeadOn, Method, PersonalStart, ThetaStart, Weighting};
use fedeq_data::partition::Partition;
use fedeq_data::source::Source;
use fedeq_equilibrium::{Adjoint, WarmStart};
use fedeq_models::{ModelConfig, Reach};

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
fn the_reference_preset_does_what_the_authors_code_does() {
    let of = |method: &str, data: &str| read(&["preset=reference", &format!("method={method}"), &format!("data={data}")]);
    let fedeq = of("fedeq", "cifar10");
    let ModelConfig::DeqResNetM(model) = &fedeq.model else { panic!("{}", fedeq.model) };
    assert!(matches!(model.equilibrium.adjoint, Adjoint::Implicit { .. }) && model.cell_norm == Reach::RowWise);
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
}
