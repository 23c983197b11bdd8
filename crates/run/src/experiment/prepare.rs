//! From an experiment to live objects; whatever can be refused is refused here.
use std::sync::Arc;

use fedeq_core::{AttackKind, Error, Liars, NoiseBy, Plan, Result};
use fedeq_cpu::Network;
use fedeq_data::partition::{ClientIndices, ClientSplits, Partition};
use fedeq_data::shard::Shard;
use fedeq_data::{Dataset, Labels, Samples, Scaling, Seed};
use fedeq_equilibrium::WarmStart;
use fedeq_models::{Graph, ModelConfig, Task};

use super::data::{Features, repeated, scaling_for};
use super::prepared::Prepared;
use super::{Device, Experiment, ExternalModel};
use crate::present::require_present;

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

    /// As [`prepare`](Self::prepare), with data that is loaded elsewhere.
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
    pub(super) fn ensure_supported(&self, graph: &Graph) -> Result<()> {
        fedeq_cuda::ensure_supported(graph, self.engine.precision().into())?;
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

    /// The randomness of the server.
    pub(crate) fn federation_seed(&self) -> Seed {
        self.root_seed().derive("federation", [])
    }

    /// The randomness of all clients.
    pub(crate) fn clients_seed(&self) -> Seed {
        self.root_seed().derive("clients", [])
    }

    /// The seed of all randomness.
    pub(crate) fn root_seed(&self) -> Seed {
        Seed::new(self.seed)
    }
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
