//! An engine that trains all clients of a round in one call, phase by phase, and keeps their states in a form of its own, equals the one that works client by client to the bit.
mod common;
mod digits;

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{CLIENTS, Problem};
use digits::{Digits, brief};
use fedeq_core::{
    Algorithm, BalanceRho, ClientInfo, ClientState, Codec, Compression, Ditto, Engine, EngineState, Evaluated, EvaluationJob,
    FedAvg, FedEq, FineTune, FineTuning, HeadOn, HostWork, InProcess, Job, KeptState, LocalProblems, Method, Params,
    PersonalStart, Plan, Reply, Result, Sampling, Server, ServerStep, StartedEvaluation, ThetaStart, Training, Weights,
    Workspace,
};
use fedeq_data::Seed;
use fedeq_equilibrium::{StoredPrecision, WarmStart};

/// Carries out the first phase of all jobs, then the second phase of all, and so on, on one thread.
struct Lockstep<'a> {
    problems: &'a dyn LocalProblems,
    /// The most clients that were between two phases at the same time.
    most_at_once: AtomicUsize,
    /// States that came back in this engine's own form.
    recognised: AtomicUsize,
    /// Names of the phases carried out, to see that all kinds occur.
    phases: Mutex<BTreeSet<&'static str>>,
}

/// A client's state as this engine keeps it. A GPU's would be buffers on the device.
struct Mine(ClientState);

impl EngineState for Mine {
    fn to_host(&self) -> Result<ClientState> {
        // Who took part how often is not the engine's to know.
        Ok(ClientState { participations: 0, last_round: None, ..self.0.clone() })
    }

    fn is_finite(&self) -> bool {
        self.0.own.is_finite() && self.0.dual.is_finite()
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

impl<'a> Lockstep<'a> {
    fn new(problems: &'a dyn LocalProblems) -> Self {
        let count = AtomicUsize::default;
        Self { problems, most_at_once: count(), recognised: count(), phases: Mutex::default() }
    }

    /// Carries out the next phase of a job, if there is one left.
    fn advance(&self, client: usize, work: &mut HostWork<'_>) -> Result<bool> {
        let Some(ready) = work.next_phase()? else { return Ok(false) };
        self.phases.lock().expect("no panic").insert(ready.phase.name);
        let stats = ready.carry_out(self.problems.problem(client)?.as_ref())?;
        work.trained(stats);
        Ok(true)
    }

    fn end(&self, job: &Job<'_>, work: HostWork<'_>) -> Result<Reply> {
        let (update, mut state, done) = work.finish()?;
        state.memory.end_phases(); // What an engine keeps is its own business.
        let ClientInfo { participations, last_round, .. } = state.info();
        let info = ClientInfo { participations, last_round, has_second: state.second.is_some(), ..ClientInfo::default() };
        job.end(&update, KeptState::by_engine(info, Arc::new(Mine(state))), done)
    }

    fn evaluate_one(&self, job: &EvaluationJob<'_>) -> Result<Reply> {
        let StartedEvaluation { state, requests } = job.begin()?;
        if let Some(Mine(mine)) = state.held::<Mine>() {
            assert!((mine as &dyn Any).is::<ClientState>());
            self.recognised.fetch_add(1, Ordering::Relaxed);
        }
        let host = state.to_host()?.into_owned();
        let workspace = Workspace::new(job.received, Cow::Borrowed(&host));
        let problem = self.problems.problem(job.client)?;
        let scores = requests
            .iter()
            .map(|question| problem.score(&workspace.evaluate(&question.model)?, question.on, question.neighbours.as_ref()));
        let scores = scores.collect::<Result<Vec<_>>>()?;
        job.end(state, Evaluated::of(&host, job.received, scores))
    }
}

impl Engine for Lockstep<'_> {
    fn clients(&self) -> usize {
        self.problems.clients()
    }

    fn samples(&self, client: usize) -> usize {
        self.problems.samples(client)
    }

    fn steps(&self, client: usize, training: &Training) -> usize {
        self.problems.steps(client, training)
    }

    fn train(&self, jobs: &[Job<'_>]) -> Vec<Result<Reply>> {
        let mut all: Vec<Result<HostWork<'_>>> = jobs.iter().map(HostWork::begin).collect();
        loop {
            let mut trained = 0;
            for (job, work) in jobs.iter().zip(&mut all) {
                let Ok(under_way) = work else { continue };
                match self.advance(job.client, under_way) {
                    Ok(went_on) => trained += usize::from(went_on),
                    Err(error) => *work = Err(error),
                }
            }
            self.most_at_once.fetch_max(trained, Ordering::Relaxed);
            if trained == 0 {
                break;
            }
        }
        jobs.iter().zip(all).map(|(job, work)| self.end(job, work?)).collect()
    }

    fn evaluate(&self, jobs: &[EvaluationJob<'_>]) -> Vec<Result<Reply>> {
        jobs.iter().map(|job| self.evaluate_one(job)).collect()
    }

    fn gradient(&self, client: usize, weights: &Weights) -> Result<(f64, Params)> {
        self.problems.problem(client)?.gradient(weights)
    }
}

#[test]
fn all_methods_on_networks_give_the_same_bytes_in_lockstep_as_client_by_client() {
    let warm_start = WarmStart::BySample { capacity: Some(1 << 20), precision: StoredPrecision::Half, lasting: true };
    let digits = Digits::new("deq-resnet-xs", Training { warm_start, ..brief() });
    for name in Method::NAMES {
        let method = Method::named(name).expect("known");
        let lockstep = Lockstep::new(&digits);
        let outcome = digits.run_on(&lockstep, method.algorithm(), 2);
        assert!(outcome.bytes() == digits.run(method.algorithm(), 2, 2).bytes(), "{name}");
        assert!(lockstep.most_at_once.into_inner() >= 3, "{name}: a whole cohort at once");
        assert!(lockstep.recognised.into_inner() > 0, "{name}: states come back as the engine left them");
    }
}

/// Methods with their switches thrown, so that every kind of step is taken.
fn with_switches() -> Vec<(&'static str, Box<dyn Algorithm>)> {
    let consensus = FedEq { rho: 0.7, server_step: ServerStep::Consensus, ..FedEq::default() };
    let balance = Some(BalanceRho { ratio: 2.0, factor: 1.5 });
    vec![
        ("consensus", Box::new(consensus.clone())),
        ("own start", Box::new(FedEq { start: ThetaStart::Own, ..consensus.clone() })),
        ("consecutive start", Box::new(FedEq { start: ThetaStart::OwnIfConsecutive, head_on: HeadOn::Start, ..consensus })),
        ("balanced", Box::new(FedEq { rho: 0.7, balance, ..FedEq::default() })),
        ("trained start", Box::new(Ditto { start: PersonalStart::Trained, ..Ditto::default() })),
        ("tuning rounds", Box::new(FineTune { tuning: FineTuning::FromShare(0.5), ..FineTune::default() })),
        ("averaging", Box::new(FedAvg::default())),
    ]
}

/// Rounds, clients met afterwards and an evaluation, as bytes.
fn convex_run(problem: &Problem, engine: &dyn Engine, algorithm: &dyn Algorithm, compression: Option<Compression>) -> Vec<u8> {
    let training = Training { epochs: 5, personal_epochs: 5, ..common::thorough(0.05) };
    let mut server = problem.server(algorithm, 0.7);
    let dual = algorithm.initial_dual(&Problem::start(), Seed::new(3));
    let mut store = problem.store(move |_| dual.clone());
    let never = || false;
    let mut transport =
        InProcess::new(algorithm, &training, engine, &mut store, Seed::new(1), &never).compressing(compression.as_ref());
    // The last client is met after training.
    let plan = Plan {
        rounds: 6,
        sampling: Sampling { fraction: 0.5, ..Sampling::default() },
        evaluate_every: 2,
        measure_theory: true,
        compression,
        ..Plan::default()
    };
    let mut federation = Server { algorithm, plan: &plan, clients: CLIENTS - 1, transport: &mut transport, seed: Seed::new(2) };
    assert!(federation.run(&mut server, &mut []).expect("sound").is_continue());
    federation.meet_unseen(&server, &[CLIENTS - 1]).expect("sound");
    let unseen = federation.evaluate_unseen(&server, &[CLIENTS - 1]).expect("sound");
    let mut bytes = server.to_bytes().expect("writable");
    bytes.extend(format!("{unseen:?} {:?}", federation.evaluation(&server).expect("sound")).into_bytes());
    for client in 0..CLIENTS {
        bytes.extend(store.get(client).expect("in memory").to_bytes().expect("writable"));
    }
    bytes
}

#[test]
fn every_kind_of_step_gives_the_same_bytes_in_lockstep_as_client_by_client() {
    let problem = Problem::new(3);
    let mut phases = BTreeSet::new();
    let both = Compression { up: Some(Codec::TopK(0.3)), down: Some(Codec::Int8), ..Compression::default() };
    for (name, method) in with_switches() {
        for compression in [None, Some(both)] {
            let lockstep = Lockstep::new(&problem);
            let bytes = convex_run(&problem, &lockstep, method.as_ref(), compression);
            assert!(bytes == convex_run(&problem, &problem.engine(), method.as_ref(), compression), "{name}, {compression:?}");
            phases.extend(lockstep.phases.into_inner().expect("no panic"));
        }
    }
    assert_eq!(phases.into_iter().collect::<Vec<_>>(), ["body", "head", "personal", "tune"]);
}
