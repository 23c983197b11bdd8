//! `fedeq run --dry-run`: what would be carried out, and what it would take.
use std::path::Path;

use fedeq_run::experiment::Experiment;
use fedeq_run::forecast::{Forecaster, Outlook, Rates};
use fedeq_run::number::{bytes, count, counted, duration};

use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::table::facts;

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
    let resolved = experiment.to_toml().map_err(Failure::refused)?;
    print(&format!("{resolved}\n# {}\n{}", experiment.title(), facts(&lines(experiment, &outlook, out))))
}

/// What a lower bound of a GPU's memory leaves out.
const UNPLANNED: &str = "on the card, for samples, a model for each client of a round and the clients' states; what a batch takes is planned with the card's \
                         driver when a run begins, as many clients side by side as fit. `engine.device_memory_mb` limits it, and the run's timings tell its peak";

fn json_of(experiment: &Experiment, outlook: &Outlook, out: &Path) -> Outcome<serde_json::Value> {
    let Outlook { forecast, parameters: [shared, personal], clients, cohort, round, memory, device_memory } = outlook;
    let experiment = serde_json::to_value(experiment)
        .map_err(|error| Failure::work(format!("the experiment cannot be written: {error}"), "report this"))?;
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
        (None, None) => "not known: nobody counts it here".into(),
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
