//! From an experiment to a Flower app: everything the server side needs that only this program can compute.
//!
//! The app's server draws no clients and initialises no model. Both are written here, so that a federation and `fedeq run` begin alike and go on alike.
//! The app's folder is also the folder of its run: the server keeps the same journals in it as `fedeq run`, for `fedeq report` and `fedeq dashboard`.
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use fedeq_core::{
    Error, Evaluation, Method, Result, ServerStep, SolveTally, Task, View, Weighting, fingerprint, write_atomically,
};
use fedeq_data::partition::Partition;
use serde::Serialize;

use fedeq_run::experiment::{Experiment, Prepared, scaled_by_example};
use fedeq_run::run::{RunFolder, RunState, Summary};

/// What the server does in which round; `plan.json` of an app.
#[derive(Debug, Serialize)]
struct AppPlan {
    /// What the nodes keep their states under; no two apps have it in common, so that none goes on with the states of another.
    federation: String,
    /// The method's name.
    method: &'static str,
    /// How clients count in the mean: `uniform` or `samples`.
    weighting: Weighting,
    /// The penalty, where the method has one.
    rho: Option<f64>,
    /// Clients in all.
    clients: usize,
    /// By which model the method is judged: `local` or `shared`.
    headline: View,
    /// Rounds between evaluations; 0 means only after the last.
    evaluate_every: u64,
    /// What clients are asked for then: `evaluate`, or `measure` where the theory wants to know more.
    evaluate: Task,
    /// Who takes part, round by round.
    cohorts: Vec<Vec<usize>>,
    /// What will have come out, as far as it is known before: the server fills in the last evaluation and what it took.
    summary: Summary,
}

/// Writes an app for `flwr run` into a new folder.
pub fn write(experiment: &Experiment, folder: &Path) -> Result<()> {
    let weighting = weighting_of(experiment)?;
    refuse_unseen(experiment)?;
    let prepared = experiment.prepare_for_others()?;
    let plan = plan(&prepared, weighting)?;
    let last = (plan.clients - 1).to_string();
    let experiment = for_nodes(&prepared)?;
    fs::create_dir(folder).map_err(Error::io(folder, "create it"))?;
    let server = prepared.server();
    write_atomically(&folder.join("theta.safetensors"), &server.weights.packed().to_bytes(&Default::default())?)?;
    write_atomically(&folder.join("experiment.toml"), experiment.to_toml()?.as_bytes())?;
    let plan = serde_json::to_string(&plan).map_err(|error| Error::invalid(error.to_string(), "report this"))?;
    write_atomically(&folder.join("plan.json"), (plan + "\n").as_bytes())?;
    for (name, text) in APP {
        write_atomically(&folder.join(name), text.replace("{last}", &last).as_bytes())?;
    }
    let run = RunFolder::at(folder.to_owned());
    run.write_roster(&prepared)?;
    run.write_status(RunState::Stopped)
}

/// The experiment for machines where data lies elsewhere, and perhaps other data than here.
fn for_nodes(prepared: &Prepared) -> Result<Experiment> {
    let mut experiment = prepared.experiment.clone().on_another_machine("data".into());
    if matches!(experiment.data.partition, Partition::Own { .. }) {
        experiment.data.source = scaled_by_example(experiment.data.source.alike(&prepared.dataset), &prepared.dataset)?;
    }
    Ok(experiment)
}

/// Files as they are, but for the number of the last client.
const APP: [(&str, &str); 3] = [
    ("pyproject.toml", include_str!("app/pyproject.toml")),
    ("README.md", include_str!("app/README.md")),
    ("fedeq-node.service", include_str!("app/fedeq-node.service")),
];

/// The nodes of a federation are all asked to train.
fn refuse_unseen(experiment: &Experiment) -> Result<()> {
    match experiment.data.unseen {
        None => Ok(()),
        Some(_) => Err(Error::invalid("`data.unseen` does not run in a Flower federation yet", "leave it out")),
    }
}

/// How the server combines updates; methods whose server does something else than a mean are refused.
fn weighting_of(experiment: &Experiment) -> Result<Weighting> {
    let refuse = |what: &str| {
        let hint = "choose `fedeq` with `method.server_step=mean`, `fedavg`, `fedper` or `fedrep`, all in step";
        Err(Error::invalid(format!("{what} does not run in a Flower federation yet"), hint))
    };
    if experiment.plan.asynchronous.is_some() {
        return refuse("`plan.asynchronous`");
    }
    match &experiment.method {
        Method::Fedeq(fedeq) if fedeq.server_step == ServerStep::Mean && fedeq.balance.is_none() => Ok(fedeq.weighting),
        Method::Fedeq(_) => refuse("`fedeq` with another server step than the mean, or with a moving rho,"),
        Method::Fedavg(fedavg) => Ok(fedavg.weighting),
        Method::Fedper(fedper) => Ok(fedper.weighting),
        Method::Fedrep(fedrep) => Ok(fedrep.weighting),
        other => refuse(&format!("`{}`", other.name())),
    }
}

/// Who takes part in which round is all written down.
const MOST_TURNS: u64 = 50_000_000;

fn ensure_writable(rounds: u64, cohort: usize) -> Result<()> {
    if rounds.saturating_mul(cohort as u64) <= MOST_TURNS {
        return Ok(());
    }
    let problem = format!("`{rounds}` rounds of `{cohort}` clients are too many to be written down");
    Err(Error::invalid(problem, "lower `plan.rounds` or `plan.sampling.fraction`"))
}

fn plan(prepared: &Prepared, weighting: Weighting) -> Result<AppPlan> {
    let Experiment { method, plan, .. } = &prepared.experiment;
    let clients = prepared.federation.clients.len();
    let seed = prepared.federation_seed();
    ensure_writable(plan.rounds, plan.sampling.cohort_size(clients)?)?;
    let cohorts = (0..plan.rounds).map(|round| plan.sampling.draw(clients, seed, round)).collect::<Result<_>>()?;
    let rho = if let Method::Fedeq(fedeq) = method { Some(fedeq.rho) } else { None };
    Ok(AppPlan {
        federation: fingerprint(format!("{} {:?}", prepared.experiment.identity()?, SystemTime::now()).as_bytes()),
        method: method.name(),
        weighting,
        rho,
        clients,
        headline: method.algorithm().headline(),
        evaluate_every: plan.evaluate_every,
        evaluate: if plan.measure_theory { Task::Measure } else { Task::Evaluate },
        cohorts,
        summary: Summary::of(prepared, Evaluation::default(), None, SolveTally::default(), &[]),
    })
}
