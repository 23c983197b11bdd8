//! From an experiment to live objects; whatever can be refused is refused here.
use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use fedeq_core::{
    ClientState, ClientStore, Error, Method, NetworkSite, Projection, Result, ServerState, Site, Sites, Weights,
    named_statistics, params_of, travelling,
};
use fedeq_data::partition::{ClientIndices, Federation, Partition};
use fedeq_data::shard::Shard;
use fedeq_data::{Dataset, Labels, Samples, Scaling, Seed};
use fedeq_models::{Network, Part, Task};

use super::features::{Features, scaling_for};
use super::{Experiment, copies, device};
use crate::present::require_present;

/// An experiment whose data is loaded, whose clients have their samples and whose network is built.
pub struct Prepared {
    /// What was asked for.
    pub experiment: Experiment,
    /// The data. Where features are scaled, these are the scaled ones.
    pub dataset: Arc<Dataset>,
    /// What was subtracted from the features of a table, and what they were divided by.
    pub scaling: Option<Scaling>,
    /// What the features of a table were before.
    features: Option<Features>,
    /// Who holds what, and who is met only after training.
    pub federation: Federation,
    /// The network, with its first weights.
    pub network: Network,
    /// At least one.
    stations: Vec<Station>,
    /// Training, validation and test samples of each client; those met only after training come last.
    shards: Vec<[Shard; 3]>,
}

/// Where clients work.
struct Station {
    device: Device,
    /// Tells the architecture, not the numbers.
    network: Network,
}

impl Experiment {
    /// Loads, divides, builds and checks.
    pub fn prepare(&self) -> Result<Prepared> {
        self.require_samples()?;
        self.prepare_for_others()
    }

    /// As [`prepare`](Self::prepare), for what has begun already: features are scaled as they were then, if they were.
    pub(crate) fn prepare_again(&self, scaling: Option<Scaling>) -> Result<Prepared> {
        self.require_samples()?;
        self.prepare_with(|_, _| Ok(scaling))
    }

    /// As [`prepare`](Self::prepare), for clients elsewhere: where everybody brings their own data, those at hand are an example.
    pub(crate) fn prepare_for_others(&self) -> Result<Prepared> {
        self.prepare_with(|dataset, federation| scaling_for(&self.data.source, dataset, federation))
    }

    fn prepare_with(&self, scaling: impl FnOnce(&Dataset, &Federation) -> Result<Option<Scaling>>) -> Result<Prepared> {
        self.check_settings()?;
        let devices = device::named(&self.engine.device)?;
        require_present(&self.data.source, &self.data.folder)?;
        let mut dataset = self.load()?;
        let federation = self.assign(&dataset)?;
        let features = Features::of(&self.data.source, &dataset);
        let scaling = scaling(&dataset, &federation)?;
        if let Some(scaling) = &scaling {
            scale(&mut dataset, scaling)?;
        }
        let dataset = Arc::new(dataset);
        self.plan.sampling.cohort_size(federation.clients.len())?;
        let shards = federation.clients.iter().chain(&federation.unseen).map(|client| shards_of(&dataset, client));
        let shards = shards.collect::<Result<_>>()?;
        let seed = self.root_seed().derive("model", []).to_u64();
        let task = task_of(&dataset)?;
        let station = |device: Device| Ok(Station { network: self.build(&task, &device, seed)?, device });
        let stations = devices.into_iter().map(station).collect::<Result<Vec<_>>>()?;
        let network = stations[0].network.clone();
        Ok(Prepared { experiment: self.clone(), dataset, scaling, features, federation, network, stations, shards })
    }

    fn require_samples(&self) -> Result<()> {
        let problem = "`data.partition.rule = \"own\"` leaves the data with the nodes of a federation";
        match self.data.partition {
            Partition::Own { here: None, .. } => Err(Error::invalid(
                problem,
                "write it as an app with `fedeq init-federation`, or choose another rule to simulate",
            )),
            _ => Ok(()),
        }
    }

    fn build(&self, task: &Task, device: &Device, seed: u64) -> Result<Network> {
        let network = self.model.build(task, device, seed)?;
        Ok(match self.training.projection {
            Some(projection) => projection.apply(network),
            None => network,
        })
    }

    fn load(&self) -> Result<Dataset> {
        let dataset = self.data.source.load(&self.data.folder)?;
        match self.data.copies {
            Some(copies) => copies::repeated(dataset, copies.get()),
            None => Ok(dataset),
        }
    }

    fn assign(&self, dataset: &Dataset) -> Result<Federation> {
        let federation = self.data.partition.assign(dataset, &self.data.split, self.root_seed())?;
        let federation = federation.limited(self.data.limit.unwrap_or_default(), self.root_seed());
        match self.data.unseen {
            Some(amount) => Ok(federation.hold_out(amount, self.root_seed())?),
            None => Ok(federation),
        }
    }

    /// Refuses what can be refused without data.
    pub fn check_settings(&self) -> Result<()> {
        if i64::try_from(self.seed).is_err() {
            return Err(Error::invalid(format!("`seed` is `{}`", self.seed), super::TOO_LARGE));
        }
        self.training.validate()?;
        self.method.algorithm().validate()?;
        self.plan.validate(self.method.algorithm())?;
        self.check_projection()?;
        at_least_one("engine.checkpoint_every", self.engine.checkpoint_every)?;
        self.engine.workers.map_or(Ok(()), |workers| at_most("engine.workers", workers.get(), MOST_WORKERS))?;
        at_most("engine.client_memory_mb", self.engine.client_memory_mb, MOST_MEGABYTES)?;
        at_least_one("engine.client_memory_mb", self.engine.client_memory_mb as u64)
    }

    fn check_projection(&self) -> Result<()> {
        if self.training.projection.is_none() || self.model.name() == Projection::MODEL {
            return Ok(());
        }
        let problem = format!("`training.projection` does not go with `{}`, which has no matrix to put back", self.model.name());
        Err(Error::invalid(problem, format!("leave it out, or choose the model `{}`", Projection::MODEL)))
    }

    /// All randomness comes from here.
    pub(crate) fn root_seed(&self) -> Seed {
        Seed::new(self.seed)
    }
}

/// More threads than any machine has cores are a slip, and asking for a million of them would hurt.
const MOST_WORKERS: usize = 4096;
/// A petabyte.
const MOST_MEGABYTES: usize = 1_000_000_000;

fn at_most(name: &str, value: usize, most: usize) -> Result<()> {
    if value <= most { Ok(()) } else { Err(Error::invalid(format!("`{name}` is `{value}`"), format!("give at most {most}"))) }
}

fn at_least_one(name: &str, value: u64) -> Result<()> {
    if value > 0 { Ok(()) } else { Err(Error::invalid(format!("`{name}` is `0`"), "give a whole number of at least 1")) }
}

/// What a network has to do with this data.
fn task_of(dataset: &Dataset) -> Result<Task> {
    match (&dataset.samples, &dataset.labels) {
        (Samples::Images(images), Labels::Classes { names, .. }) => {
            let [height, width, channels] = images.shape;
            Ok(Task::image(height, width, channels, names.len()))
        }
        (Samples::Vectors(vectors), Labels::Classes { names, .. }) => Ok(Task::vector(vectors.width, names.len())),
        (Samples::Sequences(sequences), Labels::NextSymbols(_)) => Ok(Task::next_symbol(sequences.length, sequences.vocabulary)),
        _ => Err(Error::invalid(
            format!("`{}` asks for numbers, and the networks answer with classes", dataset.name),
            "choose data with classes or text",
        )),
    }
}

/// Scales the features of a data set.
fn scale(dataset: &mut Dataset, scaling: &Scaling) -> Result<()> {
    let Samples::Vectors(vectors) = &mut dataset.samples else { return Ok(()) };
    scaling.check(vectors.width)?;
    scaling.apply(&mut vectors.values);
    match vectors.values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => Err(Error::invalid(
            format!(
                "feature `{}` of sample `{}` is too far from the others to be scaled with them",
                at % vectors.width,
                at / vectors.width
            ),
            "remove the sample or the column, or set `data.source.scale=none`",
        )),
    }
}

fn shards_of(dataset: &Arc<Dataset>, client: &ClientIndices) -> Result<[Shard; 3]> {
    let shard = |indices: &Vec<u32>| Shard::new(Arc::clone(dataset), indices.clone());
    Ok([shard(&client.train)?, shard(&client.validation)?, shard(&client.test)?])
}

impl Prepared {
    /// What is to be known about the data before training begins, if there is anything.
    pub fn remark(&self) -> Option<String> {
        let trained: usize = self.federation.clients.iter().map(|client| client.train.len()).sum();
        self.features.as_ref().map(|features| features.remark(&self.experiment.data.source, self.scaling.is_some(), trained))
    }

    /// The model everybody starts from.
    pub fn initial(&self) -> Weights {
        Weights { params: params_of(&self.network), statistics: named_statistics(&self.network.fresh_statistics()) }
    }

    /// The server before the first round.
    pub fn server(&self) -> ServerState {
        let method = &self.experiment.method;
        let weights = travelling(method.algorithm(), &self.initial());
        let rho = if let Method::Fedeq(fedeq) = method { Some(fedeq.rho) } else { None };
        ServerState::new(weights, self.federation.clients.len(), rho)
    }

    /// The states of all clients, none of which has trained; what does not fit in memory goes to `folder`.
    pub fn store(&self, folder: PathBuf) -> ClientStore {
        ClientStore::new(folder, self.experiment.engine.client_memory_mb * 1_000_000, self.fresh_states())
    }

    /// A client that has not trained.
    pub fn fresh_state(&self, client: usize) -> ClientState {
        self.fresh_states()(client)
    }

    fn fresh_states(&self) -> impl Fn(usize) -> ClientState + Send + Sync + 'static {
        let initial = self.initial();
        let theta = initial.theta();
        let Experiment { method, training, .. } = self.experiment.clone();
        let seed = self.experiment.root_seed().derive("dual", []);
        move |client| {
            let dual = method.algorithm().initial_dual(&theta, seed.derive("client", [client as u64]));
            ClientState::fresh(initial.clone(), dual, training.warm_start)
        }
    }

    /// The randomness of the server.
    pub fn federation_seed(&self) -> Seed {
        self.experiment.root_seed().derive("federation", [])
    }

    /// The randomness of all clients.
    pub fn clients_seed(&self) -> Seed {
        self.experiment.root_seed().derive("clients", [])
    }

    /// Refuses a client that there is not.
    pub fn require_client(&self, client: usize) -> Result<()> {
        let count = self.shards.len();
        let problem = || format!("there is no client `{client}` among {count}");
        if client < count { Ok(()) } else { Err(Error::invalid(problem(), "count from 0")) }
    }

    /// A client's data and a network to use on it.
    pub fn network_site(&self, client: usize) -> NetworkSite {
        let Station { device, network } = &self.stations[client % self.stations.len()];
        NetworkSite::new(network.clone(), device.clone(), self.shards[client].clone(), &self.experiment.training)
    }

    /// The clients' names in order of their numbers; those met only after training come last.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.federation.clients.iter().chain(&self.federation.unseen).map(|client| client.name.as_str())
    }

    /// The numbers of those who are met only after training.
    pub fn unseen(&self) -> Vec<usize> {
        (self.federation.clients.len()..self.shards.len()).collect()
    }

    /// Parameters that travel, and parameters that stay.
    pub fn parameters(&self) -> [usize; 2] {
        let algorithm = self.experiment.method.algorithm();
        let total = |travels: bool| {
            let parts = [Part::Shared, Part::Personal].into_iter().filter(|part| algorithm.travels(*part) == travels);
            parts.map(|part| self.network.count(part)).sum()
        };
        [total(true), total(false)]
    }
}

impl Sites for Prepared {
    fn clients(&self) -> usize {
        self.shards.len()
    }

    fn samples(&self, client: usize) -> usize {
        let [train, ..] = &self.shards[client];
        train.len()
    }

    fn site(&self, client: usize) -> Result<Box<dyn Site>> {
        Ok(Box::new(self.network_site(client)))
    }
}
