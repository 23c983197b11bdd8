//! Creating, resuming and carrying out a run.
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use fedeq_core::{Error, Evaluation, InProcess, Mechanism, Result, Server, ServerState, Traffic, Unseen};
use fedeq_data::Dataset;
use fedeq_data::source::{Source, arrays};
use fedeq_models::ModelConfig;

use super::checkpoint::{Checkpointer, Position, Seal, Stage, Which, restore, save, settle_device};
use super::control::{ControlThread, PauseGate};
use super::engine::{Place, Share};
use super::folder::{Lock, RunFolder};
use super::metadata::{RunState, UsedGpu};
use super::observer::{LastEvaluation, SimulationObserver};
use super::progress::{HeadRecorder, ProgressTracker};
use super::record::Recorder;
use super::start::{Disk, RunStart};
use super::summary::{RunSummary, solves_of};
use crate::experiment::{Device, Experiment, ExternalModel, Prepared};
use crate::number::counted;

/// A run that is ready: whatever could be refused has been accepted, and its folder has been written to.
pub struct Run {
    folder: RunFolder,
    prepared: Prepared,
    position: Position,
    seal: Seal,
    place: Place,
    /// What it is computed on, where that is a GPU.
    gpu: Option<UsedGpu>,
    has_checkpoints: bool,
    /// Given back when the run is dropped.
    _lock: Lock,
}

/// What a program hands over beside an experiment.
#[derive(Default)]
pub struct FromMemory {
    /// The data, where the experiment's is arrays; read from where the experiment says if left out.
    pub data: Option<Dataset>,
    /// A network that is computed outside of fedeq; one of ours if left out.
    pub network: Option<ExternalModel>,
}

/// Asked before every client; true means stop.
type Interrupted<'a> = &'a (dyn Fn() -> bool + Sync);

/// What surrounds the work on a run: who may hold it up, and who watches.
struct RunContext<'a> {
    gate: PauseGate,
    progress: ProgressTracker,
    interrupted: Interrupted<'a>,
}

/// Carries out an experiment in a new folder, from beginning to end.
pub fn launch(
    experiment: &Experiment,
    folder: &Path,
    observer: &mut SimulationObserver<'_>,
    interrupted: Interrupted<'_>,
) -> Result<RunSummary> {
    Run::create(experiment, folder)?.train(observer, interrupted)
}

impl Run {
    /// Prepares an experiment and makes a folder for it. If anything is refused, nothing is left behind.
    pub fn create(experiment: &Experiment, folder: &Path) -> Result<Self> {
        Self::create_from(experiment, folder, FromMemory::default())
    }

    /// As [`create`](Self::create), with a network that is computed outside of fedeq.
    pub fn create_external(experiment: &Experiment, folder: &Path, model: ExternalModel) -> Result<Self> {
        Self::create_from(experiment, folder, FromMemory { network: Some(model), data: None })
    }

    /// As [`create`](Self::create), with what the program hands over. Its data is kept in the run folder, where everything that comes later reads it.
    pub fn create_from(experiment: &Experiment, folder: &Path, FromMemory { data, network }: FromMemory) -> Result<Self> {
        let mut experiment = experiment.clone();
        match &data {
            Some(dataset) => require_source_of(&experiment.data.source, dataset)?,
            // A run may be resumed from anywhere.
            None if !experiment.data.source.entry().places.is_empty() => {
                let data = &mut experiment.data.folder;
                *data = std::path::absolute(&data).map_err(Error::io(data, "find it"))?;
            }
            None => {}
        }
        experiment.ensure_not_moved()?;
        experiment.check_settings()?;
        let gpu = UsedGpu::of(&experiment.engine)?;
        let prepare = |mut experiment: Experiment| {
            experiment.data.source = experiment.data.source.pinned(&experiment.data.folder)?;
            network.map_or_else(|| experiment.prepare(), |model| experiment.prepare_external(model))
        };
        let Some(dataset) = data else {
            let prepared = prepare(experiment)?;
            let folder = RunFolder::create(folder)?;
            let lock = folder.lock()?;
            return or_nothing(&folder, || Self::begin(folder.clone(), prepared, gpu, lock));
        };
        let folder = RunFolder::create(&std::path::absolute(folder).map_err(Error::io(folder, "find it"))?)?;
        let lock = folder.lock()?;
        or_nothing(&folder, || {
            arrays::write(&dataset, &folder.data_file())?;
            // What is learned from is what a later process will read.
            drop(dataset);
            experiment.data.folder = folder.data_file();
            Self::begin(folder.clone(), prepare(experiment)?, gpu, lock)
        })
    }

    fn begin(folder: RunFolder, prepared: Prepared, gpu: Option<UsedGpu>, lock: Lock) -> Result<Self> {
        folder.write_version(gpu.clone())?;
        prepared.scaling.iter().try_for_each(|scaling| folder.write_scaling(scaling))?;
        prepared.external().into_iter().try_for_each(|model| folder.write_external(model))?;
        folder.write_experiment(&prepared.experiment)?;
        folder.write_status(RunState::Running)?;
        let position =
            Position { server: prepared.server(), clients: BTreeMap::new(), traffic: Traffic::default(), stage: Stage::Training };
        let seal = Seal::of(&prepared.experiment)?;
        save(&folder, &seal, &position)?;
        Self::ready(folder, prepared, position, seal, gpu, lock)
    }

    /// Goes back to a checkpoint of a run. `change` may adapt how it is computed and where its data lies, not what it is. Another device than so far must be named:
    /// the run then remembers that it was computed on both.
    pub fn resume(
        folder: &RunFolder,
        which: Which,
        device: Option<Device>,
        change: impl FnOnce(&mut Experiment),
    ) -> Result<Self> {
        Self::resume_with(folder, which, device, change, |experiment| {
            // What was found out when it began would do to prepare it, and nothing would be there to compute it.
            if let ModelConfig::External(options) = &experiment.model {
                Err(options.not_ours().into())
            } else {
                folder.prepare(experiment)
            }
        })
    }

    /// As [`resume`](Self::resume), with the network of the run, which is computed outside of fedeq. It continues with the numbers of the run, whatever the network
    /// starts from now.
    pub fn resume_external(
        folder: &RunFolder,
        which: Which,
        change: impl FnOnce(&mut Experiment),
        model: ExternalModel,
    ) -> Result<Self> {
        Self::resume_with(folder, which, None, change, |experiment| {
            let begun = folder.external(experiment)?.ok_or_else(|| {
                let problem = format!("`{}` has the network `{}` of fedeq", folder.path().display(), experiment.model);
                Error::invalid(problem, "resume it without a network of your own")
            })?;
            begun.ensure_same(&model)?;
            experiment.prepare_again(folder.scaling(experiment)?, Some(ExternalModel { initial: begun.initial, ..model }))
        })
    }

    fn resume_with(
        folder: &RunFolder,
        which: Which,
        device: Option<Device>,
        change: impl FnOnce(&mut Experiment),
        prepare: impl FnOnce(&Experiment) -> Result<Prepared>,
    ) -> Result<Self> {
        folder.require_simulation()?;
        let lock = folder.lock()?;
        let mut experiment = folder.experiment()?;
        let written = experiment.engine.clone();
        change(&mut experiment);
        settle_device(folder, which, &mut experiment, device)?;
        let gpu = UsedGpu::of(&experiment.engine)?;
        let prepared = prepare(&experiment)?;
        let position = restore(folder, &experiment, which, prepared.server())?;
        if device.is_some() || written.earlier_devices != experiment.engine.earlier_devices {
            folder.write_experiment(&experiment)?;
        }
        folder.note_gpu(gpu.clone())?;
        folder.write_status(RunState::Running)?;
        let seal = Seal::of(&experiment)?;
        Self::ready(folder.clone(), prepared, position, seal, gpu, lock)
    }

    fn ready(
        folder: RunFolder,
        prepared: Prepared,
        position: Position,
        seal: Seal,
        gpu: Option<UsedGpu>,
        lock: Lock,
    ) -> Result<Self> {
        folder.write_roster(&prepared)?;
        let place = Place::of(&prepared.experiment)?;
        Ok(Self { folder, prepared, position, seal, place, gpu, has_checkpoints: true, _lock: lock })
    }

    /// The same run as one of several that are carried out side by side in this process.
    pub fn with_share(self, share: &Share) -> Result<Self> {
        Ok(Self { place: Place::of(&self.prepared.experiment)?.shared(&self.prepared.experiment, share)?, ..self })
    }

    /// The same run for the sake of what it measures alone: no model is kept, neither on the way nor at the end. What does not end is resumed from where it stood.
    pub fn without_checkpoints(self) -> Self {
        Self { has_checkpoints: false, ..self }
    }

    /// The same run in a process that does other things too, as one of Python: the memory of the process is then not taken for the run's.
    pub fn beside_other_work(self) -> Self {
        Self { place: self.place.not_alone(), ..self }
    }

    /// Where it is written.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// What is carried out.
    pub fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Carries it out to the end. If it is stopped or fails, all rounds that were over are kept.
    ///
    /// While it works it also obeys the [`ControlCommand`](super::ControlCommand) in its folder.
    pub fn train(&self, observer: &mut SimulationObserver<'_>, interrupted: Interrupted<'_>) -> Result<RunSummary> {
        self.folder.remove_command()?;
        let context =
            RunContext { gate: PauseGate::default(), progress: ProgressTracker::after(self.position.server.round), interrupted };
        let control = ControlThread { folder: &self.folder, gate: &context.gate, progress: &context.progress };
        let outcome = control.beside(|| self.work(observer, &context));
        let noted = self.folder.write_status(RunState::after(&outcome));
        // What went wrong first is what there is to tell.
        outcome.and_then(|summary| noted.map(|()| summary))
    }

    /// What it is about to do.
    pub fn start(&self) -> RunStart {
        let experiment = &self.prepared.experiment;
        let Experiment { method, plan, .. } = experiment;
        let clients = counted(self.prepared.splits.clients.len(), "client");
        let place = self.gpu.as_ref().map(|gpu| format!(", on {}", gpu.name)).unwrap_or_default();
        let lying = self
            .prepared
            .liars
            .as_ref()
            .map(|liars| format!(" of which {} are malicious ({})", liars.numbers().count(), liars.attack().kind.name()));
        let lying = lying.unwrap_or_default();
        let place = self.prepared.computed_by().map_or(place, |by| format!(", computed by {by}"));
        let pace = if plan.asynchronous.is_some() { ", asynchronous" } else { "" };
        // It was made once before anything began, so it can be made.
        let mechanism = self.prepared.mechanism().ok().flatten();
        let rounds = mechanism.as_ref().map_or(plan.rounds, Mechanism::rounds);
        RunStart {
            title: format!("{}, {clients}{lying}{pace}{place}", experiment.title()),
            round: self.position.server.round,
            rounds,
            privacy: mechanism.map(|mechanism| mechanism.summary(rounds)),
            headline: method.algorithm().default_view(),
            disk: Disk::of(&self.prepared),
            warm_bytes: self.prepared.warm_bytes(),
        }
    }

    fn work(&self, observer: &mut SimulationObserver<'_>, context: &RunContext<'_>) -> Result<RunSummary> {
        let Self { folder, prepared, position, .. } = self;
        let Experiment { method, training, plan, engine, .. } = &prepared.experiment;
        let seed = prepared.clients_seed();
        let clients = self.place.engine(prepared)?;
        let mut store = prepared.store(folder.clients(), clients.state_memory());
        store.restore(position.clients.clone());
        let stops = || context.gate.stops(&context.interrupted);
        let mut transport = InProcess::new(method.algorithm(), training, clients.engine(), &mut store, seed, &stops)
            .watched_by(&context.progress)
            .compressing(plan.compression.as_ref())
            .securing(plan.secure_rounds(method.algorithm(), prepared.splits.clients.len())?)
            .noisy(plan.has_noise_in_clear())
            .attacked_by(prepared.liars.as_ref());
        transport.resume_traffic(position.traffic);
        let mut server = position.server.clone();
        let mut checkpointer = Checkpointer::new(folder, &self.seal, engine, position);
        if !self.has_checkpoints {
            checkpointer = checkpointer.keeping_nothing();
        }
        let device_use = || clients.device_use();
        let recorder = Recorder::open(folder, server.round, &context.gate, &device_use, self.place.is_alone())?;
        let trained = self.federate(&mut server, &mut transport, recorder, &mut checkpointer, observer, context);
        let met = trained.and_then(|evaluation| Ok((evaluation, self.meet_unseen(&server, &mut transport)?)));
        let (evaluation, unseen) = match met {
            Ok(met) => met,
            Err(error) => return Err(self.keep_what_is_over(error, &mut checkpointer, &mut transport)),
        };
        checkpointer.finish(&server, &mut transport)?;
        let summary = RunSummary::of(prepared, evaluation, unseen, solves_of(&folder.rounds()?), &folder.timings()?);
        let summary = summary.ended_as(&folder.evaluations()?);
        folder.write_summary(&summary)?;
        checkpointer.keep_only_last(&mut transport)?;
        Ok(summary)
    }

    /// Keeps the rounds that are over, and says what there is to tell: why it stopped, unless stopping itself failed.
    fn keep_what_is_over(&self, error: Error, checkpointer: &mut Checkpointer<'_>, transport: &mut InProcess<'_>) -> Error {
        match (checkpointer.keep_settled(transport), error) {
            (Err(problem), Error::Interrupted) => problem,
            (_, error) => error,
        }
    }

    /// Trains to the end of the plan, and gives the last evaluation.
    fn federate(
        &self,
        server: &mut ServerState,
        transport: &mut InProcess<'_>,
        mut recorder: Recorder<'_>,
        checkpointer: &mut Checkpointer<'_>,
        observer: &mut SimulationObserver<'_>,
        context: &RunContext<'_>,
    ) -> Result<Evaluation> {
        let mut heads = HeadRecorder::open(&self.folder, &context.progress)?;
        let mut evaluations = LastEvaluation::default();
        let mut federation = self.server(transport);
        match federation.run(server, &mut [&mut recorder, &mut heads, &mut evaluations, observer, checkpointer])? {
            ControlFlow::Break(()) => Err(Error::Interrupted),
            // A run that was killed after its last round has the evaluation on disk, but rounded by its way through text.
            ControlFlow::Continue(()) => evaluations.0.map_or_else(|| federation.evaluation(server), Ok),
        }
    }

    fn server<'s, 't>(&'s self, transport: &'s mut InProcess<'t>) -> Server<'s, InProcess<'t>> {
        let Prepared { experiment: Experiment { method, .. }, plan, .. } = &self.prepared;
        let (clients, seed) = (self.prepared.splits.clients.len(), self.prepared.federation_seed());
        Server { algorithm: method.algorithm(), plan, clients, transport, seed }
    }

    /// Lets unseen clients make the shared part their own, and evaluates them.
    fn meet_unseen(&self, server: &ServerState, transport: &mut InProcess<'_>) -> Result<Option<Unseen>> {
        let unseen = self.prepared.unseen();
        let mut federation = self.server(transport);
        if self.position.stage == Stage::Training {
            federation.meet_unseen(server, &unseen)?;
        }
        federation.evaluate_unseen(server, &unseen)
    }
}

/// Begins a run in a folder that was made for it, and removes the folder if it does not begin.
fn or_nothing(folder: &RunFolder, begin: impl FnOnce() -> Result<Run>) -> Result<Run> {
    begin().inspect_err(|_| {
        let _ = fs::remove_dir_all(folder.path()); // There was no run in it, and we held its lock.
    })
}

/// Refuses data from memory for an experiment that reads other data.
fn require_source_of(source: &Source, dataset: &Dataset) -> Result<()> {
    let (wanted, found) = (source.name(), Source::of_arrays_like(&dataset.samples).name());
    if wanted == found {
        return Ok(());
    }
    Err(Error::invalid(
        format!("the arrays that are given are `{found}`, and the experiment learns from `{wanted}`"),
        format!("leave the name of the data set out, or choose `data={found}`"),
    ))
}
