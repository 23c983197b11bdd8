//! An engine that trains and scores all clients of a round at once on a GPU.
//!
//! # Layout
//! - this file: the engine, and the clients with their data
//! - `cohort`: who works together; `train` and `evaluate`: what cohorts do; `phase`: a training phase; `contrast`: a loss on embeddings; `gradient`: the true gradient; `neighbours`: nearest neighbours
//! - `parts`, `expression`, `lanes`: parts of models, what is made of them, and their numbers on the device
//! - `schedule`: which samples are in which step; `runner`: taking steps; `optimiser`: steps beyond plain gradient descent; `solves`, `warm`: what is done before and after solves; `workshop`: what is kept ready
//! - `stored`, `state`: what clients keep between rounds; `sent`: what they send, and its mean
mod cohort;
mod contrast;
mod evaluate;
mod expression;
mod gradient;
mod lanes;
mod neighbours;
mod optimiser;
mod parts;
mod phase;
mod runner;
mod schedule;
mod sent;
mod solves;
mod state;
mod stored;
mod train;
mod warm;
mod workshop;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fedeq_core::{Engine, Error, EvaluationJob, Job, Params, Portion, Reply, Result, Training, Weights};
use fedeq_data::Dataset;
use fedeq_data::shard::Shard;
use fedeq_models::Graph;

use self::evaluate::{EVALUATION_BATCH, Examinee};
use self::gradient::Precise;
use self::state::Home;
use self::stored::{Storage, lock};
use self::train::Member;
use self::workshop::Workshop;
use crate::data::DeviceData;
use crate::device::{Device, KernelTime};
use crate::layout::Layout;
use crate::plan::Precision;
use crate::support::ensure_supported;

/// How a GPU is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaOptions {
    /// Its number, as in `cuda:1`.
    pub device: usize,
    /// How precisely it computes.
    pub precision: Precision,
    /// The bytes of its memory that may be used; most of what is free if left out. Half of it is for the states of clients, which move to the host's memory beyond that.
    pub memory_budget: Option<u64>,
}

/// A client: what people call it, and its training, validation and test samples.
#[derive(Clone, Debug)]
pub struct ClientData {
    /// What people call it.
    pub name: String,
    /// Training, validation and test samples.
    pub shards: [Shard; 3],
}

/// How much of a GPU is used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceUsage {
    /// Bytes of its memory that this engine holds.
    pub bytes: u64,
    /// The most it has held so far.
    pub peak: u64,
    /// The share of the time since this was last asked in which clients were at work on it, from 0 to 1.
    pub busy: f64,
}

/// The share of the free memory that may be used if nothing is said.
const SHARE: f64 = 0.8;
/// More clients side by side than a launch can have.
const MOST_LANES: usize = 65_535;

/// Trains and scores all clients of a round at once on an NVIDIA GPU. Data and states live there; the same work gives the same bytes, however many clients are side by side.
pub struct CudaEngine {
    home: Arc<Home>,
    clients: Clients,
    shop: Mutex<Workshop>,
    precise: Mutex<Precise>,
    work: Mutex<Busy>,
}

/// The clients and their data on the device.
pub(crate) struct Clients {
    clients: Vec<ClientData>,
    /// Of every client, which data sets its three shards are of.
    of: Vec<[usize; 3]>,
    data: Vec<DeviceData>,
    training: Training,
    precision: Precision,
    budget: u64,
    /// Samples of a client in a step at most, in training and in evaluation: the same in every cohort.
    most_trained: usize,
    most_evaluated: NonZeroUsize,
    /// Clients side by side at most.
    most_lanes: usize,
    /// Whether steps are recorded and repeated.
    record: bool,
}

/// How long clients were at work since this was last asked.
struct Busy {
    since: Instant,
    seconds: f64,
}

impl CudaEngine {
    /// An engine for a network and clients. Refuses what there are no kernels for.
    pub fn new(graph: &Graph, clients: Vec<ClientData>, training: &Training, options: &CudaOptions) -> Result<Self> {
        ensure_supported(graph, options.precision)?;
        ensure_training_supported(training)?;
        let device = Device::new(options.device)?;
        let free = device.memory()?.0;
        let budget = options.memory_budget.unwrap_or((free as f64 * SHARE) as u64);
        let clients = Clients::new(&device, graph, clients, training, options.precision, budget)?;
        let storage = Storage::new(&device, budget.saturating_sub(clients.data_bytes()) / 2);
        let layout = Layout::new(graph, options.precision);
        let precise = Precise::new(&device, graph, Arc::clone(&storage));
        let home = Home::new(&device, Arc::new(graph.clone()), layout, storage, training.warm_start);
        let work = Mutex::new(Busy { since: Instant::now(), seconds: 0.0 });
        Ok(Self { home: Arc::new(home), clients, shop: Mutex::default(), precise: Mutex::new(precise), work })
    }

    /// The same with no more than so many clients side by side. Results do not depend on it.
    pub fn most_lanes(mut self, lanes: NonZeroUsize) -> Self {
        self.clients.most_lanes = lanes.get().min(MOST_LANES);
        self
    }

    /// The same, launching every kernel of every step instead of recording a step and repeating it: slower, with the same results.
    pub fn without_recording(mut self) -> Self {
        self.clients.record = false;
        self
    }

    /// The bytes of clients' states that are kept on the GPU at most.
    pub fn state_budget(&self) -> u64 {
        self.home.storage.budget()
    }

    /// From now on it is noted what every kernel takes. Steps are not recorded meanwhile, and launches waited for one by one.
    pub fn start_profile(&mut self) {
        self.clients.record = false;
        self.home.device.start_profile();
    }

    /// What every kernel has taken since then, by name.
    pub fn end_profile(&mut self) -> BTreeMap<&'static str, KernelTime> {
        self.clients.record = true;
        self.home.device.end_profile()
    }

    /// What is used of the GPU, and how busy it was since this was last asked.
    pub fn usage(&self) -> DeviceUsage {
        let (bytes, peak) = self.home.device.usage().bytes();
        let mut work = lock(&self.work);
        let passed = work.since.elapsed().as_secs_f64();
        let busy = if passed > 0.0 { (work.seconds / passed).min(1.0) } else { 0.0 };
        *work = Busy { since: Instant::now(), seconds: 0.0 };
        DeviceUsage { bytes, peak, busy }
    }

    fn timed<R>(&self, work: impl FnOnce(&mut Workshop) -> R) -> R {
        let mut shop = lock(&self.shop);
        let begun = Instant::now();
        let result = work(&mut shop);
        lock(&self.work).seconds += begun.elapsed().as_secs_f64();
        result
    }
}

/// Refuses what is only looked at on the CPU. Needs no GPU.
pub fn ensure_training_supported(training: &Training) -> Result<()> {
    if training.watch_fixed_points.is_none() {
        return Ok(());
    }
    Err(Error::invalid(
        "`training.watch_fixed_points` is not available on a GPU",
        "leave it out, or leave `--device` out to compute on the CPU",
    ))
}

/// Lets all jobs begin that may, and carries those out: replies come in the order of the jobs. If it was asked to stop, nothing is carried out: what comes of it would not be kept.
fn answered<'j, J: Sync, S: Send, M>(
    jobs: &'j [J],
    begin: impl Fn(&'j J) -> Result<S> + Send + Sync,
    take: impl Fn(&'j J, S) -> Result<M>,
    work: impl FnOnce(Vec<M>) -> Vec<Result<Reply>>,
) -> Vec<Result<Reply>> {
    let started = on_all_cores(jobs, begin);
    let mut begun = Vec::new();
    let mut replies = Vec::with_capacity(jobs.len());
    for (job, started) in jobs.iter().zip(started) {
        match started.and_then(|started| take(job, started)) {
            Ok(member) => {
                begun.push(member);
                replies.push(None);
            }
            Err(Error::Interrupted) => return jobs.iter().map(|_| Err(Error::Interrupted)).collect(),
            Err(error) => replies.push(Some(Err(error))),
        }
    }
    let mut carried_out = work(begun).into_iter();
    let reply = |reply: Option<Result<Reply>>| {
        reply.or_else(|| carried_out.next()).unwrap_or_else(|| Err(Error::invalid("a job was lost", "report this as a bug")))
    };
    replies.into_iter().map(reply).collect()
}

/// What comes of each, in order: what a client received is looked through, which takes a core a while.
///
/// Threads of their own, not those of rayon: beginning takes locks (that of the clients' store, those of whoever looks on), and a thread of rayon that waits for others while it holds
/// one would take up another client meanwhile and wait for itself.
fn on_all_cores<'j, J: Sync, S: Send>(jobs: &'j [J], begin: impl Fn(&'j J) -> S + Sync) -> Vec<S> {
    let share = jobs.len().div_ceil(rayon::current_num_threads()).max(1);
    std::thread::scope(|scope| {
        let shares: Vec<_> = jobs.chunks(share).map(|jobs| scope.spawn(|| jobs.iter().map(&begin).collect::<Vec<S>>())).collect();
        shares.into_iter().flat_map(|share| share.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

impl Engine for CudaEngine {
    fn clients(&self) -> usize {
        self.clients.clients.len()
    }

    fn name(&self, client: usize) -> String {
        self.clients.clients[client].name.clone()
    }

    fn samples(&self, client: usize) -> usize {
        self.clients.samples(client)
    }

    fn train(&self, jobs: &[Job<'_>]) -> Vec<Result<Reply>> {
        let begin = |job, started| Member::new(&self.home, job, started);
        answered(jobs, Job::begin, begin, |members| self.timed(|shop| self.clients.train_all(shop, &self.home, members)))
    }

    fn evaluate(&self, jobs: &[EvaluationJob<'_>]) -> Vec<Result<Reply>> {
        let begin = |job, started| Examinee::new(&self.home, job, started);
        answered(jobs, EvaluationJob::begin, begin, |all| {
            let evaluated = self.timed(|shop| self.clients.evaluate_all(shop, &self.home, all));
            evaluated.into_iter().map(evaluate::end).collect()
        })
    }

    fn gradient(&self, client: usize, weights: &Weights) -> Result<(f64, Params)> {
        let (data, shard) = (self.clients.data(client), self.clients.shard(client));
        let begun = Instant::now();
        let found = lock(&self.precise).gradient(data, shard, weights);
        lock(&self.work).seconds += begun.elapsed().as_secs_f64();
        found
    }
}

impl Clients {
    fn new(
        device: &Arc<Device>,
        graph: &Graph,
        clients: Vec<ClientData>,
        training: &Training,
        precision: Precision,
        budget: u64,
    ) -> Result<Self> {
        let mut datasets: Vec<Arc<Dataset>> = Vec::new();
        let mut number = |shard: &Shard| {
            let known = datasets.iter().position(|dataset| Arc::ptr_eq(dataset, shard.dataset()));
            known.unwrap_or_else(|| {
                datasets.push(Arc::clone(shard.dataset()));
                datasets.len() - 1
            })
        };
        let of = clients.iter().map(|client| [0, 1, 2].map(|at| number(&client.shards[at]))).collect();
        let data = datasets.iter().map(|dataset| DeviceData::new(device, dataset)).collect::<Result<Vec<_>>>()?;
        data.iter().try_for_each(|data| data.ensure_fits(graph))?;
        let longest = |shards: &[Shard]| shards.iter().map(Shard::len).max().unwrap_or(0);
        let trained = clients.iter().map(|client| client.shards[0].len()).max().unwrap_or(0);
        let evaluated = clients.iter().map(|client| longest(&client.shards)).max().unwrap_or(0);
        Ok(Self {
            of,
            data,
            training: training.clone(),
            precision,
            budget,
            most_trained: training.batch_size.get().min(trained).max(1),
            most_evaluated: NonZeroUsize::new(EVALUATION_BATCH.min(evaluated)).unwrap_or(NonZeroUsize::MIN),
            most_lanes: MOST_LANES,
            record: true,
            clients,
        })
    }

    fn samples(&self, client: usize) -> usize {
        self.shard(client).len()
    }

    /// What a client trains on.
    fn shard(&self, client: usize) -> &Shard {
        self.portion(client, Portion::Train)
    }

    fn portion(&self, client: usize, on: Portion) -> &Shard {
        &self.clients[client].shards[on as usize]
    }

    /// Which data sets a client's samples are of.
    fn data_of(&self, client: usize) -> [usize; 3] {
        self.of[client]
    }

    /// The data set that a client trains on.
    fn data(&self, client: usize) -> &DeviceData {
        self.data_on(client, Portion::Train)
    }

    fn data_on(&self, client: usize, on: Portion) -> &DeviceData {
        &self.data[self.of[client][on as usize]]
    }

    fn data_bytes(&self) -> u64 {
        self.data.iter().map(DeviceData::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    /// A client's beginning that holds a lock while all cores work for it.
    #[test]
    fn clients_begin_side_by_side_and_in_order_whatever_they_lock() {
        let (numbers, order) = ((0..64).collect::<Vec<u64>>(), Mutex::new(()));
        let begin = |&number: &u64| {
            let _held = lock(&order);
            (0..4096_u64).into_par_iter().map(|value| value % (number + 1)).sum::<u64>()
        };
        let expected: Vec<u64> = numbers.iter().map(|number| (0..4096).map(|value| value % (number + 1)).sum()).collect();
        assert_eq!(on_all_cores(&numbers, begin), expected);
        assert!(on_all_cores(&[], begin).is_empty());
    }
}
