//! What the commands that train have in common: settings and their short forms, where data lies, and how a run is carried out.
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use fedeq_run::experiment::{Device, Experiment, Override, SHORT_FORMS};
use fedeq_run::number::{bytes, counted};
pub(super) use fedeq_run::place::{relocate, settle, usual_folder};
use fedeq_run::present::require_files;
use fedeq_run::run::{Disk, Run, RunFolder, RunSummary, SimulationObserver};

use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::table::facts;
use super::{completions, progress};

/// The experiment of a command: a file, settings that go over it, and a preset.
#[derive(Args, Debug)]
pub(super) struct ExperimentArgs {
    /// The experiment, as TOML; the preset fills in what it leaves out
    #[arg(value_name = "EXPERIMENT.toml")]
    file: Option<PathBuf>,
    /// Override a setting by its dotted path; in any order, and of a key given twice the last value counts. What does not apply is
    /// refused. `KEY={ .. }` replaces a whole section of the file
    #[arg(long = "set", value_name = "KEY=VALUE", add = completions::settings())]
    set: Vec<String>,
    /// The preset that fills in the rest: `recommended`, `paper` or `reference`
    #[arg(long, value_name = "NAME", add = completions::presets())]
    preset: Option<String>,
    #[command(flatten)]
    short: ShortForms,
}

impl ExperimentArgs {
    /// The experiment file, if one is given.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// All that overrides the file, with the place of the data if it is given.
    fn overrides(&self, place: Option<&Path>) -> Outcome<Vec<Override>> {
        let mut overrides = parsed(&self.set)?;
        overrides.extend(self.short.overrides(&overrides)?);
        if let Some(preset) = &self.preset {
            agree("--preset", preset, "preset", &overrides)?;
            overrides.push(Override::new("preset", preset.as_str()));
        }
        if let Some(place) = place {
            let place = place.display().to_string();
            agree("--data", &place, "data.folder", &overrides)?;
            overrides.push(Override::new("data.folder", place));
        }
        Ok(overrides)
    }

    /// The same, with what a command that trains says beside the settings.
    pub(super) fn overrides_with(&self, run_args: &RunArgs) -> Outcome<Vec<Override>> {
        let mut overrides = self.overrides(run_args.data.as_deref())?;
        run_args.agrees(&overrides)?;
        overrides.extend(run_args.device_override());
        Ok(overrides)
    }

    /// The experiment that is asked for.
    pub(super) fn experiment(&self, place: Option<&Path>) -> Outcome<Experiment> {
        self.read(&self.overrides(place)?)
    }

    /// The experiment with these settings over its file.
    pub(super) fn read(&self, overrides: &[Override]) -> Outcome<Experiment> {
        let mut experiment = Experiment::read(self.file(), overrides).map_err(Failure::refused)?;
        settle(&mut experiment, overrides);
        Ok(experiment)
    }
}

/// Settings as they are typed.
pub(super) fn parsed(settings: &[String]) -> Outcome<Vec<Override>> {
    settings.iter().map(|text| text.parse()).collect::<fedeq_core::Result<_>>().map_err(Failure::refused)
}

/// How a run is computed and shown.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// How many clients train in parallel; results do not depend on it [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub(super) workers: Option<NonZeroUsize>,
    /// What clients are computed on: `cpu`, `cuda` (the first GPU) or `cuda:1`; `fedeq devices` lists them. Short for `--set engine.device=DEVICE` [default: what
    /// the experiment or the run says, else cpu]
    #[arg(long, value_name = "DEVICE", help_heading = "Short forms of settings", add = completions::devices())]
    device: Option<String>,
    /// The path of your own data, whose kind is recognised, or the folder that data sets are kept in [default: $FEDEQ_DATA,
    /// or data]
    #[arg(long, value_name = "PATH")]
    pub(super) data: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// Write the summary as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl RunArgs {
    /// Gives an experiment as many workers as were asked for.
    pub(super) fn set_workers(&self, experiment: &mut Experiment) {
        experiment.engine.workers = self.workers.or(experiment.engine.workers);
    }

    /// Refuses another number of workers or another device in the settings than on the command line.
    pub(super) fn agrees(&self, overrides: &[Override]) -> Outcome<()> {
        let workers = self.workers.map(|workers| workers.to_string());
        workers.map_or(Ok(()), |workers| agree("--workers", &workers, "engine.workers", overrides))?;
        self.device.as_deref().map_or(Ok(()), |device| agree("--device", device, "engine.device", overrides))
    }

    /// The device as a setting, if one is named.
    pub(super) fn device_override(&self) -> Option<Override> {
        self.device.as_deref().map(|device| Override::new("engine.device", device))
    }

    /// The device, if one is named.
    pub(super) fn device(&self) -> Outcome<Option<Device>> {
        device_of(self.device.as_deref())
    }

    /// Carries out a run that is ready, and says what came out.
    pub(super) fn train(&self, run: &Run) -> Outcome<()> {
        let summary = carry_out(run, self.quiet)?;
        self.show(&summary, run.folder())
    }

    /// Says what came out.
    pub(super) fn show(&self, summary: &RunSummary, folder: &RunFolder) -> Outcome<()> {
        if self.json {
            return print_json(summary);
        }
        print(&text_of(summary, folder))
    }
}

fn text_of(summary: &RunSummary, folder: &RunFolder) -> String {
    let mut lines = summary.facts();
    lines.push(("run folder", folder.path().display().to_string()));
    format!("{}\n{}", summary.title(), facts(&lines))
}

/// A device as it is typed.
pub(super) fn device_of(text: Option<&str>) -> Outcome<Option<Device>> {
    text.map(str::parse).transpose().map_err(Failure::refused)
}

/// Carries out a run that is ready; Ctrl-C stops it.
pub(super) fn carry_out(run: &Run, quiet: bool) -> Outcome<RunSummary> {
    if let Some(remark) = run.prepared().remark().filter(|_| !quiet) {
        tell(&remark);
    }
    if let Some(warning) = much_disk(run.start().disk).filter(|_| quiet) {
        tell(&warning);
    }
    carry_out_observed(run, progress::observer(quiet, run.start()), &is_interrupted)
}

/// Carries out a run that is ready, with an observer; Ctrl-C stops it, and so does `is_over`.
pub(super) fn carry_out_observed(
    run: &Run,
    mut observer: Box<SimulationObserver<'_>>,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Outcome<RunSummary> {
    listen_for_interrupts("the clients at work");
    run.train(observer.as_mut(), is_over).map_err(|error| ended_early(error, run))
}

/// More bytes of disk than this are said even to who wants to hear nothing.
const MUCH_DISK: u64 = 1_000_000_000;

/// What is to be said of a run that takes much disk, before it starts.
pub(super) fn much_disk(disk: Disk) -> Option<String> {
    let says = || format!("takes up to {} of disk, {} when it is finished", bytes(disk.working), bytes(disk.finished));
    (disk.working > MUCH_DISK).then(says)
}

/// Set once a signal asks to stop.
static STOP: AtomicBool = AtomicBool::new(false);

/// Whether a signal asked to stop.
pub(super) fn is_interrupted() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Ctrl-C and SIGTERM stop what asks [`is_interrupted`] often; the second one ends the process at once.
pub(super) fn listen_for_stops() {
    let handler = || {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        tell("stopping");
    };
    // Without a handler they end the process at once.
    let _ = ctrlc::set_handler(handler);
}

/// The first Ctrl-C lets something finish; the second ends the process at once.
pub(super) fn listen_for_interrupts(what_finishes: &'static str) {
    let handler = move || {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        tell(&format!("stopping after {what_finishes}; press Ctrl-C again to stop at once"));
    };
    // Without a handler Ctrl-C ends the process at once, and the last checkpoint is there all the same.
    let _ = ctrlc::set_handler(handler);
}

/// Says why a run ended early, and from where it will continue.
fn ended_early(error: fedeq_core::Error, run: &Run) -> Failure {
    let resume = format!("`fedeq resume {}`", run.folder().path().display());
    let rounds = run.prepared().experiment.plan.rounds;
    let kept = run.folder().kept_rounds().unwrap_or_default();
    let is_full = error.is_disk_full();
    let is_crowded = matches!(error, fedeq_core::Error::OutOfMemory { .. });
    match Failure::during_work(error) {
        Failure::Told { code: 130, .. } => Failure::Told {
            problem: format!("stopped after {kept} of {}", counted(rounds as usize, "round")),
            hint: format!("continue from there with {resume}"),
            code: 130,
        },
        Failure::Told { problem, code, .. } if is_full => {
            let hint = format!("free some space on that disk, then continue after round {kept} of {rounds} with {resume}");
            Failure::Told { problem, hint, code }
        }
        Failure::Told { problem, hint, code } if is_crowded => {
            let hint = format!("{hint}; nothing is lost: continue after round {kept} of {rounds} with {resume}");
            Failure::Told { problem, hint, code }
        }
        other => other,
    }
}

/// What stands for `--set` with a longer key; what each is stands first, in the words of the list of settings.
#[derive(Args, Debug, Default)]
pub(super) struct ShortForms {
    /// How clients learn together: the method, as `--set method=NAME`; `fedeq settings method` lists them
    #[arg(long, value_name = "NAME", help_heading = "Short forms of settings", add = completions::methods())]
    method: Option<String>,
    /// The network, as `--set model=NAME`; `fedeq settings model` lists them
    #[arg(long, value_name = "NAME", help_heading = "Short forms of settings", add = completions::values_of("model"))]
    model: Option<String>,
    /// Rounds of training, as `--set plan.rounds=N`
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Short forms of settings")]
    rounds: Option<String>,
    /// How many clients the data is divided among, as `--set data.partition.clients=N`
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Short forms of settings")]
    clients: Option<String>,
    /// Step size for shared parameters: the learning rate, as `--set training.learning_rate=RATE`
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, help_heading = "Short forms of settings")]
    lr: Option<String>,
    /// The seed of all randomness, as `--set seed=N`
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Short forms of settings")]
    seed: Option<String>,
}

impl ShortForms {
    /// In the order of [`SHORT_FORMS`].
    fn values(&self) -> [&Option<String>; 6] {
        [&self.method, &self.model, &self.rounds, &self.clients, &self.lr, &self.seed]
    }

    /// The settings that they stand for; refuses those that are set by their whole keys as well.
    pub(super) fn overrides(&self, others: &[Override]) -> Outcome<Vec<Override>> {
        let mut overrides = Vec::new();
        for ((name, key), value) in SHORT_FORMS.into_iter().zip(self.values()) {
            let Some(value) = value else { continue };
            let setting: Override = format!("{key}={value}").parse().map_err(Failure::refused)?;
            let (written, typed) = (|| format!("--{name} {value}"), |other: &Override| format!("--set {other}"));
            setting.require_alone(others, written, typed).map_err(Failure::refused)?;
            overrides.push(setting);
        }
        Ok(overrides)
    }
}

/// Refuses a place for data that an experiment does not need.
pub(super) fn require_use(experiment: &Experiment, place: Option<&Path>) -> Outcome<()> {
    Ok(place.map_or(Ok(()), |place| require_files(&experiment.data.source, place))?)
}

/// Refuses a setting that is given in two ways which do not agree.
pub(super) fn agree(flag: &str, given: &str, key: &str, overrides: &[Override]) -> Result<(), Failure> {
    let text = |setting: &Override| setting.value.as_str().map_or_else(|| setting.value.to_string(), str::to_owned);
    let other = overrides.iter().rev().find(|setting| setting.path.join(".") == key).map(text);
    match other.filter(|other| other != given) {
        None => Ok(()),
        Some(other) => {
            let problem = format!("`{flag} {given}` and `--set {key}={other}` contradict each other");
            Err(Failure::request(problem, "leave one of them out"))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use fedeq_run::experiment::SettingInfo;

    use super::*;

    #[test]
    fn short_forms_are_described_in_the_words_of_the_list_of_settings() {
        let program = super::super::Cli::command();
        let run = program.find_subcommand("run").expect("a command");
        for (short, key) in SHORT_FORMS.into_iter().chain([("device", "engine.device")]) {
            let argument = run.get_arguments().find(|argument| argument.get_long() == Some(short)).expect("a short form");
            let help = argument.get_help().expect("a description").to_string();
            let mut abouts = SettingInfo::named(key).map(|setting| setting.about.as_str());
            assert!(abouts.any(|about| help.starts_with(about)), "--{short} is described as {help:?}");
            assert!(help.contains(&format!("`--set {key}=")), "--{short}: {help:?}");
        }
    }

    #[test]
    fn more_than_a_gigabyte_of_disk_is_said_and_less_is_not() {
        let disk = |working| Disk { working, finished: working / 2, checkpoint: 0 };
        assert_eq!(much_disk(disk(1_000_000_000)), None);
        assert_eq!(much_disk(disk(2_600_000_000)).as_deref(), Some("takes up to 2.6 GB of disk, 1.3 GB when it is finished"));
    }

    #[test]
    fn a_device_without_room_says_what_to_lower_and_that_nothing_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = Run::create(&Experiment::read(None, &[]).expect("the usual one"), &folder.path().join("run")).expect("sound");
        let error = fedeq_core::Error::out_of_memory("no room for 3.2 GB on `cuda`", "lower `training.batch_size`");
        let Failure::Told { problem, hint, code } = ended_early(error, &run) else { panic!("there is something to tell") };
        assert_eq!((problem.as_str(), code), ("no room for 3.2 GB on `cuda`", 1));
        assert!(
            hint.starts_with("lower `training.batch_size`; nothing is lost: continue after round 0 of ")
                && hint.contains("fedeq resume"),
            "{hint}"
        );
    }
}
