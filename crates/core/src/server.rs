//! The one loop of a federation.
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use fedeq_data::Seed;

use crate::acceptance::Replies;
use crate::aggregation::Received;
use crate::algorithm::{Algorithm, Update};
use crate::asynchronous::{AsyncRound, Asynchronous};
use crate::error::Result;
use crate::message::{ClientTask, Reply, Request, Scores};
use crate::metrics::{Evaluation, RoundResult};
use crate::observer::{Event, Observer, RoundSeconds};
use crate::patience::ValidationRecord;
use crate::plan::Plan;
use crate::privacy::{Mechanism, PrivateRound};
use crate::secure::{SecureMean, SecureRounds};
use crate::server_state::ServerState;
use crate::transport::Transport;

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
        while server.round < server.last_round(rounds) {
            let number = server.round + 1;
            let done = self
                .round(server, mechanism.as_ref(), secure.as_ref(), observers)
                .map_err(|error| error.diverged_at(|| format!("in round {number},")))?;
            let last = server.round == server.last_round(rounds);
            let evaluated = self
                .wind_up(server, (!last).then_some(rounds), observers)
                .map_err(|error| error.diverged_at(|| format!("after round {number},")))?;
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

    /// What follows a round: the end of training, unless there are to be so many rounds and this was not the last, and an evaluation where one is due.
    fn wind_up(
        &mut self,
        server: &mut ServerState,
        planned: Option<u64>,
        observers: &mut [&mut dyn Observer<T>],
    ) -> Result<ControlFlow<()>> {
        if planned.is_none() {
            self.ask(server, ClientTask::Finish, &self.all_clients(), observers)?;
        }
        if planned.is_none() || self.evaluation_is_due(server.round) {
            self.evaluate(server, planned, observers)
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
        // A cohort of Poisson sampling may be empty.
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
        let clients = self.all_clients();
        let replies = self.ask(server, task, &clients, observers)?;
        Ok(self.evaluated(server.round, &clients, replies))
    }

    /// The scores of some clients, put together.
    pub(crate) fn evaluated(&self, round: u64, asked: &[usize], Replies { counted, dropped }: Replies) -> Evaluation {
        let mut scores: BTreeMap<usize, Scores> = counted.into_iter().filter_map(scores_of).collect();
        let in_order: Vec<Option<Scores>> = asked.iter().map(|client| scores.remove(client)).collect();
        Evaluation::of(round, &in_order, dropped, self.transport.traffic())
    }

    /// Evaluates, and decides whether that was the last time but one, where there are to be so many rounds.
    fn evaluate(
        &mut self,
        server: &mut ServerState,
        planned: Option<u64>,
        observers: &mut [&mut dyn Observer<T>],
    ) -> Result<ControlFlow<()>> {
        let begun = Instant::now();
        let mut evaluation = self.evaluation_before(server, observers)?;
        let seconds = begun.elapsed().as_secs_f64();
        if let (Some(patience), Some(planned)) = (self.plan.patience, planned) {
            server.validation = ValidationRecord::after(server.validation, &evaluation);
            let round = server.round;
            evaluation.stood_still = server.validation.as_mut().and_then(|record| record.decide(patience, round, planned));
        }
        self.tell(&Event::Evaluation { evaluation: &evaluation, seconds }, observers)
    }

    fn evaluation_is_due(&self, round: u64) -> bool {
        self.plan.evaluate_every > 0 && round.is_multiple_of(self.plan.evaluate_every)
    }

    fn all_clients(&self) -> Vec<usize> {
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
