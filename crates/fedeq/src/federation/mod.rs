//! From an experiment to a Flower app: what the server needs and only this program can compute.
//!
//! The app's server has no data and initialises no model: the number of clients and the initial weights are written here, so that a federation and `fedeq run` give the
//! same results. The app's folder is also its run folder: the server writes the same journals into it as `fedeq run`, for `fedeq report` and `fedeq dashboard`.
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use fedeq_core::shares_anything;
use fedeq_core::{Error, Evaluation, Result, SolveTally, fingerprint, write_atomically};
use fedeq_data::partition::Partition;

use fedeq_run::agreement::{AGREEMENT_FILE, Agreement, AgreementFingerprint};
use fedeq_run::experiment::{Device, Experiment, Prepared, scaled_by_example};
use fedeq_run::run::{FederationPlan, RunFolder, RunState, RunSummary};

/// Writes an app for `flwr run` into a new folder; gives the fingerprint by which nodes accept it.
pub fn write(experiment: &Experiment, folder: &Path) -> Result<AgreementFingerprint> {
    refuse_gpu(experiment)?;
    refuse_simulated(experiment)?;
    experiment.plan.aggregation.validate_claims(experiment.method.algorithm().weighting())?;
    let experiment = &noting_distances(experiment);
    let prepared = experiment.prepare_for_others()?;
    let plan = plan(&prepared)?;
    let last = (plan.all_clients() - 1).to_string();
    let experiment = for_nodes(&prepared)?;
    let server = prepared.server();
    let agreement = Agreement::new(experiment.clone(), &server.weights);
    let fingerprint = agreement.fingerprint()?;
    fs::create_dir(folder).map_err(Error::io(folder, "create it"))?;
    plan.write(folder, &server.weights)?;
    write_atomically(&folder.join("experiment.toml"), experiment.to_toml()?.as_bytes())?;
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

/// Among strangers it is good to know who is far from the others, unless the experiment says otherwise or the server is not to know it.
fn noting_distances(experiment: &Experiment) -> Experiment {
    let mut experiment = experiment.clone();
    let is_sent = shares_anything(experiment.method.algorithm());
    let plan = &mut experiment.plan;
    if is_sent && plan.privacy.is_none() && plan.secure_aggregation.is_none() {
        plan.aggregation.distances.get_or_insert(true);
    }
    experiment
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

/// What only a simulation can do so far.
fn refuse_simulated(experiment: &Experiment) -> Result<()> {
    let plan = &experiment.plan;
    let refusals =
        [(experiment.attack.is_some(), "`attack` is for simulations: nodes of a Flower federation simulate no attacks")];
    plan.privacy.map_or(Ok(()), |privacy| privacy.validate_federation())?;
    match refusals.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, problem)) => Err(Error::invalid(problem, "leave it out, or simulate with `fedeq run`")),
        None => Ok(()),
    }
}

fn plan(prepared: &Prepared) -> Result<FederationPlan> {
    Ok(FederationPlan {
        federation: fingerprint(format!("{} {:?}", prepared.experiment.identity()?, SystemTime::now()).as_bytes()),
        clients: prepared.splits.clients.len(),
        unseen: prepared.unseen().len(),
        summary: RunSummary::of(prepared, Evaluation::default(), None, SolveTally::default(), &[]),
    })
}
