//! A finished run, opened to be used. Nothing of it changes.
use std::collections::BTreeMap;

use fedeq_core::{
    ClientState, ClientStore, Error, Evaluation, Examined, FixedPoints, InProcess, LocalProblem, Neighbours, Portion, Result,
    Search, Server, ServerState, Traffic, Unseen, View, Weights, client_seed,
};
use serde::Serialize;

use super::checkpoint::last;
use super::engine::Place;
use super::folder::RunFolder;
use super::metadata::RunState;
use super::summary::RunSummary;
use crate::closest::closest;
use crate::experiment::{Experiment, Prepared};

/// A finished run with its data and its final states.
pub struct Trained {
    folder: RunFolder,
    prepared: Prepared,
    /// What it was computed on.
    devices: String,
    summary: RunSummary,
    server: ServerState,
    clients: BTreeMap<usize, String>,
    traffic: Traffic,
}

/// How a finished run's models do, evaluated once more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reevaluation {
    /// Those who took part.
    pub evaluation: Evaluation,
    /// Unseen clients, if there are any.
    pub unseen: Option<Unseen>,
    /// Whether this is what the run itself found at its end, number by number.
    pub agrees: bool,
}

/// What the solves of a client's test samples end in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The client.
    pub client: String,
    /// Summed up.
    pub found: FixedPoints,
    /// One by one.
    pub samples: Vec<Examined>,
}

/// The model by which a client is evaluated.
pub struct ClientModel {
    /// The client.
    pub name: String,
    /// Its number.
    pub client: usize,
    /// All its weights: shared and personal.
    pub weights: Weights,
    /// Whether the client's training samples vote along.
    pub neighbours: Option<Neighbours>,
}

impl Trained {
    /// Opens a finished run. `change` may adapt on what it is computed now and where its data lies, not what it is.
    pub fn open(folder: &RunFolder, change: impl FnOnce(&mut Experiment)) -> Result<Self> {
        folder.require_simulation()?;
        let summary = folder.summary()?.ok_or_else(|| unfinished(folder))?;
        let recorded = folder.experiment()?;
        let mut experiment = recorded.clone();
        change(&mut experiment);
        let prepared = folder.prepare(&experiment)?;
        let position = last(folder, &recorded, &prepared.server())?;
        let (server, clients, traffic) = (position.server, position.clients, position.traffic);
        Ok(Self { folder: folder.clone(), prepared, devices: recorded.devices(), summary, server, clients, traffic })
    }

    /// Whether it is computed on another kind of device than the run was.
    pub fn is_moved(&self) -> bool {
        self.devices != self.prepared.experiment.engine.kind().to_string()
    }

    /// What was carried out.
    pub fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// What came out.
    pub fn summary(&self) -> &RunSummary {
        &self.summary
    }

    /// Evaluates all clients as at the end of the run.
    pub fn evaluate(&self) -> Result<Reevaluation> {
        let Experiment { method, training, .. } = &self.prepared.experiment;
        let plan = &self.prepared.plan;
        let seed = self.prepared.experiment.root_seed().derive("clients", []);
        let engine = Place::of(&self.prepared.experiment)?.engine(&self.prepared)?;
        let mut store = self.store(engine.state_memory());
        let never = || false;
        let mut transport = InProcess::new(method.algorithm(), training, engine.engine(), &mut store, seed, &never)
            .attacked_by(self.prepared.liars.as_ref());
        transport.resume_traffic(self.traffic);
        let clients = self.prepared.splits.clients.len();
        let transport = &mut transport;
        let mut federation = Server { algorithm: method.algorithm(), plan, clients, transport, seed };
        let unseen = federation.evaluate_unseen(&self.server, &self.prepared.unseen())?;
        let evaluation = federation.evaluation(&self.server)?;
        let agrees = same(&evaluation, &self.summary.evaluation) && same(&unseen, &self.summary.unseen);
        Ok(Reevaluation { evaluation, unseen, agrees })
    }

    /// What the solves of some clients' test samples end in when they are started elsewhere, by the model each is evaluated by; nothing where the model
    /// solves for no fixed point.
    pub fn diagnose(&self, clients: &[usize], search: &Search) -> Result<Option<Vec<Diagnosis>>> {
        let one = |&client: &usize| self.diagnose_client(client, search);
        Place::of(&self.prepared.experiment)?.workers().map_clients(clients, |_| 0, one).into_iter().collect()
    }

    fn diagnose_client(&self, client: usize, search: &Search) -> Result<Option<Diagnosis>> {
        let ClientModel { name, weights, .. } = self.model(client)?;
        let seed = client_seed(self.prepared.clients_seed(), client).derive("fixed points", [self.server.round]);
        let samples = self.prepared.network_problem(client)?.fixed_points(&weights, Portion::Test, search, seed)?;
        Ok(samples.map(|samples| Diagnosis { client: name, found: FixedPoints::of(&samples), samples }))
    }

    /// The clients' states, with room for so many bytes beside the memory of the machine.
    fn store(&self, elsewhere: u64) -> ClientStore {
        let mut store = self.prepared.store(self.folder.clients(), elsewhere);
        store.restore(self.clients.clone());
        store
    }

    /// The number of the client of that name.
    pub fn client(&self, name: &str) -> Result<usize> {
        let names = || self.prepared.names();
        names().position(|known| known == name).ok_or_else(|| {
            let hint = match (closest(name, names()), names().next()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, first) => format!("choose one of {}, such as `{}`", names().count(), first.unwrap_or_default()),
            };
            Error::invalid(format!("there is no client `{name}` in this run"), hint)
        })
    }

    /// The model by which a client is evaluated.
    pub fn model(&self, client: usize) -> Result<ClientModel> {
        ClientModel::of(&self.prepared, client, &self.server.weights, &self.store(0).get(client)?)
    }

    /// One of a client's two models.
    pub fn model_in(&self, client: usize, view: View) -> Result<ClientModel> {
        ClientModel::viewed(&self.prepared, client, &self.server.weights, &self.store(0).get(client)?, view)
    }
}

impl ClientModel {
    /// The model of a client in some state, with the shared part as it was last received.
    pub fn of(prepared: &Prepared, client: usize, received: &Weights, state: &ClientState) -> Result<Self> {
        // An unseen client is evaluated by what it has made of the shared part, see `Unseen`.
        let is_unseen = client >= prepared.splits.clients.len();
        let view = if is_unseen { View::Local } else { prepared.experiment.method.algorithm().default_view() };
        Self::viewed(prepared, client, received, state, view)
    }

    fn viewed(prepared: &Prepared, client: usize, received: &Weights, state: &ClientState, view: View) -> Result<Self> {
        let (algorithm, me) = (prepared.experiment.method.algorithm(), state.info());
        let name = prepared.names().nth(client).unwrap_or_default().to_owned();
        let (model, neighbours) = match (view, algorithm.shared_view(&me)) {
            (View::Shared, Some(shared)) => (shared, None),
            _ => (algorithm.local_view(&me), algorithm.neighbours()),
        };
        Ok(Self { name, client, weights: state.view(&model, received)?, neighbours })
    }
}

fn unfinished(folder: &RunFolder) -> Error {
    let path = folder.path().display();
    if folder.status().is_ok_and(|status| status.state == RunState::Finished) {
        let hint = format!("let `fedeq resume {path}` write it again");
        return Error::invalid(format!("`{path}` is finished, but its `summary.json` is gone"), hint);
    }
    Error::invalid(format!("`{path}` is not finished"), format!("finish it with `fedeq resume {path}`"))
}

/// Whether two values are the same once they have gone through text, which is how a summary remembers its own.
fn same<V: Serialize>(fresh: &V, remembered: &V) -> bool {
    let text = |value: &V| serde_json::to_value(value).map(|value| value.to_string()).ok();
    let again = text(fresh).and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    again.is_some_and(|again| Some(again.to_string()) == text(remembered))
}
