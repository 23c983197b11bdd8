//! What the commands that train have in common.
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use fedeq_core::View;

use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::progress;
use super::table::facts;
use crate::experiment::{Experiment, Override};
use crate::number::{bytes, count, counted};
use crate::run::{Run, Silent, Summary, Watch};

/// What is to be carried out.
#[derive(Args, Debug)]
pub(super) struct Wish {
    /// What to do, as TOML; what it leaves out the preset fills in
    #[arg(value_name = "EXPERIMENT.toml")]
    file: Option<PathBuf>,
    /// A setting that goes over the file's, by its dotted path
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// What fills in the rest: `recommended`, `paper` or `reference`
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
}

impl Wish {
    /// The experiment file, if one is given.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The settings that go over the file.
    pub(super) fn settings(&self) -> fedeq_core::Result<Vec<Override>> {
        let mut wishes = self.set.iter().map(|text| text.parse()).collect::<fedeq_core::Result<Vec<Override>>>()?;
        wishes.extend(self.preset.iter().map(|name| Override::new("preset", name.as_str())));
        Ok(wishes)
    }

    /// All that goes over the file.
    pub(super) fn overrides(&self, conduct: &Conduct) -> fedeq_core::Result<Vec<Override>> {
        let mut wishes = self.settings()?;
        wishes.extend(data_at(conduct.data.as_deref()));
        Ok(wishes)
    }
}

/// Where the data lies, as a setting, if somebody says so.
pub(super) fn data_at(folder: Option<&Path>) -> Option<Override> {
    folder.map(|path| Override::new("data.folder", path.display().to_string()))
}

/// How a run is computed and shown.
#[derive(Args, Debug)]
pub(super) struct Conduct {
    /// Clients that train side by side; the results are the same whatever stands here [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub(super) workers: Option<NonZeroUsize>,
    /// The folder that data sets are kept in, or the path of your own data [default: data]
    #[arg(long, value_name = "DIR", env = "FEDEQ_DATA")]
    pub(super) data: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// Write the summary as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Conduct {
    /// Gives an experiment as many workers as were asked for.
    pub(super) fn staff(&self, experiment: &mut Experiment) {
        experiment.engine.workers = self.workers.or(experiment.engine.workers);
    }

    /// Carries out a run that is ready, and says what came out.
    pub(super) fn train(&self, run: &Run) -> Outcome<()> {
        let summary = carry_out(run, self.quiet)?;
        self.show(&summary, &run.folder().path().display().to_string())
    }

    /// Says what came out.
    pub(super) fn show(&self, summary: &Summary, path: &str) -> Outcome<()> {
        if self.json { print_json(summary) } else { print(&text_of(summary, path)) }
    }
}

/// Carries out a run that is ready; Ctrl-C stops it.
pub(super) fn carry_out(run: &Run, quiet: bool) -> Outcome<Summary> {
    let mut watch: Box<dyn Watch> = if quiet { Box::new(Silent) } else { progress::watch() };
    listen_for_interrupts("the clients at work");
    let path = run.folder().path().display().to_string();
    run.train(watch.as_mut(), &is_interrupted).map_err(|error| stopped(error, &path))
}

/// Set once somebody asks to stop.
static STOP: AtomicBool = AtomicBool::new(false);

/// Whether somebody asked to stop.
pub(super) fn is_interrupted() -> bool {
    STOP.load(Ordering::Relaxed)
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

fn stopped(error: fedeq_core::Error, path: &str) -> Failure {
    match Failure::during_work(error) {
        Failure::Told { problem, code: 130, .. } => {
            Failure::Told { problem, hint: format!("go on from the last checkpoint with `fedeq resume {path}`"), code: 130 }
        }
        other => other,
    }
}

fn text_of(summary: &Summary, path: &str) -> String {
    let quality = summary.quality();
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let traffic = summary.evaluation.traffic;
    let mut lines = vec![
        (
            "accuracy",
            format!(
                "{} (mean over {}, {})",
                percent(quality.mean),
                counted(quality.clients.len(), "client"),
                judged(summary.headline)
            ),
        ),
        ("worst tenth", percent(quality.worst_decile)),
        ("sent", format!("{} up, {} down", bytes(traffic.up), bytes(traffic.down))),
        ("parameters", format!("{} shared, {} personal", count(summary.shared_parameters), count(summary.personal_parameters))),
        ("a round", format!("{:.1} s", summary.resources.seconds_per_round)),
    ];
    if let Some(unseen) = &summary.unseen {
        let clients = counted(unseen.clients, "client");
        lines.insert(2, ("unseen", format!("{} (mean over {clients}, {})", percent(unseen.local.mean), judged(View::Local))));
    }
    if let (View::Local, Some(shared)) = (summary.headline, &summary.evaluation.shared) {
        lines.insert(1, ("shared", format!("{} ({})", percent(shared.mean), judged(View::Shared))));
    } else if summary.headline == View::Shared {
        lines.insert(1, ("local", format!("{} ({})", percent(summary.evaluation.local.mean), judged(View::Local))));
    }
    lines.extend(summary.resources.peak_memory.map(|peak| ("peak memory", bytes(peak))));
    lines.push(("run folder", path.to_owned()));
    let rounds = counted(summary.rounds as usize, "round");
    let heading = format!("{} on {} with {}, {rounds}", summary.method, summary.data, summary.model);
    format!("{heading}\n{}", facts(&lines))
}

/// By which of its models a client is judged, in words.
fn judged(view: View) -> &'static str {
    match view {
        View::Local => "each client's own model",
        View::Shared => "the server's model with each client's head",
    }
}
