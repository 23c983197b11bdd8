//! Experiments: plain data that says everything about a run.
//!
//! A file holds what its writer cares about; a [`Preset`] fills in the rest, and the result is an
//! [`Experiment`] in which every choice is explicit. [`Experiment::prepare`] makes it live.
//!
//! ```
//! use fedeq_run::experiment::{Experiment, Override};
//! let settings: Vec<Override> = vec!["method=fedrep".parse()?, "plan.rounds=3".parse()?];
//! let experiment = Experiment::read(None, &settings)?;
//! assert_eq!((experiment.method.name(), experiment.plan.rounds), ("fedrep", 3));
//! assert_eq!(Experiment::from_resolved(&experiment.to_toml()?)?, experiment);
//! # Ok::<(), fedeq_core::Error>(())
//! ```
//!
//! # Layout
//! - this file: what an experiment consists of
//! - `read`: from a file and settings to an experiment, and back to one value a key
//! - `filled_in`: with what files leave out since it is usual
//! - `setting`: `key=value`; `short_form`: short names of some; `layers`: settings of several origins over each other
//! - `registry`: every setting there is, with type, default, bounds and what it means
//! - `refusal`: what is wrong, where, and what was perhaps meant
//! - `check`: what can be refused without data; `prepare`: from an experiment to live objects, which are `prepared`; `data`: who holds what, and in which units; `device`: what it is computed on
//! - `external`: networks that are computed outside of fedeq
mod check;
mod data;
mod device;
mod external;
mod filled_in;
mod layers;
mod prepare;
mod prepared;
mod read;
mod refusal;
mod registry;
mod setting;
mod short_form;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use fedeq_core::{Attack, Error, Method, Plan, Result, Training, fingerprint};
use fedeq_data::FeatureShift;
use fedeq_data::partition::{HoldOut, Limit, Partition, Split};
use fedeq_data::source::Source;
use fedeq_models::ModelConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use check::{MOST_MEGABYTES, MOST_WORKERS};
pub use data::scaled_by_example;
pub use device::{Device, DeviceKind, Precision};
pub use external::ExternalModel;
pub use prepared::Prepared;
pub use read::USUAL_FOLDER;
pub(crate) use refusal::Refusal;
pub use registry::{Accepts, Bound, Condition, Given, GivenWhere, Holds, NamedChoice, Range, SettingInfo};
pub use setting::Override;
pub use short_form::SHORT_FORMS;
/// The value of a setting.
pub use toml::Value as SettingValue;

use crate::preset::{Preset, PresetValues};

/// Everything about a run but the machine it runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The preset, which fills in what is left out.
    pub preset: Preset,
    /// The seed of all randomness.
    pub seed: u64,
    /// What is learned from, and who holds it.
    pub data: DataConfig,
    /// The network.
    pub model: ModelConfig,
    /// How clients learn together.
    pub method: Method,
    /// How a client trains.
    pub training: Training,
    /// How long, and with whom.
    pub plan: Plan,
    /// How it is computed.
    pub engine: EngineSettings,
    /// Simulates malicious clients, to test the robustness of the aggregation; all are honest if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attack: Option<Attack>,
}

/// What is learned from, and who holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// The folder that data sets are kept in, or the path of one's own data.
    pub folder: PathBuf,
    /// Which data set.
    pub source: Source,
    /// How many copies of every sample there are, one if left out. For trials of many clients with little data: what one client trains
    /// on, another may then be evaluated on, so accuracies say nothing.
    pub copies: Option<NonZeroUsize>,
    /// How samples are divided among clients.
    pub partition: Partition,
    /// What a client trains on and is evaluated by.
    pub split: Split,
    /// The most samples that a client uses, all of them if left out.
    pub limit: Option<Limit>,
    /// Clients kept out of training: the unseen ones.
    pub unseen: Option<HoldOut>,
    /// The share of training samples that get another class than theirs; none if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    pub label_noise: Option<f64>,
    /// Makes the pictures of every client look different; off if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shift: Option<FeatureShift>,
}

/// How a run is computed. Whatever stands here, the results are the same to the byte, but for the kind of device and its precision: another one rounds otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSettings {
    /// How many clients train in parallel; as many as there are cores if left out.
    #[schemars(range(min = 1, max = MOST_WORKERS))]
    pub workers: Option<NonZeroUsize>,
    /// What clients are computed on: `cpu`, `cuda` (the first GPU) or `cuda:1`; `fedeq devices` lists them.
    pub device: String,
    /// The precision of products on a GPU; `mixed` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Megabytes (1e6 bytes) of a GPU's memory that a run may use; most of what is free if left out. Half of what data leaves is for the states of clients,
    /// which move to the memory of the machine beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MOST_MEGABYTES))]
    pub device_memory_mb: Option<usize>,
    /// What a run was computed on before it was continued on another device. `fedeq resume --device` writes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier_devices: Vec<String>,
    /// Megabytes (1e6 bytes) of client states kept in memory; the rest is on disk.
    #[schemars(range(min = 1, max = MOST_MEGABYTES))]
    pub client_memory_mb: usize,
    /// Rounds between checkpoints; there is always one when a run is stopped, and at the end.
    #[schemars(range(min = 1))]
    pub checkpoint_every: u64,
    /// Seconds after which there is a checkpoint at the end of the round, however many rounds are over: what a kill may cost.
    #[schemars(range(min = 1))]
    pub checkpoint_seconds: u64,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            workers: None,
            device: "cpu".into(),
            precision: None,
            device_memory_mb: None,
            earlier_devices: Vec::new(),
            client_memory_mb: 1_000,
            checkpoint_every: 10,
            checkpoint_seconds: 180,
        }
    }
}

impl Experiment {
    /// An experiment with everything filled in for a method, a data set and, if it is not the usual one, a model.
    pub fn defaults(preset: Preset, method: &str, source: Source, model: Option<&str>) -> Result<Self> {
        let values = PresetValues::of(preset, &source);
        let method = values.method(method)?;
        let model = values.model(model, &method)?;
        Ok(Self {
            preset,
            seed: 0,
            training: values.training(&method, &model),
            plan: values.plan(&method),
            model,
            method,
            data: DataConfig {
                folder: USUAL_FOLDER.into(),
                partition: data::usual_partition(&source),
                source,
                copies: None,
                split: Split::default(),
                limit: None,
                unseen: None,
                label_noise: None,
                shift: None,
            },
            engine: EngineSettings::default(),
            attack: None,
        })
    }

    /// What it is, in a few words: method, data and model.
    pub fn title(&self) -> String {
        format!("{} on {} with {}", self.method.name(), self.data.source.name(), self.model)
    }

    /// The experiment as a file, which leaves out what is usual of some settings.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::invalid(format!("the experiment cannot be written: {error}"), TOO_LARGE))
    }

    /// Reads what [`to_toml`](Self::to_toml) wrote; nothing is filled in.
    pub fn from_resolved(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| Error::invalid(format!("not a resolved experiment: {}", error.message()), REREAD))
    }

    /// The experiment on a machine where data lies in a folder: nothing of the machine it comes from is left.
    pub fn on_another_machine(mut self, folder: PathBuf) -> Self {
        self.engine = EngineSettings::default();
        self.data.folder = folder;
        self
    }

    /// The experiment where a client is: if every client brings its own data, those given are this client's.
    pub fn at_client(mut self, client: usize) -> Self {
        if let Partition::Own { here, .. } = &mut self.data.partition {
            *here = Some(client);
        }
        self
    }

    /// Tells experiments apart by all that changes their results: also by the kind of device and its precision, but not by which of several
    /// cards it is, how many workers there are, or where the data lies.
    pub fn identity(&self) -> Result<String> {
        let mut essence = self.clone().on_another_machine(PathBuf::new());
        essence.engine.device = self.devices();
        Ok(fingerprint(essence.to_toml()?.as_bytes()))
    }
}

/// The models that solve for a fixed point, by name: `` `deq-mlp`, `deq-resnet-xs` or .. ``.
pub fn equilibrium_models() -> String {
    models_that(ModelConfig::is_equilibrium)
}

/// The models of which something is true, by name.
fn models_that(is_so: impl Fn(&ModelConfig) -> bool) -> String {
    one_of(ModelConfig::NAMES.into_iter().filter(|name| name.parse::<ModelConfig>().is_ok_and(|model| is_so(&model))))
}

/// Names, of which one is to be chosen.
fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

const TOO_LARGE: &str = "choose numbers below 2^63";
const REREAD: &str = "read it as an experiment with `fedeq run` instead";
