//! How fast devices were: recorded from rounds, and used to forecast others.
use std::path::Path;

use fedeq_core::{Error, Result};
use fedeq_models::{InputKind, ModelConfig};
use serde::{Deserialize, Serialize};

use super::work::Work;
use crate::experiment::{DeviceKind, EngineSettings, Prepared};
use crate::machine::{cores, processor};
use crate::run::{Timing, UsedGpu, read_json, write_json};

/// How fast a device was with some network, in 1e12 multiply-adds a second as `forecast` counts them: with all solver steps that are allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The device: `NVIDIA H200 (mixed)`, or the cores of a processor. Its [kind](DeviceKind::of_description) stands in it.
    pub device: String,
    /// The data set.
    pub data: String,
    /// The network.
    pub model: String,
    /// The method; any if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// While it trains.
    pub train: f64,
    /// While it evaluates.
    pub evaluate: f64,
    /// What it was measured by.
    pub by: MeasuredBy,
}

/// What a rate was measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredBy {
    /// Whole rounds of this program.
    Rounds,
    /// Kernels alone: no round is faster.
    Kernels,
}

/// All rates that are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    #[serde(default)]
    rate: Vec<Rate>,
}

/// A rate, and whether it fits well.
pub(super) struct Fitting<'a> {
    pub(super) rate: &'a Rate,
    /// Whether it is that of the same network on the same data.
    pub(super) is_own_network: bool,
}

impl Rates {
    /// The file's name in a folder.
    pub const FILE: &'static str = "rates.json";

    /// Those that come with the program.
    pub fn committed() -> Result<Self> {
        let damaged = |error: toml::de::Error| Error::invalid(format!("the table of rates: {error}"), "correct `rates.toml`");
        toml::from_str(include_str!("rates.toml")).map_err(damaged)
    }

    /// Those in a folder; none where it has no such file.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(Self::FILE);
        if path.is_file() { read_json(&path) } else { Ok(Self::default()) }
    }

    /// Writes them to a folder.
    pub fn save(&self, folder: &Path) -> Result<()> {
        write_json(&folder.join(Self::FILE), self)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rate.is_empty()
    }

    /// Takes in one; an older one of the same network, method and device is replaced.
    pub fn add(&mut self, rate: Rate) {
        let key = |rate: &Rate| (rate.device.clone(), rate.data.clone(), rate.model.clone(), rate.method.clone());
        self.rate.retain(|known| key(known) != key(&rate));
        self.rate.push(rate);
        self.rate.sort_by_key(key);
    }

    /// Takes in what the rounds of a run show; one of as many runs side by side has its share of the device.
    pub fn note(&mut self, prepared: &Prepared, timings: &[Timing], jobs: usize) -> Result<()> {
        if let Some(rate) = Rate::of(prepared, timings, jobs)? {
            self.add(rate);
        }
        Ok(())
    }

    /// The devices that it knows GPUs' rates of.
    pub(super) fn gpus(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.rate.iter().map(|rate| rate.device.as_str()).filter(|name| is_gpu(name)).collect();
        names.dedup();
        names
    }

    /// The rate of the device, network, data and method that are most alike; whole rounds before kernels.
    pub(super) fn fitting(&self, device: Option<&str>, prepared: &Prepared) -> Option<Fitting<'_>> {
        let experiment = &prepared.experiment;
        let (data, model, method) = (experiment.data.source.name(), experiment.model.name(), experiment.method.name());
        let score = |rate: &Rate| {
            [
                device.is_some_and(|device| rate.device == device),
                rate.model == model,
                rate.data == data,
                rate.method.as_deref() == Some(method),
                is_for_text(&rate.model) == is_for_text(model),
                rate.by == MeasuredBy::Rounds,
                is_equilibrium(&rate.model) == is_equilibrium(model),
            ]
        };
        // Of rates that fit equally well the first one counts.
        let best = self.rate.iter().rev().max_by_key(|rate| score(rate))?;
        let [_, same_model, same_data, ..] = score(best);
        Some(Fitting { rate: best, is_own_network: same_model && same_data })
    }

    /// Only those of GPUs, or only those of one device.
    pub(super) fn only(&self, wanted: impl Fn(&str) -> bool) -> Self {
        Self { rate: self.rate.iter().filter(|rate| wanted(&rate.device)).cloned().collect() }
    }

    /// These before others.
    pub(super) fn before(&self, others: &Self) -> Self {
        Self { rate: self.rate.iter().chain(&others.rate).cloned().collect() }
    }
}

/// Whether a network that this program knows takes symbols.
fn is_for_text(name: &str) -> bool {
    name.parse().is_ok_and(|model: ModelConfig| model.inputs() == Some(InputKind::Symbols))
}

/// Whether a network that this program knows solves for a fixed point.
fn is_equilibrium(name: &str) -> bool {
    name.parse().is_ok_and(|model: ModelConfig| model.is_equilibrium())
}

/// Whether a device is a GPU, by its name.
pub(super) fn is_gpu(device: &str) -> bool {
    DeviceKind::of_description(device) != DeviceKind::Cpu
}

impl Rate {
    /// What the rounds of a run show; nothing if there are none. The first round also pays for memory and for kernels that are loaded, so it counts only where it is alone.
    pub fn of(prepared: &Prepared, timings: &[Timing], jobs: usize) -> Result<Option<Self>> {
        let counted = if timings.len() > 1 { &timings[1..] } else { timings };
        let train: f64 = counted.iter().map(|timing| timing.train).sum();
        if train <= 0.0 {
            return Ok(None);
        }
        let work = Work::of(prepared)?;
        let share = jobs.max(1) as f64;
        let trained = share * work.round * counted.len() as f64 / train;
        let evaluated = counted.iter().filter(|timing| timing.evaluate > 0.0);
        let (evaluations, seconds) = evaluated.fold((0.0, 0.0), |(count, sum), timing| (count + 1.0, sum + timing.evaluate));
        let experiment = &prepared.experiment;
        Ok(Some(Self {
            device: device_name(&experiment.engine),
            data: experiment.data.source.name().to_owned(),
            model: experiment.model.name().to_owned(),
            method: Some(experiment.method.name().to_owned()),
            train: trained,
            evaluate: if seconds > 0.0 { share * work.evaluation * evaluations / seconds } else { trained },
            by: MeasuredBy::Rounds,
        }))
    }

    /// The seconds of a run at this rate.
    pub(super) fn seconds(&self, work: &Work) -> f64 {
        let train = work.rounds * work.round + work.finish;
        train / self.train.max(f64::MIN_POSITIVE) + work.evaluations * work.evaluation / self.evaluate.max(f64::MIN_POSITIVE)
    }
}

/// What rates call the device that is asked for: a GPU with its precision, or the cores of a processor.
pub(super) fn device_name(engine: &EngineSettings) -> String {
    gpu_name(engine).unwrap_or_else(|| {
        let cores = engine.workers.map(|workers| workers.get()).or_else(cores);
        let processor = processor().unwrap_or_else(|| std::env::consts::ARCH.into());
        format!("{} x {processor}", cores.map_or_else(|| "?".into(), |cores| cores.to_string()))
    })
}

/// The GPU that is asked for, with its precision; nothing where there is none.
pub(super) fn gpu_name(engine: &EngineSettings) -> Option<String> {
    let gpu = UsedGpu::of(engine).ok().flatten()?;
    Some(format!("{} ({})", gpu.name, gpu.precision.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn prepared(settings: &[&str]) -> Prepared {
        let settings: Vec<_> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
        Experiment::read(None, &settings).and_then(|experiment| experiment.prepare()).expect("an experiment")
    }

    fn timing(train: f64, evaluate: f64) -> Timing {
        Timing { train, evaluate, ..Timing::default() }
    }

    #[test]
    fn rounds_that_were_timed_forecast_the_same_run() {
        let prepared = prepared(&["plan.rounds=10", "plan.evaluate_every=5"]);
        let timings = [timing(9.0, 0.0), timing(2.0, 0.0), timing(2.0, 3.0)];
        let rate = Rate::of(&prepared, &timings, 1).expect("counted").expect("rounds");
        let work = Work::of(&prepared).expect("counted");
        let finish = work.finish / rate.train;
        assert!((rate.seconds(&work) - finish - (10.0 * 2.0 + 2.0 * 3.0)).abs() < 1e-9);
        let two = Rate::of(&prepared, &timings, 2).expect("counted").expect("rounds");
        assert!((two.seconds(&work) - rate.seconds(&work) / 2.0).abs() < 1e-9, "two at once each have half of the device");
        assert_eq!(Rate::of(&prepared, &[], 1).expect("counted"), None);
    }

    #[test]
    fn the_own_device_and_network_fit_best_and_something_always_fits() {
        let prepared = prepared(&[]);
        let model = prepared.experiment.model.name();
        let rate = |device: &str, model: &str, train: f64| Rate {
            device: device.into(),
            data: "digits".into(),
            model: model.into(),
            method: None,
            train,
            evaluate: train,
            by: MeasuredBy::Rounds,
        };
        let mut rates = Rates::default();
        assert!(rates.fitting(None, &prepared).is_none() && !Rates::committed().expect("sound").is_empty());
        rates.add(rate("A (mixed)", "resnet-34", 1.0));
        let fit = |rates: &Rates, device: &str| rates.fitting(Some(device), &prepared).map(|fitting| fitting.rate.train);
        assert_eq!(fit(&rates, "B (mixed)"), Some(1.0));
        rates.add(rate("A (mixed)", model, 2.0));
        rates.add(rate("B (mixed)", "resnet-34", 3.0));
        assert_eq!((fit(&rates, "A (mixed)"), fit(&rates, "B (mixed)")), (Some(2.0), Some(3.0)));
        rates.add(rate("A (mixed)", model, 4.0));
        assert_eq!(fit(&rates, "A (mixed)"), Some(4.0), "the newer one");
    }
}
