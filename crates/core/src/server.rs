//! The one loop of a federation.
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use fedeq_data::Seed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::acceptance::{Dropped, Replies};
use crate::aggregation::{Aggregation, Received};
use crate::algorithm::{Algorithm, Update};
use crate::asynchronous::{AsyncRound, Asynchronous};
use crate::client::shares_anything;
use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::message::{ClientTask, Reply, Request, Scores};
use crate::metrics::{Evaluation, Round, RoundResult};
use crate::privacy::{Mechanism, Privacy, PrivateRound};
use crate::sampler::Sampling;
use crate::secure::{SecureAggregation, SecureMean, SecureRounds};
use crate::server_optimiser::ServerOptimiser;
use crate::server_state::ServerState;
use crate::stats::{PhaseBytes, PhaseSeconds};
use crate::transport::Transport;

/// What a federation is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// Rounds of training.
    #[schemars(range(min = 1, max = MOST_ROUNDS))]
    pub rounds: u64,
    /// Who takes part.
    pub sampling: Sampling,
    /// Evaluate all clients after every so many rounds, and always after the last.
    pub evaluate_every: u64,
    /// Whether evaluations also measure the augmented Lagrangian and stationarity, at the cost of a pass over all training data.
    pub measure_theory: bool,
    /// Lets clients of different speeds work whenever they can, asynchronously; off if left out. A round is then as many
    /// updates as the sampling gives a synchronous round.
    pub asynchronous: Option<Asynchronous>,
    /// Sends differences by codecs, in fewer bytes; off if left out.
    pub compression: Option<Compression>,
    /// How the server aggregates what clients send.
    #[serde(skip_serializing_if = "Aggregation::is_default")]
    pub aggregation: Aggregation,
    /// Moves the server by an optimiser of its own instead of taking the mean of what clients send; off if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_optimiser: Option<ServerOptimiser>,
    /// Makes the server's models differentially private at the level of clients; off if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Privacy>,
    /// Lets the server learn only the sum of what clients send; off if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_aggregation: Option<SecureAggregation>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rounds: 150,
            sampling: Sampling::default(),
            evaluate_every: 10,
            measure_theory: false,
            asynchronous: None,
            compression: None,
            aggregation: Aggregation::default(),
            server_optimiser: None,
            privacy: None,
            secure_aggregation: None,
        }
    }
}

/// More rounds than this would never come to an end, and a list of them would fill the memory.
const MOST_ROUNDS: u64 = 1_000_000;

impl Plan {
    /// Refuses settings that mean nothing, or nothing to this method.
    pub fn validate(&self, algorithm: &dyn Algorithm) -> Result<()> {
        if !(1..=MOST_ROUNDS).contains(&self.rounds) {
            let problem = format!("`plan.rounds` is `{}`", self.rounds);
            return Err(Error::invalid(problem, "give at least 1 and at most 1,000,000"));
        }
        self.sampling.validate()?;
        self.validate_sending(algorithm)?;
        if let Some(compression) = &self.compression {
            compression.validate(self.sampling.replacement)?;
        }
        self.validate_aggregation()?;
        self.privacy.map_or(Ok(()), |privacy| privacy.validate(self, algorithm))?;
        self.validate_secure(algorithm)?;
        self.validate_optimiser(algorithm)?;
        let Some(asynchronous) = &self.asynchronous else { return Ok(()) };
        asynchronous.validate()?;
        if self.sampling.poisson {
            let problem = "`plan.sampling.poisson` draws cohorts of different sizes, and an asynchronous round has a fixed number of updates";
            return Err(Error::invalid(problem, "leave out `plan.asynchronous` or `plan.sampling.poisson`"));
        }
        if algorithm.takes_single_updates() {
            return Ok(());
        }
        Err(Error::invalid(
            "`plan.asynchronous` needs a server that takes single updates, which this method's does not",
            "leave it out, or set `method=fedeq` and `method.server_step=consensus`",
        ))
    }

    /// Refuses what is about messages where none are sent.
    fn validate_sending(&self, algorithm: &dyn Algorithm) -> Result<()> {
        let settings = [
            ("plan.compression", self.compression.is_some()),
            ("plan.aggregation", !self.aggregation.is_default()),
            ("plan.privacy", self.privacy.is_some()),
            ("plan.secure_aggregation", self.secure_aggregation.is_some()),
        ];
        match settings.into_iter().find(|(_, is_set)| *is_set && !shares_anything(algorithm)) {
            Some((setting, _)) => Err(Error::invalid(
                format!("`{setting}` does not go with a method that sends nothing"),
                "leave it out, or choose another method",
            )),
            None => Ok(()),
        }
    }

    fn validate_aggregation(&self) -> Result<()> {
        self.aggregation.validate()?;
        if self.sampling.poisson && self.aggregation.needs_cohort() {
            let problem =
                "`plan.aggregation` asks for a number of clients a round, and with `plan.sampling.poisson` there may be any";
            return Err(Error::invalid(
                problem,
                "leave out `plan.sampling.poisson`, or choose the rule `median` or `geometric-median`",
            ));
        }
        self.asynchronous.map_or(Ok(()), |_| self.aggregation.validate_single())
    }

    fn validate_secure(&self, algorithm: &dyn Algorithm) -> Result<()> {
        let Some(secure) = &self.secure_aggregation else { return Ok(()) };
        let is_compressed_up = self.compression.is_some_and(|compression| compression.up.is_some());
        secure.validate(&self.aggregation, self.asynchronous.is_some(), is_compressed_up, &self.sampling)?;
        secure.validate_weighting(algorithm.weighting())
    }

    fn validate_optimiser(&self, algorithm: &dyn Algorithm) -> Result<()> {
        let Some(optimiser) = &self.server_optimiser else { return Ok(()) };
        optimiser.validate()?;
        if self.asynchronous.is_some() {
            let problem = "`plan.server_optimiser` does not go with `plan.asynchronous`, which applies updates one at a time";
            return Err(Error::invalid(problem, "leave out one of them"));
        }
        if algorithm.averages() && shares_anything(algorithm) {
            return Ok(());
        }
        let problem =
            "`plan.server_optimiser` does not go with this method, whose server does not take the mean of what clients send";
        Err(Error::invalid(problem, "leave it out, or choose a method that averages, such as `method=fedavg`"))
    }

    /// Refuses what cannot be done with so many clients.
    pub fn validate_clients(&self, algorithm: &dyn Algorithm, clients: usize) -> Result<()> {
        let cohort = self.cohort_size(algorithm, clients)?;
        self.aggregation.validate_cohort(cohort)?;
        self.mechanism(algorithm, clients)?;
        self.secure_rounds(algorithm, clients).map(drop)
    }

    /// How rounds of so many clients are summed in secret; nothing where the server sees single updates.
    pub fn secure_rounds(&self, algorithm: &dyn Algorithm, clients: usize) -> Result<Option<SecureRounds>> {
        SecureRounds::of(self, algorithm, clients)
    }

    /// What makes the server's models private for so many clients; nothing where the plan does not.
    pub fn mechanism(&self, algorithm: &dyn Algorithm, clients: usize) -> Result<Option<Mechanism>> {
        Mechanism::of(self, algorithm, clients)
    }
}

/// Who takes part: the one place that knows.
impl Plan {
    /// How many of so many clients take part in a round.
    pub fn cohort_size(&self, algorithm: &dyn Algorithm, clients: usize) -> Result<usize> {
        if algorithm.takes_everybody() { Ok(clients) } else { self.sampling.cohort_size(clients) }
    }

    /// Who takes part in a round, in order of their numbers.
    pub fn cohort(&self, algorithm: &dyn Algorithm, clients: usize, seed: Seed, round: u64) -> Result<Vec<usize>> {
        if algorithm.takes_everybody() { Ok((0..clients).collect()) } else { self.sampling.draw(clients, seed, round) }
    }
}

/// What happens in a federation, as it happens.
#[derive(Debug)]
pub enum Event<'a> {
    /// A round is over.
    Round {
        /// What it was.
        round: &'a Round,
        /// Where the time went.
        seconds: &'a RoundSeconds,
    },
    /// All clients have been evaluated.
    Evaluation {
        /// What came out.
        evaluation: &'a Evaluation,
        /// How long it took.
        seconds: f64,
    },
    /// Clients were asked for something and their replies do not count. Told before it is decided whether enough others do.
    Dropped {
        /// Rounds that are over.
        round: u64,
        /// What they were asked to do.
        task: ClientTask,
        /// Who, and why.
        dropped: &'a [Dropped],
    },
    /// The server's state is complete and consistent: a good moment to keep it.
    Settled {
        /// The state.
        server: &'a ServerState,
        /// Whether nothing more will come.
        last: bool,
    },
}

/// Where the time of a round went. Local times are summed over clients, which may have worked side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundSeconds {
    /// From beginning to end.
    pub total: f64,
    /// Local work.
    pub local: PhaseSeconds,
    /// The most memory the local work of one client held.
    pub memory: PhaseBytes,
    /// The server's own step.
    pub server: f64,
    /// Writing, sending and reading messages.
    pub communicate: f64,
}

/// Watches a federation: receives what happens, and may ask to stop.
pub trait Observer<T: ?Sized> {
    /// Takes note of an event. The transport is there for what an observer must do between rounds, such as keeping states.
    fn observe(&mut self, event: &Event<'_>, transport: &mut T) -> Result<ControlFlow<()>>;
}

/// The server of a federation: a method, a plan and a way to the clients. What it knows is in its [`ServerState`].
pub struct Server<'a, T> {
    /// The method.
    pub algorithm: &'a dyn Algorithm,
    /// What to do.
    pub plan: &'a Plan,
    /// How many clients there are.
    pub clients: usize,
    /// The way to them.
    pub transport: &'a mut T,
    /// The server's randomness.
    pub seed: Seed,
}

impl<T: Transport> Server<'_, T> {
    /// Runs from where the server's state is to the end of the plan, or until an observer asks to stop.
    pub fn run(&mut self, server: &mut ServerState, observers: &mut [&mut dyn Observer<T>]) -> Result<ControlFlow<()>> {
        self.algorithm.validate()?;
        self.plan.validate(self.algorithm)?;
        self.plan.validate_clients(self.algorithm, self.clients)?;
        self.transport.acceptance().validate()?;
        let mechanism = self.mechanism(server)?;
        let secure = self.plan.secure_rounds(self.algorithm, self.clients)?;
        secure.as_ref().map_or(Ok(()), |secure| secure.validate_length(server.weights.params.count()))?;
        let rounds = mechanism.as_ref().map_or(self.plan.rounds, Mechanism::rounds);
        while server.round < rounds {
            let number = server.round + 1;
            let done = self
                .round(server, mechanism.as_ref(), secure.as_ref(), observers)
                .map_err(|error| error.diverged_at(|| format!("in round {number},")))?;
            let last = server.round == rounds;
            let evaluated =
                self.wind_up(server, last, observers).map_err(|error| error.diverged_at(|| format!("after round {number},")))?;
            let kept = self.tell(&Event::Settled { server, last }, observers)?;
            if done.is_break() || evaluated.is_break() || kept.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The randomness that privacy rests on: the transport's secret, where clients know the server's seed. What needs no secret comes from the seed.
    fn unknown(&self) -> Seed {
        self.transport.secret().filter(|_| self.plan.privacy.is_some()).unwrap_or(self.seed)
    }

    /// What makes the models private, where the plan does; refuses weights of which it would cover a part only.
    fn mechanism(&self, server: &ServerState) -> Result<Option<Mechanism>> {
        let has_statistics = !server.weights.statistics.is_empty();
        self.plan.privacy.map_or(Ok(()), |privacy| privacy.validate_network(has_statistics))?;
        self.plan.mechanism(self.algorithm, self.clients)
    }

    /// What follows a round: the end of training, and an evaluation where one is due.
    fn wind_up(&mut self, server: &ServerState, last: bool, observers: &mut [&mut dyn Observer<T>]) -> Result<ControlFlow<()>> {
        if last {
            self.ask(server, ClientTask::Finish, &self.everybody(), observers)?;
        }
        if last || self.evaluation_is_due(server.round) {
            self.evaluate(server, observers)
        } else {
            Ok(ControlFlow::Continue(()))
        }
    }

    fn round(
        &mut self,
        server: &mut ServerState,
        mechanism: Option<&Mechanism>,
        secure: Option<&SecureRounds>,
        observers: &mut [&mut dyn Observer<T>],
    ) -> Result<ControlFlow<()>> {
        let (begun, before, communicated) = (Instant::now(), self.transport.traffic(), self.transport.seconds());
        let rho = server.rho;
        let result = match &self.plan.asynchronous {
            Some(asynchronous) => self.asynchronous_round(self.plan, asynchronous)?.run(server, self.transport, observers)?,
            None => self.synchronous_round(server, mechanism, secure, observers)?,
        };
        server.ensure_finite()?;
        let stats = result.stats();
        let seconds = RoundSeconds {
            total: begun.elapsed().as_secs_f64(),
            local: stats.seconds,
            memory: stats.memory,
            server: result.server_seconds,
            communicate: self.transport.seconds() - communicated,
        };
        let round = result.report(server.round, rho, before, self.transport.traffic());
        server.round += 1;
        self.tell(&Event::Round { round: &round, seconds: &seconds }, observers)
    }

    /// A cohort is drawn, and the server waits for all of it.
    fn synchronous_round(
        &mut self,
        server: &mut ServerState,
        mechanism: Option<&Mechanism>,
        secure: Option<&SecureRounds>,
        observers: &mut [&mut dyn Observer<T>],
    ) -> Result<RoundResult> {
        let cohort = self.plan.cohort(self.algorithm, self.clients, self.unknown(), server.round)?;
        // A cohort that was drawn by coins may be empty.
        let replies = match cohort.as_slice() {
            [] => Replies::default(),
            cohort => self.ask(server, ClientTask::Train, cohort, observers)?,
        };
        let (Replies { counted, dropped }, summed) = self.summed(server, replies, observers)?;
        let (cohort, updates): (Vec<usize>, Vec<Update>) = counted.into_iter().filter_map(update_of).unzip();
        let received = Instant::now();
        // Of a round that is left out nothing became known.
        if !summed.as_ref().is_some_and(|summed| summed.survivors.is_empty()) {
            mechanism.map_or(Ok(()), |mechanism| mechanism.ensure_enough(updates.len()))?;
        }
        let seed = self.unknown().derive("privacy", [server.round]);
        let arrives_noisy = self.transport.secret().is_some() && mechanism.is_some_and(Mechanism::is_by_clients);
        let private = mechanism.map(|mechanism| PrivateRound { mechanism, seed, arrives_noisy });
        let mut privacy = mechanism.map(|mechanism| mechanism.spent(server.round + 1, server.clip));
        if let Some((privacy, noise)) = privacy.as_mut().zip(secure.and_then(|secure| secure.deviation(updates.len()))) {
            privacy.deviation = noise;
        }
        let aggregated = Received::new(&updates, &self.plan.aggregation, self.algorithm)
            .privately(private)
            .in_secret(secure)
            .summed(summed.as_ref());
        self.server_step(server, &aggregated)?;
        let (handled, bound, clipped) = (aggregated.handled().to_vec(), aggregated.bound(), aggregated.clipped());
        let server_seconds = received.elapsed().as_secs_f64();
        Ok(RoundResult { cohort, updates, handled, bound, clipped, arrivals: Vec::new(), dropped, privacy, server_seconds })
    }

    /// The sum of what clients elsewhere trained, where the server learns nothing else of it; only those count who are in it.
    fn summed(
        &mut self,
        server: &ServerState,
        mut replies: Replies,
        observers: &mut [&mut dyn Observer<T>],
    ) -> Result<(Replies, Option<SecureMean>)> {
        if self.plan.secure_aggregation.is_none() || replies.counted.is_empty() {
            return Ok((replies, None));
        }
        let ServerState { weights, round, rho, .. } = server.clone();
        let request = Request { task: ClientTask::Aggregate, round, rounds: self.plan.rounds, rho, weights };
        let clients: Vec<usize> = replies.counted.iter().map(|(client, _)| *client).collect();
        let Some(mean) = self.transport.secure_mean(&request, &clients)? else { return Ok((replies, None)) };
        if !mean.dropped.is_empty() {
            let event = Event::Dropped { round, task: ClientTask::Aggregate, dropped: &mean.dropped };
            // Whoever wants to stop is asked again when the round is over.
            let _ = self.tell(&event, observers)?;
        }
        let is_in = |client: &usize| mean.survivors.contains(client);
        replies.dropped.extend(mean.dropped.iter().filter(|dropped| !is_in(&dropped.client)).cloned());
        replies.counted.retain(|(client, _)| is_in(client));
        Ok((replies, Some(mean)))
    }

    /// The method's step, or the optimiser's in the same direction.
    fn server_step(&self, server: &mut ServerState, received: &Received<'_>) -> Result<()> {
        let before = server.weights.params.clone();
        self.algorithm.server_update(server, received)?;
        if let Some(optimiser) = self.plan.server_optimiser.filter(|_| !received.is_nothing()) {
            optimiser.step(server, &before);
        }
        Ok(())
    }

    /// Nobody waits: so many updates are applied as they arrive.
    fn asynchronous_round<'s>(&self, plan: &'s Plan, settings: &'s Asynchronous) -> Result<AsyncRound<'s>>
    where
        Self: 's,
    {
        let updates = plan.sampling.cohort_size(self.clients)?;
        Ok(AsyncRound {
            settings,
            algorithm: self.algorithm,
            aggregation: &plan.aggregation,
            updates,
            total: plan.rounds.saturating_mul(updates as u64),
            seed: self.seed,
        })
    }

    /// Evaluates all clients.
    pub fn evaluation(&mut self, server: &ServerState) -> Result<Evaluation> {
        self.evaluation_before(server, &mut [])
    }

    fn evaluation_before(&mut self, server: &ServerState, observers: &mut [&mut dyn Observer<T>]) -> Result<Evaluation> {
        let task = if self.plan.measure_theory { ClientTask::Measure } else { ClientTask::Evaluate };
        let everybody = self.everybody();
        let replies = self.ask(server, task, &everybody, observers)?;
        Ok(self.evaluated(server.round, &everybody, replies))
    }

    /// The scores of some clients, put together.
    pub(crate) fn evaluated(&self, round: u64, asked: &[usize], Replies { counted, dropped }: Replies) -> Evaluation {
        let mut scores: BTreeMap<usize, Scores> = counted.into_iter().filter_map(scores_of).collect();
        let in_order: Vec<Option<Scores>> = asked.iter().map(|client| scores.remove(client)).collect();
        Evaluation::of(round, &in_order, dropped, self.transport.traffic())
    }

    fn evaluate(&mut self, server: &ServerState, observers: &mut [&mut dyn Observer<T>]) -> Result<ControlFlow<()>> {
        let begun = Instant::now();
        let evaluation = self.evaluation_before(server, observers)?;
        let seconds = begun.elapsed().as_secs_f64();
        self.tell(&Event::Evaluation { evaluation: &evaluation, seconds }, observers)
    }

    fn evaluation_is_due(&self, round: u64) -> bool {
        self.plan.evaluate_every > 0 && round.is_multiple_of(self.plan.evaluate_every)
    }

    fn everybody(&self) -> Vec<usize> {
        (0..self.clients).collect()
    }

    /// Asks some clients to do something, and gives the replies that count; fails where these are too few.
    pub(crate) fn ask(
        &mut self,
        server: &ServerState,
        task: ClientTask,
        cohort: &[usize],
        observers: &mut [&mut dyn Observer<T>],
    ) -> Result<Replies> {
        let ServerState { weights, round, rho, .. } = server.clone();
        let request = Request { task, round, rounds: self.plan.rounds, rho, weights };
        let requests: Vec<(usize, &Request)> = cohort.iter().map(|&client| (client, &request)).collect();
        let replies = exchange(&requests, self.algorithm, server.round, self.transport, observers)?;
        let what = format!("replied when asked to {} {}", task.name(), place(task, server.round));
        self.transport.acceptance().require_quorum(&what, replies.counted.len(), &replies.dropped)?;
        Ok(replies)
    }

    fn tell(&mut self, event: &Event<'_>, observers: &mut [&mut dyn Observer<T>]) -> Result<ControlFlow<()>> {
        tell(event, self.transport, observers)
    }
}

fn place(task: ClientTask, round: u64) -> String {
    if task == ClientTask::Train { format!("in round {}", round + 1) } else { format!("after round {round}") }
}

/// Sends requests, sorts what comes back into what counts and what does not, and tells of the latter.
pub(crate) fn exchange<T: Transport>(
    requests: &[(usize, &Request)],
    algorithm: &dyn Algorithm,
    round: u64,
    transport: &mut T,
    observers: &mut [&mut dyn Observer<T>],
) -> Result<Replies> {
    let received = transport.exchange(requests)?;
    let replies = transport.acceptance().sort(requests, received, algorithm);
    if let (false, Some((_, first))) = (replies.dropped.is_empty(), requests.first()) {
        // Whoever wants to stop is asked again when the round is over.
        let _ = tell(&Event::Dropped { round, task: first.task, dropped: &replies.dropped }, transport, observers)?;
    }
    Ok(replies)
}

fn tell<T>(event: &Event<'_>, transport: &mut T, observers: &mut [&mut dyn Observer<T>]) -> Result<ControlFlow<()>> {
    let mut flow = ControlFlow::Continue(());
    for observer in observers {
        if observer.observe(event, transport)?.is_break() {
            flow = ControlFlow::Break(());
        }
    }
    Ok(flow)
}

/// The update in a reply that counts: one to a request to train is nothing else.
pub(crate) fn update_of((client, reply): (usize, Reply)) -> Option<(usize, Update)> {
    match reply {
        Reply::Update(update) => Some((client, update)),
        Reply::Scores(_) | Reply::Done(_) | Reply::Aggregation(_) => None,
    }
}

/// The scores in a reply that counts, alike.
fn scores_of((client, reply): (usize, Reply)) -> Option<(usize, Scores)> {
    match reply {
        Reply::Scores(scores) => Some((client, *scores)),
        Reply::Update(_) | Reply::Done(_) | Reply::Aggregation(_) => None,
    }
}
