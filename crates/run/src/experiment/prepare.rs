//! From an experiment to live objects; whatever can be refused is refused here.
use std::path::PathBuf;
use std::sync::Arc;

use fedeq_core::{
    Array, AttackKind, ClientState, ClientStore, Error, InitialHeads, Liars, LocalProblem, LocalProblems, Mechanism, NoiseBy,
    Params, Plan, Result, ServerState, Training, Weights, shared_part,
};
use fedeq_cpu::{ExternalProblem, Network, NetworkProblem, project_params};
use fedeq_cuda::ClientData;
use fedeq_data::partition::{ClientIndices, ClientSplits, Partition};
use fedeq_data::shard::{Remainder, Shard};
use fedeq_data::source::arrays::TokenArrays;
use fedeq_data::source::{SampleKind, Source};
use fedeq_data::{Dataset, Labels, Samples, Scaling, Seed};
use fedeq_equilibrium::WarmStart;
use fedeq_models::graph::Parameter;
use fedeq_models::{Graph, ModelConfig, Part, Task};

use super::data::{Features, repeated, scaling_for};
use super::{Device, Experiment, ExternalModel, equilibrium_models};
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
    /// Who holds what, and who is unseen in training.
    pub splits: ClientSplits,
    /// The network, which all clients share; only its parameters where it is computed outside of fedeq.
    pub network: Arc<Network>,
    /// Where it is, what it starts from and who computes it.
    external: Option<ExternalModel>,
    /// Training, validation and test samples of each client; unseen ones come last.
    shards: Vec<[Shard; 3]>,
    /// What the federation does: the experiment's plan, in which distances are noted where somebody lies and nothing else is said.
    pub plan: Plan,
    /// The clients that lie, where the experiment lets some.
    pub liars: Option<Liars>,
}

impl Experiment {
    /// Loads, divides, builds and checks.
    pub fn prepare(&self) -> Result<Prepared> {
        self.require_samples()?;
        self.prepare_for_others()
    }

    /// As [`prepare`](Self::prepare), for what has begun already: features are scaled as they were then, if they were.
    pub(crate) fn prepare_again(&self, scaling: Option<Scaling>, external: Option<ExternalModel>) -> Result<Prepared> {
        self.require_samples()?;
        self.prepare_with(|| self.present().map(Arc::new), |_, _| Ok(scaling), external)
    }

    /// As [`prepare`](Self::prepare), with a network that is computed outside of fedeq.
    pub fn prepare_external(&self, model: ExternalModel) -> Result<Prepared> {
        self.require_samples()?;
        let scaling = |dataset: &Dataset, splits: &ClientSplits| scaling_for(&self.data.source, dataset, splits);
        self.prepare_with(|| self.present().map(Arc::new), scaling, Some(model))
    }

    /// As [`prepare`](Self::prepare), for clients elsewhere: where every client brings its own data, those given are an example.
    pub fn prepare_for_others(&self) -> Result<Prepared> {
        self.prepare_from(|| self.present().map(Arc::new))
    }

    /// As [`prepare`](Self::prepare), with data that somebody else loads.
    pub(crate) fn prepare_from(&self, load: impl FnOnce() -> Result<Arc<Dataset>>) -> Result<Prepared> {
        self.prepare_with(load, |dataset, splits| scaling_for(&self.data.source, dataset, splits), None)
    }

    /// The data, which must be there.
    fn present(&self) -> Result<Dataset> {
        require_present(&self.data.source, &self.data.folder)?;
        self.load()
    }

    fn prepare_with(
        &self,
        load: impl FnOnce() -> Result<Arc<Dataset>>,
        scaling: impl FnOnce(&Dataset, &ClientSplits) -> Result<Option<Scaling>>,
        external: Option<ExternalModel>,
    ) -> Result<Prepared> {
        self.check_settings()?;
        if let (ModelConfig::External(options), None) = (&self.model, &external) {
            return Err(options.not_ours().into());
        }
        let mut dataset = load()?;
        let splits = self.assign(&dataset)?;
        let features = Features::of(&self.data.source, &dataset);
        let scaling = scaling(&dataset, &splits)?;
        if let Some(scaling) = &scaling {
            scale(Arc::make_mut(&mut dataset), scaling)?;
        }
        self.plan.sampling.cohort_size(splits.clients.len())?;
        self.plan.validate_clients(self.method.algorithm(), splits.clients.len())?;
        let liars = self.liars(splits.clients.len())?;
        let dataset = self.changed(dataset, &splits)?;
        let shards = self.shards(&dataset, &splits, liars.as_ref())?;
        let network = Arc::new(Network::new(self.graph(&task_of(&dataset)?, external.as_ref())?));
        if let Device::Cuda(_) = self.engine.place()? {
            self.ensure_supported(network.graph())?;
        }
        self.plan.privacy.map_or(Ok(()), |privacy| privacy.validate_network(!network.graph().statistics.is_empty()))?;
        self.ensure_private()?;
        let plan = self.plan_noting_liars();
        let experiment = self.clone();
        let prepared = Prepared { experiment, dataset, scaling, features, splits, network, external, shards, plan, liars };
        prepared.check_heads()?;
        Ok(prepared)
    }

    /// The network for a task, or the parameters of one that is computed outside of fedeq.
    fn graph(&self, task: &Task, external: Option<&ExternalModel>) -> Result<Graph> {
        match (&self.model, external) {
            (ModelConfig::External(options), Some(model)) => {
                self.check_offers(model)?;
                model.graph(options, task)
            }
            (model, Some(own)) => {
                let problem = format!("the experiment's network is `{model}`, and not `{}`", own.name);
                Err(Error::invalid(problem, "leave one of the two out"))
            }
            (model, None) => Ok(model.graph(task)?),
        }
    }

    /// Refuses what clients remember from round to round where the account takes them for forgetful.
    fn ensure_private(&self) -> Result<()> {
        let is_lasting = matches!(self.training.warm_start, WarmStart::BySample { lasting: true, .. });
        let counts_sampling = self.plan.privacy.is_some_and(|privacy| privacy.noise == NoiseBy::Server)
            && !self.plan.sampling.poisson
            && self.method.algorithm().sends_without_memory();
        if !(is_lasting && counts_sampling) {
            return Ok(());
        }
        let problem = "`plan.privacy` does not go with `training.warm_start.by-sample.lasting`: what clients remember depends on when they took part";
        Err(Error::invalid(problem, "leave it out, or set `plan.sampling.poisson=true`"))
    }

    /// The data set with labels and pictures changed as the settings say.
    fn changed(&self, mut dataset: Arc<Dataset>, splits: &ClientSplits) -> Result<Arc<Dataset>> {
        if let Some(share) = self.data.label_noise {
            dataset = Arc::new(dataset.with_label_noise(splits, share, self.root_seed())?);
        }
        if let Some(shift) = &self.data.shift {
            dataset = Arc::new(dataset.shifted(splits, shift, self.root_seed())?);
        }
        self.check_augmentation(&dataset)?;
        Ok(dataset)
    }

    /// Refuses to change what is no picture, or by more than a picture has.
    fn check_augmentation(&self, dataset: &Dataset) -> Result<()> {
        let Some(augment) = &self.training.augment else { return Ok(()) };
        let Samples::Images(images) = &dataset.samples else {
            let problem = format!("`training.augment` changes pictures, and `{}` has none", dataset.name);
            return Err(Error::invalid(problem, "leave it out, or choose pictures"));
        };
        let side = images.shape[0].min(images.shape[1]);
        match augment.crop {
            Some(crop) if crop >= side => Err(Error::invalid(
                format!("`training.augment.crop` is `{crop}`, and pictures are {side} pixels wide or high"),
                format!("give less than {side}"),
            )),
            _ => Ok(()),
        }
    }

    /// Draws who lies among so many clients.
    fn liars(&self, clients: usize) -> Result<Option<Liars>> {
        let Some(attack) = &self.attack else { return Ok(None) };
        let algorithm = self.method.algorithm();
        let cohort = self.plan.cohort_size(algorithm, clients)?;
        attack.draw(clients, cohort, algorithm, self.root_seed().derive("attack", [])).map(Some)
    }

    fn plan_noting_liars(&self) -> Plan {
        let mut plan = self.plan.clone();
        if self.attack.is_some() {
            plan.aggregation.distances.get_or_insert(true);
        }
        plan
    }

    /// Every client's samples. Those who lie about labels train on other labels, and are evaluated like all others.
    fn shards(&self, dataset: &Arc<Dataset>, splits: &ClientSplits, liars: Option<&Liars>) -> Result<Vec<[Shard; 3]>> {
        let liars = liars.filter(|liars| liars.attack().kind == AttackKind::LabelFlip);
        let reversed = liars.and_then(|_| dataset.with_classes_reversed()).map(Arc::new);
        let of_client = |(number, client): (usize, &ClientIndices)| {
            let mut shards = shards_of(dataset, client)?;
            if let Some(reversed) = reversed.as_ref().filter(|_| liars.is_some_and(|liars| liars.contains(number))) {
                shards[0] = Shard::new(Arc::clone(reversed), client.train.clone())?;
            }
            Ok(shards)
        };
        splits.clients.iter().chain(&splits.unseen).enumerate().map(of_client).collect()
    }

    /// Refuses by name what a GPU cannot do.
    fn ensure_supported(&self, graph: &Graph) -> Result<()> {
        fedeq_cuda::ensure_supported(graph, self.engine.precision().into())?;
        fedeq_cuda::ensure_method_supported(&self.method)?;
        fedeq_cuda::ensure_training_supported(&self.training)
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

    pub(crate) fn load(&self) -> Result<Dataset> {
        let dataset = self.data.source.load(&self.data.folder)?;
        match self.data.copies {
            Some(copies) => repeated(dataset, copies.get()),
            None => Ok(dataset),
        }
    }

    fn assign(&self, dataset: &Dataset) -> Result<ClientSplits> {
        self.require_owners(dataset)?;
        let splits = self.data.partition.assign(dataset, &self.data.split, self.root_seed())?;
        let splits = splits.limited(self.data.limit.unwrap_or_default(), self.root_seed());
        match self.data.unseen {
            Some(amount) => Ok(splits.hold_out(amount, self.root_seed())?),
            None => Ok(splits),
        }
    }

    /// Whoever tries their own table first meets this: so it is said with the settings that help.
    fn require_owners(&self, dataset: &Dataset) -> Result<()> {
        if dataset.owners.is_some() || !matches!(self.data.partition, Partition::Natural { .. }) {
            return Ok(());
        }
        Err(Error::invalid(
            format!("`{}` does not say whose each sample is", dataset.name),
            "name the clients (in a table: in a column `client`, or `--set data.source.client=COLUMN`), or let a rule hand samples out, such as \
             `--set data.partition=iid`; there are also `label-shards`, `distinct-labels` and `dirichlet`",
        ))
    }

    /// Refuses a schedule over rounds where there are none.
    fn check_schedule(&self) -> Result<()> {
        if self.training.schedule.is_none() || self.plan.asynchronous.is_none() {
            return Ok(());
        }
        let problem = "`training.schedule` goes by rounds, and with `plan.asynchronous` clients begin at any time";
        Err(Error::invalid(problem, "leave out one of them; `training.local_schedule` works with both"))
    }

    /// Refuses what can be refused without data.
    pub fn check_settings(&self) -> Result<()> {
        if i64::try_from(self.seed).is_err() {
            return Err(Error::invalid(format!("`seed` is `{}`", self.seed), super::TOO_LARGE));
        }
        self.training.validate()?;
        self.method.algorithm().validate()?;
        self.training.validate_method(self.method.algorithm())?;
        self.check_schedule()?;
        self.plan.validate(self.method.algorithm())?;
        self.check_external()?;
        self.check_equilibrium()?;
        self.check_projection()?;
        self.check_watch()?;
        self.check_heads()?;
        self.check_symbols()?;
        self.check_vocabulary()?;
        self.check_attack()?;
        self.engine.check_device()?;
        at_least_one("engine.checkpoint_every", self.engine.checkpoint_every)?;
        at_least_one("engine.checkpoint_seconds", self.engine.checkpoint_seconds)?;
        self.engine.workers.map_or(Ok(()), |workers| at_most("engine.workers", workers.get(), MOST_WORKERS))?;
        at_most("engine.client_memory_mb", self.engine.client_memory_mb, MOST_MEGABYTES)?;
        if let Some(megabytes) = self.engine.device_memory_mb {
            at_most("engine.device_memory_mb", megabytes, MOST_MEGABYTES)?;
        }
        at_least_one("engine.client_memory_mb", self.engine.client_memory_mb as u64)
    }

    /// Refuses settings of the equilibrium that mean nothing, by their whole paths.
    fn check_equilibrium(&self) -> Result<()> {
        let Some(equilibrium) = self.model.equilibrium() else { return Ok(()) };
        equilibrium.validate().map_err(|setting| {
            let setting = setting.under("model.equilibrium");
            Error::invalid(format!("`{}` is `{}`", setting.name, setting.value), format!("give {}", setting.expected))
        })
    }

    fn check_projection(&self) -> Result<()> {
        if self.training.projection.is_none() || self.model.has_projected_matrix() {
            return Ok(());
        }
        let problem = format!("`training.projection` does not go with `{}`, which has no matrix to put back", self.model.name());
        Err(Error::invalid(problem, "leave it out, or choose the model `deq-mlp`"))
    }

    /// Heads of their own mean something only to methods that keep them with the clients.
    fn check_heads(&self) -> Result<()> {
        if self.training.initial_heads == InitialHeads::Same || !self.method.algorithm().shares(Part::Personal) {
            return Ok(());
        }
        let method = self.method.name();
        let problem =
            format!("`training.initial_heads = own` does not go with `{method}`, where the server sends every client its head");
        Err(Error::invalid(problem, "leave it out, or choose `method=fedeq`, `fedrep`, `fedper` or `local`"))
    }

    /// A token is a byte.
    fn check_vocabulary(&self) -> Result<()> {
        let Source::TokenArrays(TokenArrays { vocabulary: Some(size), .. }) = &self.data.source else { return Ok(()) };
        if (2..=256).contains(&size.get()) {
            return Ok(());
        }
        Err(Error::invalid(format!("`data.source.vocabulary` is `{size}`"), "give a whole number from 2 to 256"))
    }

    fn check_symbols(&self) -> Result<()> {
        let is_text = self.data.source.entry().kind == SampleKind::Text;
        match self.method.algorithm().needs_text() {
            Some(setting) if !is_text => {
                let problem = format!("`{setting}` does not go with `{}`, which is not text", self.data.source.name());
                Err(Error::invalid(problem, "leave it out"))
            }
            _ => Ok(()),
        }
    }

    fn check_attack(&self) -> Result<()> {
        let Some(attack) = &self.attack else { return Ok(()) };
        if attack.kind == AttackKind::LabelFlip && self.data.source.entry().kind == SampleKind::Text {
            let problem =
                format!("`attack = label-flip` does not go with `{}`, which has no labels but text", self.data.source.name());
            return Err(Error::invalid(problem, "choose another attack, or data with classes"));
        }
        if attack.kind != AttackKind::LabelFlip && self.plan.secure_aggregation.is_some() {
            // A liar need not keep to the clip, and no server sees what is under a mask: a simulation that clips its lies would be too kind.
            let problem =
                "`attack` does not go with `plan.secure_aggregation`: what a liar puts under its masks is not simulated";
            return Err(Error::invalid(problem, "leave one of the two out, or choose `attack=label-flip`"));
        }
        attack.validate(self.method.algorithm())
    }

    fn check_watch(&self) -> Result<()> {
        if self.training.watch_fixed_points.is_none() || self.model.is_equilibrium() {
            return Ok(());
        }
        let model = self.model.name();
        let problem = format!("`training.watch_fixed_points` does not go with `{model}`, which solves for no fixed point");
        Err(Error::invalid(problem, format!("leave it out, or choose {}", equilibrium_models())))
    }

    /// The randomness of the server.
    pub(crate) fn federation_seed(&self) -> Seed {
        self.root_seed().derive("federation", [])
    }

    /// The randomness of all clients.
    pub(crate) fn clients_seed(&self) -> Seed {
        self.root_seed().derive("clients", [])
    }

    /// All randomness comes from here.
    pub(crate) fn root_seed(&self) -> Seed {
        Seed::new(self.seed)
    }
}

/// More threads than any machine has cores are a slip, and asking for a million of them would hurt.
pub(super) const MOST_WORKERS: usize = 4096;
/// A petabyte.
pub(super) const MOST_MEGABYTES: usize = 1_000_000_000;

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
            format!("the samples of `{}` are not of the kind that its labels belong to", dataset.name),
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
        let trained: usize = self.splits.clients.iter().map(|client| client.train.len()).sum();
        self.features.as_ref().map(|features| features.remark(&self.experiment.data.source, self.scaling.is_some(), trained))
    }

    /// The name of a GPU that could carry this out and is not asked for; nothing where there is none.
    pub fn unused_gpu(&self) -> Option<String> {
        let is_cpu = matches!(self.experiment.engine.place(), Ok(Device::Cpu));
        if !is_cpu || self.external.is_some() || self.experiment.ensure_supported(self.network.graph()).is_err() {
            return None;
        }
        fedeq_cuda::usable_device()
    }

    /// The model all clients start from.
    pub fn initial(&self) -> Weights {
        if let Some(ExternalModel { initial, .. }) = &self.external {
            return Weights { params: initial.clone(), ..Weights::default() };
        }
        let seed = self.experiment.root_seed().derive("model", []).to_u64();
        let mut weights = Weights::initial(self.network.graph(), seed);
        if let Some(projection) = self.experiment.training.projection {
            weights.params = project_params(projection, self.network.graph(), &weights.params);
        }
        weights
    }

    /// The server before the first round.
    pub fn server(&self) -> ServerState {
        let algorithm = self.experiment.method.algorithm();
        let weights = shared_part(algorithm, &self.initial());
        ServerState::new(weights, self.splits.clients.len(), algorithm.initial_rho())
    }

    /// The states of all clients, none of which has trained; what does not fit in memory goes to `folder`. There is room for `elsewhere` bytes beside the memory
    /// of the machine, such as on a GPU.
    pub fn store(&self, folder: PathBuf, elsewhere: u64) -> ClientStore {
        let here = self.experiment.engine.client_memory_mb.saturating_mul(1_000_000);
        ClientStore::new(folder, here.saturating_add(elsewhere as usize), self.fresh_states())
    }

    /// A client that has not trained.
    pub fn fresh_state(&self, client: usize) -> ClientState {
        self.fresh_states()(client)
    }

    fn fresh_states(&self) -> impl Fn(usize) -> ClientState + Send + Sync + 'static {
        let initial = self.initial();
        let Experiment { method, training, .. } = self.experiment.clone();
        let seed = self.experiment.root_seed().derive("dual", []);
        let heads = self.heads();
        move |client| {
            let dual = method.algorithm().initial_dual(&initial, seed.derive("client", [client as u64]));
            let mut own = initial.clone();
            if training.initial_heads == InitialHeads::Own {
                own.params.overwrite(&heads(client));
            }
            ClientState::fresh(own, dual, training.warm_start)
        }
    }

    /// A draw of the head for each client.
    fn heads(&self) -> impl Fn(usize) -> Params + Send + Sync + 'static {
        let network = Arc::clone(&self.network);
        let seed = self.experiment.root_seed().derive("head", []);
        move |client| {
            let seed = seed.derive("client", [client as u64]).to_u64();
            let drawn = |parameter: &Parameter| {
                (parameter.path.clone(), Array::new(parameter.shape.clone(), parameter.initial_values(seed)))
            };
            network.graph().parameters_of(Part::Personal).map(drawn).collect()
        }
    }

    /// Refuses heads of their own where the model starts every head alike, whatever the seed.
    fn check_heads(&self) -> Result<()> {
        let heads = self.heads();
        if self.experiment.training.initial_heads == InitialHeads::Same || heads(0) != heads(1) {
            return Ok(());
        }
        let model = self.experiment.model.name();
        let problem =
            format!("`training.initial_heads = own` does not go with `{model}`, whose head always starts at the same numbers");
        Err(Error::invalid(problem, "leave it out, or choose another model"))
    }

    /// The most bytes that remembered fixed points take while a client trains, where solves start warm; those of clients at work
    /// side by side add up.
    pub fn warm_bytes(&self) -> Option<u64> {
        let Experiment { training, .. } = &self.experiment;
        let samples = |[train, ..]: &[Shard; 3]| match training.warm_start {
            WarmStart::PreviousBatch => train.len().min(training.batch_size.get()),
            WarmStart::Off | WarmStart::BySample { .. } => train.len(),
        };
        let numbers = self.network.graph().state_size()?;
        let most = self.shards.iter().map(|shards| training.warm_start.bytes(samples(shards), numbers)).max();
        most.filter(|bytes| *bytes > 0).map(|bytes| bytes as u64)
    }

    /// What makes the server's models private, where the plan does.
    pub fn mechanism(&self) -> Result<Option<Mechanism>> {
        let Experiment { method, plan, .. } = &self.experiment;
        plan.mechanism(method.algorithm(), self.splits.clients.len())
    }

    /// How many clients take part in a round.
    pub(crate) fn cohort(&self) -> Result<usize> {
        let Experiment { method, plan, .. } = &self.experiment;
        plan.cohort_size(method.algorithm(), self.splits.clients.len())
    }

    /// The bytes of remembered fixed points that are part of a client's state between rounds.
    pub(crate) fn lasting_warm_bytes(&self, client: usize) -> u64 {
        let (warm_start, numbers) = (self.experiment.training.warm_start, self.network.graph().state_size().unwrap_or_default());
        match warm_start {
            WarmStart::BySample { lasting: true, .. } => warm_start.bytes(LocalProblems::samples(self, client), numbers) as u64,
            WarmStart::Off | WarmStart::PreviousBatch | WarmStart::BySample { .. } => 0,
        }
    }

    /// The randomness of the server.
    pub fn federation_seed(&self) -> Seed {
        self.experiment.federation_seed()
    }

    /// The randomness of all clients.
    pub fn clients_seed(&self) -> Seed {
        self.experiment.clients_seed()
    }

    /// Refuses a client that there is not.
    pub fn require_client(&self, client: usize) -> Result<()> {
        let count = self.shards.len();
        let problem = || format!("there is no client `{client}` among {count}");
        if client < count { Ok(()) } else { Err(Error::invalid(problem(), "count from 0")) }
    }

    /// All clients with their samples; unseen ones come last.
    pub(crate) fn client_data(&self) -> Vec<ClientData> {
        let client = |(name, shards): (&str, &[Shard; 3])| ClientData { name: name.to_owned(), shards: shards.clone() };
        self.names().zip(&self.shards).map(client).collect()
    }

    /// A client's data and a network to use on it. Refuses one that is computed outside of fedeq.
    pub fn network_problem(&self, client: usize) -> Result<NetworkProblem> {
        self.problem_with(self.shards[client].clone())
    }

    /// Any samples and a network to use on them, alike.
    pub(crate) fn problem_with(&self, shards: [Shard; 3]) -> Result<NetworkProblem> {
        if let ModelConfig::External(options) = &self.experiment.model {
            return Err(options.not_ours().into());
        }
        Ok(NetworkProblem::new(Arc::clone(&self.network), shards, &self.experiment.training))
    }

    /// A client's data and a network that is computed outside of fedeq. Refuses it where nobody is there to compute it.
    fn external_problem(&self, client: usize, model: &ExternalModel) -> Result<ExternalProblem> {
        let network = model.network.clone().ok_or_else(|| model.options().not_ours())?;
        let (shards, name) = (self.shards[client].clone(), LocalProblems::name(self, client));
        Ok(ExternalProblem::new(network, Arc::clone(&self.network), name, shards, &self.experiment.training))
    }

    /// What the network starts from, where it is computed outside of fedeq.
    pub(crate) fn external(&self) -> Option<&ExternalModel> {
        self.external.as_ref()
    }

    /// Whether the network is computed outside of fedeq.
    pub fn is_external(&self) -> bool {
        self.external.is_some()
    }

    /// Who computes the network, where that is not fedeq: `Python`.
    pub fn computed_by(&self) -> Option<&str> {
        self.external.as_ref()?.network.as_ref().map(|network| network.computed_by())
    }

    /// So many of the first client's training samples, over and over if there are fewer.
    pub(crate) fn some_samples(&self, count: usize) -> Vec<u32> {
        self.shards[0][0].indices().iter().copied().cycle().take(count).collect()
    }

    /// A client's training, validation and test samples.
    pub(crate) fn samples_of(&self, client: usize) -> [usize; 3] {
        self.shards[client].each_ref().map(Shard::len)
    }

    /// The fewest samples that one of a client's gradient steps uses.
    pub fn smallest_batch(&self, client: usize) -> usize {
        let Training { batch_size, remainder, .. } = self.experiment.training;
        let samples = self.experiment.training.samples(self.shards[client][0].len());
        let size = batch_size.get().min(samples);
        match (remainder, samples.checked_rem(size)) {
            (Remainder::Keep, Some(rest)) if rest > 0 => rest,
            _ => size,
        }
    }

    /// The batches of one of a client's epochs.
    pub(crate) fn batches(&self, client: usize) -> usize {
        self.experiment.training.steps(self.shards[client][0].len())
    }

    /// The clients' names in order of their numbers; unseen ones come last.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.splits.clients.iter().chain(&self.splits.unseen).map(|client| client.name.as_str())
    }

    /// The numbers of the unseen clients.
    pub fn unseen(&self) -> Vec<usize> {
        (self.splits.clients.len()..self.shards.len()).collect()
    }

    /// Parameters that are shared, and parameters that stay with their clients.
    pub fn parameters(&self) -> [usize; 2] {
        let algorithm = self.experiment.method.algorithm();
        let total = |shared: bool| {
            let parts = [Part::Shared, Part::Personal].into_iter().filter(|part| algorithm.shares(*part) == shared);
            parts.map(|part| self.network.graph().count(part)).sum()
        };
        [total(true), total(false)]
    }
}

impl LocalProblems for Prepared {
    fn clients(&self) -> usize {
        self.shards.len()
    }

    fn name(&self, client: usize) -> String {
        self.names().nth(client).unwrap_or_default().to_owned()
    }

    fn samples(&self, client: usize) -> usize {
        let [train, ..] = &self.shards[client];
        train.len()
    }

    fn problem(&self, client: usize) -> Result<Box<dyn LocalProblem + '_>> {
        match &self.external {
            None => Ok(Box::new(self.network_problem(client)?)),
            Some(model) => Ok(Box::new(self.external_problem(client, model)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_lie_about_labels_train_on_other_labels_and_are_evaluated_like_all_others() {
        let settings = ["attack=label-flip", "attack.share=0.3", "data.unseen.count=2"];
        let settings: Vec<_> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
        let prepared = Experiment::read(None, &settings).and_then(|experiment| experiment.prepare()).expect("sound");
        let liars = prepared.liars.as_ref().expect("some lie");
        assert!(liars.numbers().count() == 8 && prepared.plan.aggregation.notes_distances());
        let classes = |shard: &Shard| -> Vec<u16> {
            let all = shard.dataset().classes().expect("digits");
            shard.indices().iter().map(|index| all[*index as usize]).collect()
        };
        for (client, [train, _, test]) in prepared.shards.iter().enumerate() {
            let truth =
                |shard: &Shard| classes(&Shard::new(Arc::clone(&prepared.dataset), shard.indices().to_vec()).expect("sound"));
            let reversed: Vec<u16> = truth(train).into_iter().map(|class| 9 - class).collect();
            assert_eq!(classes(train), if liars.contains(client) { reversed } else { truth(train) }, "{client}");
            assert_eq!(classes(test), truth(test), "{client}");
        }
    }
}
