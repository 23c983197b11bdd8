//! An experiment made live.
use std::path::PathBuf;
use std::sync::Arc;

use fedeq_core::{
    Array, ClientState, ClientStore, Error, InitialHeads, Liars, LocalProblem, LocalProblems, Mechanism, Params, Plan, Result,
    ServerState, Training, Weights, shared_part,
};
use fedeq_cpu::{ExternalProblem, Network, NetworkProblem, project_params};
use fedeq_cuda::ClientData;
use fedeq_data::partition::ClientSplits;
use fedeq_data::shard::{Remainder, Shard};
use fedeq_data::{Dataset, Scaling, Seed};
use fedeq_equilibrium::WarmStart;
use fedeq_models::graph::Parameter;
use fedeq_models::{ModelConfig, Part};

use super::data::Features;
use super::{Device, Experiment, ExternalModel};

/// An experiment whose data is loaded, whose clients have their samples and whose network is built.
pub struct Prepared {
    /// What was asked for.
    pub experiment: Experiment,
    /// The data. Where features are scaled, these are the scaled ones.
    pub dataset: Arc<Dataset>,
    /// What was subtracted from the features of a table, and what they were divided by.
    pub scaling: Option<Scaling>,
    /// What the features of a table were before.
    pub(super) features: Option<Features>,
    /// Who holds what, and who is unseen in training.
    pub splits: ClientSplits,
    /// The network, which all clients share; only its parameters where it is computed outside of fedeq.
    pub network: Arc<Network>,
    /// Where it is, what it starts from and who computes it.
    pub(super) external: Option<ExternalModel>,
    /// Training, validation and test samples of each client; unseen ones come last.
    pub(super) shards: Vec<[Shard; 3]>,
    /// What the federation does: the experiment's plan, in which distances are noted where a client lies and nothing else is said.
    pub plan: Plan,
    /// The clients that lie, where the experiment lets some.
    pub liars: Option<Liars>,
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
    pub(super) fn check_heads(&self) -> Result<()> {
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

    /// A client's data and a network that is computed outside of fedeq. Refuses it where nothing is there to compute it.
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
