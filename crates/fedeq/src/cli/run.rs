//! `fedeq run`, and what a run would take.
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_run::experiment::Experiment;
use fedeq_run::forecast::{Forecaster, Outlook, Rates};
use fedeq_run::number::{bytes, count, counted, duration};
use fedeq_run::run::{Run, RunFolder};

use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::settings::{ExperimentArgs, RunArgs};
use super::table::facts;

/// Shown below the help.
pub(super) const EXAMPLES: &str = "\
Examples:
  fedeq run                                        FeDEQ on the built-in digits
  fedeq run --method fedrep --rounds 20            what is set most has a short form; `fedeq settings` lists all settings
  fedeq run --set method.rho=0.1 --dry-run         the whole experiment and what it would take, before it is run
  fedeq run experiment.toml --preset paper --out runs/first
  fedeq run --data my/pictures                     your own: a folder of pictures, a CSV file or JSON lines
  fedeq run --device cuda                          on a GPU; `fedeq devices` lists what there is
  fedeq run --set data=cifar10 --set data.partition.shards=2 --set seed=7
  fedeq run --set method.server_step=consensus --set plan.asynchronous.slowest=10      asynchronous clients
  fedeq run --set attack=sign-flip --set plan.aggregation.rule=median                  some clients are malicious, and what robust aggregation makes of it

Ctrl-C stops after the clients at work, with exit code 130; all rounds that were over are kept, and `fedeq resume` continues.";

/// Trains a federation.
#[derive(Args, Debug)]
pub(super) struct RunCommand {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// The folder of the run, which must not exist yet [default: runs/<method>-<data>-<seed>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Train nothing: show the experiment with everything filled in, its parameters, and what it would send and take in time, memory and disk
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    run_args: RunArgs,
}

pub(super) fn run(arguments: &RunCommand) -> Outcome<()> {
    let experiment = arguments.experiment()?;
    let usual = || RunFolder::usual_name(Path::new("runs"), &experiment);
    let out = arguments.out.clone().unwrap_or_else(usual);
    if arguments.dry_run {
        return show(&experiment, &out, arguments.run_args.json, arguments.run_args.quiet);
    }
    let run = Run::create(&experiment, &out).map_err(Failure::refused)?;
    if !arguments.run_args.quiet {
        run.prepared().unused_gpu().iter().for_each(|gpu| tell(&format!("{gpu} is not used; `--device cuda` trains on it")));
    }
    arguments.run_args.train(&run)
}

impl RunCommand {
    fn experiment(&self) -> Outcome<Experiment> {
        let mut experiment = self.experiment.read(&self.experiment.overrides_with(&self.run_args)?)?;
        self.run_args.set_workers(&mut experiment);
        Ok(experiment)
    }
}

/// Shows an experiment with everything filled in, and what it would take; trains nothing.
pub(super) fn show(experiment: &Experiment, out: &Path, json: bool, quiet: bool) -> Outcome<()> {
    if !quiet {
        tell("measuring a batch on this machine");
    }
    let mut forecaster = Forecaster::new(Rates::default()).map_err(Failure::refused)?;
    let outlook = forecaster.outlook(experiment).map_err(Failure::refused)?;
    if json {
        return print_json(&json_of(experiment, &outlook, out)?);
    }
    let resolved = experiment.to_full_toml().map_err(Failure::refused)?;
    print(&format!("{resolved}\n# {}\n{}", experiment.title(), facts(&lines(experiment, &outlook, out))))
}

/// What a lower bound of a GPU's memory leaves out.
const UNPLANNED: &str = "on the card, for samples, a model for each client of a round and the clients' states; what a batch takes is planned with the card's \
                         driver when a run begins, as many clients side by side as fit. `engine.device_memory_mb` limits it, and the run's timings tell its peak";

fn json_of(experiment: &Experiment, outlook: &Outlook, out: &Path) -> Outcome<serde_json::Value> {
    let Outlook { forecast, parameters: [shared, personal], clients, cohort, round, memory, device_memory } = outlook;
    let experiment = experiment.to_full_json().map_err(Failure::refused)?;
    Ok(serde_json::json!({
        "experiment": experiment,
        "run_folder": out.display().to_string(),
        "clients": clients,
        "clients_a_round": cohort,
        "parameters": { "shared": shared, "personal": personal },
        "bytes_a_round": round,
        "seconds": forecast.seconds,
        "seconds_known_by": forecast.basis.to_string(),
        "memory": memory,
        "device_memory_at_least": device_memory,
        "memory_note": device_memory.map(|_| UNPLANNED),
        "disk": { "working": forecast.disk.working, "finished": forecast.disk.finished },
        "data_available": !forecast.is_stand_in,
    }))
}

fn memory_words(memory: Option<u64>, device: Option<u64>) -> String {
    match (memory, device) {
        (Some(memory), _) => format!("about {}", bytes(memory)),
        (None, Some(device)) => format!("at least {} {UNPLANNED}", bytes(device)),
        (None, None) => "not known: this program does not count it".into(),
    }
}

fn lines(experiment: &Experiment, outlook: &Outlook, out: &Path) -> Vec<(&'static str, String)> {
    let Outlook { forecast, parameters: [shared, personal], clients, cohort, round, memory, device_memory } = outlook;
    let rounds = experiment.plan.rounds;
    let least = if forecast.basis.is_least() { "at least " } else { "about " };
    let all = (round.up + round.down).saturating_mul(rounds);
    let mut lines = vec![
        ("clients", format!("{}, {} a round", count(*clients), count(*cohort))),
        ("parameters", format!("{} shared, {} personal", count(*shared), count(*personal))),
        (
            "a round sends",
            format!(
                "{} up, {} down; {} in {}",
                bytes(round.up),
                bytes(round.down),
                bytes(all),
                counted(rounds as usize, "round")
            ),
        ),
        ("time", format!("{least}{} (known by {})", duration(forecast.seconds), forecast.basis)),
        ("memory", memory_words(*memory, *device_memory)),
        ("disk", format!("up to {}, {} when it is finished", bytes(forecast.disk.working), bytes(forecast.disk.finished))),
    ];
    if forecast.is_stand_in {
        lines.push(("data", "not available here: samples of the same shape stood in".into()));
    }
    lines.push(("run folder", format!("{}{}", out.display(), if out.exists() { ", which exists already" } else { "" })));
    lines
}
