//! From an experiment to a Flower app: what the server needs and only this program can compute.
//!
//! The app's server draws no clients and initialises no model. Both are written here, so that a federation and `fedeq run` give the same results.
//! The app's folder is also its run folder: the server writes the same journals into it as `fedeq run`, for `fedeq report` and `fedeq dashboard`.
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use fedeq_core::{ClientTask, Error, Evaluation, Result, SolveTally, View, Weighting, fingerprint, write_atomically};
use fedeq_data::partition::Partition;
use serde::Serialize;

use fedeq_run::agreement::{AGREEMENT_FILE, Agreement, AgreementFingerprint};
use fedeq_run::experiment::{Device, Experiment, Prepared, scaled_by_example};
use fedeq_run::run::{RunFolder, RunState, RunSummary};

/// What the server does in each round; `plan.json` of an app.
#[derive(Debug, Serialize)]
struct AppPlan {
    /// The name under which nodes store their states; unique to this app, so that it never continues from the states of another.
    federation: String,
    /// The method's name.
    method: &'static str,
    /// The weights of clients in the mean: `uniform` or `samples`.
    weighting: Weighting,
    /// The penalty, where the method has one.
    rho: Option<f64>,
    /// The number of clients.
    clients: usize,
    /// Which models the method is evaluated by: `local` or `shared`.
    headline: View,
    /// Rounds between evaluations; 0 means only after the last.
    evaluate_every: u64,
    /// The task of an evaluation: `evaluate`, or `measure` with the quantities of the theory.
    evaluate: ClientTask,
    /// The clients of each round.
    cohorts: Vec<Vec<usize>>,
    /// The summary as far as it is known before the run: the server adds the last evaluation and the resources.
    summary: RunSummary,
}

/// Writes an app for `flwr run` into a new folder; gives the fingerprint by which nodes accept it.
pub fn write(experiment: &Experiment, folder: &Path) -> Result<AgreementFingerprint> {
    let weighting = weighting_of(experiment)?;
    refuse_unseen(experiment)?;
    refuse_gpu(experiment)?;
    let prepared = experiment.prepare_for_others()?;
    let plan = plan(&prepared, weighting)?;
    let last = (plan.clients - 1).to_string();
    let experiment = for_nodes(&prepared)?;
    let server = prepared.server();
    let agreement = Agreement::new(experiment.clone(), &server.weights);
    let fingerprint = agreement.fingerprint()?;
    fs::create_dir(folder).map_err(Error::io(folder, "create it"))?;
    write_atomically(&folder.join("theta.safetensors"), &server.weights.packed().to_bytes(&Default::default())?)?;
    write_atomically(&folder.join("experiment.toml"), experiment.to_toml()?.as_bytes())?;
    let plan = serde_json::to_string(&plan).map_err(|error| Error::invalid(error.to_string(), "report this"))?;
    write_atomically(&folder.join("plan.json"), (plan + "\n").as_bytes())?;
    write_atomically(&folder.join(AGREEMENT_FILE), (INSPECT.to_owned() + &agreement.to_toml()?).as_bytes())?;
    for (name, text) in APP {
        let text = text.replace("{last}", &last).replace("{fingerprint}", &fingerprint.to_string());
        write_atomically(&folder.join(name), text.as_bytes())?;
    }
    let run = RunFolder::at(folder.to_owned());
    run.write_roster(&prepared)?;
    run.write_status(RunState::Stopped)?;
    Ok(fingerprint)
}

/// The experiment for nodes, whose data is in another place and may be other data.
fn for_nodes(prepared: &Prepared) -> Result<Experiment> {
    let mut experiment = prepared.experiment.clone().on_another_machine("data".into());
    if matches!(experiment.data.partition, Partition::Own { .. }) {
        experiment.data.source = scaled_by_example(experiment.data.source.alike(&prepared.dataset), &prepared.dataset)?;
    }
    Ok(experiment)
}

/// The first line of the agreement.
const INSPECT: &str = "# What a node would do. `fedeq node inspect` shows it in plain words, with the fingerprint that `fedeq node --accept` takes.\n";

/// Templates; `{last}` is the number of the last client, `{fingerprint}` what nodes accept.
const APP: [(&str, &str); 3] = [
    ("pyproject.toml", include_str!("app/pyproject.toml")),
    ("README.md", include_str!("app/README.md")),
    ("fedeq-node.service", include_str!("app/fedeq-node.service")),
];

/// All nodes of a federation train.
fn refuse_unseen(experiment: &Experiment) -> Result<()> {
    match experiment.data.unseen {
        None => Ok(()),
        Some(_) => Err(Error::invalid("`data.unseen` is not supported in a Flower federation yet", "leave it out")),
    }
}

/// Each node has one client, which a GPU for whole cohorts is not made for.
fn refuse_gpu(experiment: &Experiment) -> Result<()> {
    match experiment.engine.place()? {
        Device::Cpu => Ok(()),
        Device::Cuda(_) => {
            let problem = format!(
                "`engine.device = {}` is not supported in a Flower federation: nodes train on their CPU",
                experiment.engine.device
            );
            Err(Error::invalid(problem, "leave it out"))
        }
    }
}

/// How the server averages updates; methods whose server does not take a mean are refused.
fn weighting_of(experiment: &Experiment) -> Result<Weighting> {
    let refuse = |what: &str| {
        let hint = "choose `fedeq` with `method.server_step=mean`, `fedavg`, `fedper` or `fedrep`, without `plan.asynchronous`, `plan.sampling.poisson` and `plan.compression`";
        Err(Error::invalid(format!("{what} is not supported in a Flower federation yet"), hint))
    };
    if experiment.plan.asynchronous.is_some() {
        return refuse("`plan.asynchronous`");
    }
    if experiment.plan.sampling.poisson {
        return refuse("`plan.sampling.poisson`");
    }
    if experiment.plan.compression.is_some() {
        return refuse("`plan.compression`");
    }
    if !experiment.plan.aggregation.is_default() {
        let problem = "`plan.aggregation` is not supported in a Flower federation yet, whose server takes the mean";
        return Err(Error::invalid(problem, "leave it out"));
    }
    if experiment.plan.privacy.is_some() {
        let problem = "`plan.privacy` is not supported in a Flower federation yet: its noise would come from the seed that every node is told";
        return Err(Error::invalid(problem, "leave it out; it is for simulations so far"));
    }
    if experiment.plan.secure_aggregation.is_some() {
        let problem =
            "`plan.secure_aggregation` is not supported in a Flower federation yet, whose nodes do not speak the protocol";
        return Err(Error::invalid(problem, "leave it out, or use it in a simulation"));
    }
    if experiment.attack.is_some() {
        let problem = "`attack` is for simulations: nodes of a Flower federation say the truth";
        return Err(Error::invalid(problem, "leave it out, or simulate with `fedeq run`"));
    }
    let method = &experiment.method;
    method.algorithm().plain_mean().map_or_else(|| refuse(&format!("`{}` with these settings", method.name())), Ok)
}

/// The clients of all rounds are written to `plan.json`.
const MOST_PARTICIPATIONS: u64 = 50_000_000;

fn ensure_writable(rounds: u64, cohort: usize) -> Result<()> {
    if rounds.saturating_mul(cohort as u64) <= MOST_PARTICIPATIONS {
        return Ok(());
    }
    let problem = format!("`{rounds}` rounds of `{cohort}` clients are too many for one plan");
    Err(Error::invalid(problem, "lower `plan.rounds` or `plan.sampling.fraction`"))
}

fn plan(prepared: &Prepared, weighting: Weighting) -> Result<AppPlan> {
    let Experiment { method, plan, .. } = &prepared.experiment;
    let clients = prepared.splits.clients.len();
    let seed = prepared.federation_seed();
    let algorithm = method.algorithm();
    ensure_writable(plan.rounds, plan.cohort_size(algorithm, clients)?)?;
    let cohorts = (0..plan.rounds).map(|round| plan.cohort(algorithm, clients, seed, round)).collect::<Result<_>>()?;
    Ok(AppPlan {
        federation: fingerprint(format!("{} {:?}", prepared.experiment.identity()?, SystemTime::now()).as_bytes()),
        method: method.name(),
        weighting,
        rho: algorithm.initial_rho(),
        clients,
        headline: algorithm.default_view(),
        evaluate_every: plan.evaluate_every,
        evaluate: if plan.measure_theory { ClientTask::Measure } else { ClientTask::Evaluate },
        cohorts,
        summary: RunSummary::of(prepared, Evaluation::default(), None, SolveTally::default(), &[]),
    })
}
