//! The experiments.
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use fedeq_core::{Aggregation, Plan, Result, Sampling, Training};
use fedeq_data::partition::{Partition, Split};
use fedeq_data::source::Source;

use fedeq_run::experiment::{DataConfig, Experiment};
use fedeq_run::preset::Preset;

/// The methods, in the order in which they are shown.
pub const METHODS: [&str; 4] = ["local", "fedavg", "fedrep", "fedeq"];

/// How many seeds each of them has: one seed of a small task tells little.
pub const SEEDS: u64 = 5;

/// Clients with at most three labels each.
const PARTITION: Partition = Partition::LabelShards { clients: 30, shards: 3 };

/// Most samples are kept for testing, so that a client has about nine to learn from and no easy time alone.
const SPLIT: Split = Split { validation: 0.0, test: Some(0.85) };

/// With these settings all methods and seeds together take about 20 seconds on two cores. Evaluations take half of it, so there are few; they are placed so that
/// those who send most have one soon after they have sent what FeDEQ sends in all.
const PLAN: Plan = Plan {
    rounds: 20,
    sampling: Sampling { fraction: 1.0 / 3.0, replacement: false, poisson: false },
    evaluate_every: 4,
    patience: None,
    measure_theory: false,
    asynchronous: None,
    compression: None,
    aggregation: Aggregation::MEAN,
    server_optimiser: None,
    privacy: None,
    secure_aggregation: None,
};

/// The experiment of a method: its usual network, and for all methods the same data, rate and number of passes.
pub fn experiment(method: &str, seed: u64) -> Result<Experiment> {
    let usual = Experiment::defaults(Preset::Recommended, method, Source::default(), None)?;
    let batch_size = const { NonZeroUsize::new(5).unwrap() };
    Ok(Experiment {
        seed,
        data: DataConfig { partition: PARTITION, split: SPLIT, ..usual.data },
        training: Training { learning_rate: 0.1, epochs: 3, personal_epochs: 2, batch_size, ..usual.training },
        plan: PLAN,
        ..usual
    })
}

/// Where a run goes.
pub fn run_folder(folder: &Path, method: &str, seed: u64) -> PathBuf {
    folder.join(format!("{method}-{seed}"))
}

/// A folder below `runs` that nobody has taken yet.
pub fn free_folder(runs: &Path) -> PathBuf {
    let numbered = |number: u32| runs.join(if number == 1 { "demo".into() } else { format!("demo-{number}") });
    (1..).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| runs.join("demo"))
}
