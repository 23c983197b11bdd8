//! A round's training: jobs that are alike, cohort by cohort.
use std::sync::Arc;

use fedeq_core::{ClientInfo, Done, Error, Job, KeptState, LocalUpdate, Reply, Result, Started, Step, TrainStats, Weights};
use fedeq_models::Part;
use rayon::prelude::*;

use super::Clients;
use super::cohort::{alike, most_lanes, pack};
use super::expression::Slots;
use super::lanes::{Lanes, Table};
use super::parts::{Parts, Section};
use super::phase::Begun;
use super::runner::Runner;
use super::schedule::Trainee;
use super::state::{DeviceState, Home};
use super::stored::Stored;
use super::warm::{Directory, Memory};
use super::workshop::Workshop;
use crate::data::DeviceData;

/// A job that has begun, with its numbers on the device.
pub(crate) struct Member<'a> {
    job: &'a Job<'a>,
    info: ClientInfo,
    update: LocalUpdate,
    received: Parts<Arc<Stored>>,
    state: DeviceState,
}

impl<'a> Member<'a> {
    pub(crate) fn new(home: &Arc<Home>, job: &'a Job<'a>, started: Started) -> Result<Self> {
        let Started { state, update } = started;
        let (info, received) = (state.info(), home.upload(job.received)?);
        Ok(Self { job, info, update, received, state: home.state(&state)? })
    }

    /// Whether two do the same with models of the same parts.
    fn is_like(&self, other: &Self) -> bool {
        let parts = |member: &Self| {
            let DeviceState { own, dual, second, .. } = &member.state;
            [Some(own), Some(dual), second.as_ref(), Some(&member.received)].map(|parts| parts.map(Parts::present))
        };
        self.update == other.update && parts(self) == parts(other)
    }
}

/// The same part of something of every lane.
pub(crate) fn tables<'p, T: 'p>(lanes: &'p [T], of: impl Fn(&'p T) -> &'p Parts<Arc<Stored>>) -> Parts<Table> {
    let mut tables = Parts::default();
    let Some(first) = lanes.first() else { return tables };
    for (section, _) in of(first).iter() {
        let each = lanes.iter().filter_map(|lane| of(lane).get(section).cloned()).collect();
        tables.set(section, Some(Table::of(each)));
    }
    tables
}

impl Clients {
    /// Carries out jobs that have begun; what came of each, in their order.
    pub(crate) fn train_all(&self, shop: &mut Workshop, home: &Arc<Home>, members: Vec<Member<'_>>) -> Vec<Result<Reply>> {
        let same_data = |a: &Member<'_>, b: &Member<'_>| self.data_of(a.job.client) == self.data_of(b.job.client);
        let groups = alike(&members, |a, b| a.is_like(b) && same_data(a, b));
        let mut members: Vec<Option<Member<'_>>> = members.into_iter().map(Some).collect();
        let mut replies: Vec<Option<Result<Reply>>> = members.iter().map(|_| None).collect();
        for group in groups {
            let most = match self.lanes_for(shop, home, &members, &group) {
                Ok(most) => most,
                Err(error) => {
                    group.iter().for_each(|&at| replies[at] = Some(Err(repeated(&error))));
                    continue;
                }
            };
            let batches = |at: usize| members[at].as_ref().map_or(0, |member| self.samples(member.job.client));
            for cohort in pack(&group, batches, most) {
                let lanes: Vec<Member<'_>> = cohort.iter().filter_map(|&at| members[at].take()).collect();
                for (at, reply) in cohort.iter().zip(self.train_cohort(shop, home, lanes)) {
                    replies[*at] = Some(reply);
                }
            }
        }
        replies.into_iter().map(|reply| reply.expect("every job is in a cohort")).collect()
    }

    /// How many of a group fit into the memory side by side.
    fn lanes_for(&self, shop: &mut Workshop, home: &Arc<Home>, members: &[Option<Member<'_>>], group: &[usize]) -> Result<usize> {
        let some = group.iter().find_map(|&at| members[at].as_ref()).expect("groups are not empty");
        let data = self.data(some.job.client);
        let longest = group.iter().filter_map(|&at| members[at].as_ref()).map(|member| self.samples(member.job.client)).max();
        let slots = self.slots(home, longest.unwrap_or(0), data);
        let wanted = group.len().min(self.most_lanes);
        let purposes = |lanes: usize| some.update.phases().map(move |phase| (self.purpose_of(phase, lanes, data), phase));
        // Models at the start, after each phase, and of the state to be.
        let copies = (3 + some.update.steps.len()) as u64;
        let bytes = |lanes: usize| {
            let runners: u64 =
                purposes(lanes).map(|(purpose, phase)| Runner::bytes(home, purpose, phase.proximal.is_some())).sum();
            let warm = Memory::bytes(home.warm_start, lanes, slots, self.each(home, data));
            runners + warm + lanes as u64 * copies * 4 * home.layout.stride() as u64
        };
        let lanes = self.fit(shop, home, wanted, bytes)?;
        let kept: Vec<_> = purposes(lanes).map(|(purpose, _)| purpose).collect();
        if shop.bytes_but(&kept) + bytes(lanes) > self.room(home) {
            shop.keep_only(&kept);
        }
        Ok(lanes)
    }

    /// How many lanes fit; states of clients make room where not even one does.
    pub(crate) fn fit(
        &self,
        shop: &mut Workshop,
        home: &Arc<Home>,
        wanted: usize,
        bytes: impl Fn(usize) -> u64,
    ) -> Result<usize> {
        let lanes = most_lanes(wanted, self.room(home), &bytes);
        if bytes(lanes) > self.room(home) {
            shop.keep_only(&[]);
            home.storage.make_room(self.budget.saturating_sub(self.data_bytes() + bytes(lanes)), None)?;
        }
        Ok(lanes)
    }

    fn slots(&self, home: &Home, samples: usize, data: &DeviceData) -> usize {
        match self.each(home, data) {
            0 => 0,
            each => Directory::slots(home.warm_start, samples, self.most_trained, each),
        }
    }

    /// Numbers of a fixed point; 0 where there is none.
    fn each(&self, home: &Home, data: &DeviceData) -> usize {
        let state = home.graph.layers.iter().find_map(|layer| match layer {
            fedeq_models::graph::Layer::Equilibrium { y, .. } => Some(home.graph.shape(*y)),
            _ => None,
        });
        state.map_or(0, |shape| shape.count(data.length()))
    }

    fn train_cohort(&self, shop: &mut Workshop, home: &Arc<Home>, lanes: Vec<Member<'_>>) -> Vec<Result<Reply>> {
        match self.carry_out(shop, home, &lanes) {
            Ok(outcomes) => {
                let ended = |(member, outcome): (Member<'_>, Result<(KeptState, Done)>)| {
                    let (state, done) = outcome?;
                    member.job.end(&member.update, state, done)
                };
                lanes.into_iter().zip(outcomes).map(ended).collect()
            }
            Err(error) => lanes.iter().map(|_| Err(repeated(&error))).collect(),
        }
    }

    /// Carries out the steps of a cohort's update; of every lane, its new state and what came of it.
    fn carry_out(&self, shop: &mut Workshop, home: &Arc<Home>, lanes: &[Member<'_>]) -> Result<Vec<Result<(KeptState, Done)>>> {
        let arithmetic = Lanes { device: &home.device, layout: &home.layout, count: lanes.len() };
        let second =
            lanes[0].state.second.is_some().then(|| tables(lanes, |lane| lane.state.second.as_ref().unwrap_or(&lane.state.own)));
        let [received, own, dual] =
            [tables(lanes, |lane| &lane.received), tables(lanes, |lane| &lane.state.own), tables(lanes, |lane| &lane.state.dual)];
        let mut slots = Slots::new(&home.graph, received, own, dual, second);
        let mut stats: Vec<Result<TrainStats>> = lanes.iter().map(|_| Ok(TrainStats::default())).collect();
        let mut memory = self.warm_memory(shop, home, lanes)?;
        for step in &lanes[0].update.steps {
            match step {
                Step::Assign { slot, value } => {
                    let value = slots.value(&arithmetic, value)?;
                    slots.assign(*slot, value);
                }
                Step::Train(phase) => {
                    let offset = match &phase.proximal {
                        Some(term) => Some((term, slots.offset(&arithmetic, term)?)),
                        None => None,
                    };
                    let trainee = |lane: &Member<'_>| (self.shard(lane.job.client), phase.seed(lane.job.seed));
                    let trainees = lanes.iter().map(trainee).map(|(shard, seed)| Trainee { shard, seed }).collect();
                    let data = self.data(lanes[0].job.client);
                    let begun = Begun { phase, trainees, data, offset };
                    let ended = self.train_phase(shop, home, &begun, slots.trained(phase.slot)?, &mut memory)?;
                    stats = stats.into_iter().zip(ended).map(|(before, now)| Ok(before?.then(now?))).collect();
                    if stats.iter().all(Result::is_err) {
                        return Ok(stats.into_iter().filter_map(Result::err).map(Err).collect());
                    }
                }
            }
        }
        let sent = slots.value(&arithmetic, &lanes[0].update.sent)?;
        let sent = self.download(home, arithmetic, &sent, &slots.received, lanes)?;
        let gaps = gaps(arithmetic, &slots.own, &slots.received)?;
        let states = self.states(home, arithmetic, &slots, memory.as_ref(), lanes)?;
        shop.put_memory_back(memory);
        let done = stats.into_iter().zip(sent).zip(gaps).zip(states);
        Ok(done.map(|(((stats, sent), gap), state)| Ok((state, Done { stats: stats?, sent, gap }))).collect())
    }

    /// Memory for warm starts, with what clients kept in it.
    fn warm_memory(&self, shop: &mut Workshop, home: &Home, lanes: &[Member<'_>]) -> Result<Option<Memory>> {
        if lanes[0].update.phases().next().is_none() {
            return Ok(None);
        }
        let data = self.data(lanes[0].job.client);
        let longest = lanes.iter().map(|lane| self.samples(lane.job.client)).max().unwrap_or(0);
        let (slots, each) = (self.slots(home, longest, data), self.each(home, data));
        let mut memory = shop.memory(home, home.warm_start, lanes.len(), slots, each)?;
        if let Some(memory) = &mut memory {
            for (lane, member) in lanes.iter().enumerate() {
                if let Some(kept) = &member.state.warm {
                    memory.begin(&home.device, lane, kept)?;
                }
            }
        }
        Ok(memory)
    }

    /// The states of all lanes after the work.
    fn states(
        &self,
        home: &Arc<Home>,
        arithmetic: Lanes<'_>,
        slots: &Slots<'_, Table>,
        memory: Option<&Memory>,
        lanes: &[Member<'_>],
    ) -> Result<Vec<KeptState>> {
        let own = kept(home, arithmetic, &slots.own)?;
        let dual = kept(home, arithmetic, &slots.dual)?;
        let second = slots.second.as_ref().map(|second| kept(home, arithmetic, second)).transpose()?;
        let dual_norms = self.dual_norms(arithmetic, &slots.dual, lanes)?;
        let lasting = matches!(home.warm_start, fedeq_equilibrium::WarmStart::BySample { lasting: true, .. });
        let state = |(lane, member): (usize, &Member<'_>)| {
            let warm = match memory.filter(|_| lasting) {
                Some(memory) => memory.keep(&home.device, lane)?,
                None => member.state.warm.clone().filter(|_| lasting),
            };
            let state = DeviceState {
                home: Arc::clone(home),
                own: own[lane].clone(),
                dual: dual[lane].clone(),
                second: second.as_ref().map(|second| second[lane].clone()),
                dual_norm: dual_norms[lane],
                warm,
            };
            let info = ClientInfo { has_second: state.second.is_some(), ..member.info };
            Ok(KeptState::by_engine(info, Arc::new(state)))
        };
        lanes.iter().enumerate().map(state).collect()
    }

    fn dual_norms(&self, arithmetic: Lanes<'_>, dual: &Parts<Table>, lanes: &[Member<'_>]) -> Result<Vec<f64>> {
        let before = tables(lanes, |lane| &lane.state.dual);
        let same = |section: Section| match (dual.get(section), before.get(section)) {
            (Some(now), Some(before)) => now.is(before),
            (now, before) => now.is_none() && before.is_none(),
        };
        if Section::PARAMETERS.into_iter().all(same) {
            return Ok(lanes.iter().map(|lane| lane.state.dual_norm).collect());
        }
        norms(arithmetic, dual)
    }

    /// What is sent, on the host: as it was received where it is that, else from the device.
    fn download(
        &self,
        home: &Arc<Home>,
        arithmetic: Lanes<'_>,
        sent: &Parts<Table>,
        received: &Parts<Table>,
        lanes: &[Member<'_>],
    ) -> Result<Vec<Weights>> {
        let mut each = vec![Parts::default(); lanes.len()];
        let mut weights = vec![Weights::default(); lanes.len()];
        for (section, table) in sent.iter() {
            if received.get(section).is_some_and(|received| received.is(table)) {
                weights.iter_mut().zip(lanes).for_each(|(weights, lane)| take_part(weights, section, lane.job.received));
                continue;
            }
            let numbers = on_host(home, arithmetic, section, table)?;
            each.iter_mut().zip(numbers).for_each(|(parts, numbers): (&mut Parts<_>, _)| parts.set(section, Some(numbers)));
        }
        let named: Vec<Weights> = each.par_iter().map(|parts| home.named(parts)).collect();
        Ok(weights.into_iter().zip(named).map(|(weights, named)| weights.with(&named)).collect())
    }
}

/// A section of host weights.
fn take_part(weights: &mut Weights, section: Section, from: &Weights) {
    match section.part() {
        Some(part) => weights.params.overwrite(&from.params.filter(|path| Part::of(path) == part)),
        None => weights.statistics = from.statistics.clone(),
    }
}

/// The numbers of a table, lane by lane.
fn on_host(home: &Home, arithmetic: Lanes<'_>, section: Section, table: &Table) -> Result<Vec<Arc<Vec<f32>>>> {
    match table {
        Table::Each(each) => each.iter().map(|stored| stored.on_host()).collect(),
        Table::Same(stored) => Ok(vec![stored.on_host()?; arithmetic.count]),
        Table::Made(made) => {
            let mut all = vec![0.0; made.len()];
            made.read(&home.device, 0, &mut all)?;
            let len = section.range(&home.layout).len().max(1);
            Ok(all.chunks_exact(len).map(|lane| Arc::new(lane.to_vec())).collect())
        }
    }
}

/// What each lane keeps of a model.
fn kept(home: &Arc<Home>, arithmetic: Lanes<'_>, parts: &Parts<Table>) -> Result<Vec<Parts<Arc<Stored>>>> {
    let mut lanes = vec![Parts::default(); arithmetic.count];
    for (section, table) in parts.iter() {
        match table {
            Table::Each(each) => {
                lanes.iter_mut().zip(each.iter()).for_each(|(lane, stored)| lane.set(section, Some(Arc::clone(stored))))
            }
            Table::Same(stored) => lanes.iter_mut().for_each(|lane| lane.set(section, Some(Arc::clone(stored)))),
            Table::Made(made) => {
                let finite = arithmetic.are_finite(section, made)?;
                for (at, lane) in lanes.iter_mut().enumerate() {
                    let numbers = arithmetic.lane(section, made, at)?;
                    lane.set(section, Some(home.storage.keep(numbers, finite[at])?));
                }
            }
        }
    }
    Ok(lanes)
}

/// `||theta_i - theta||` of every lane; 0 where nothing is shared.
pub(crate) fn gaps(lanes: Lanes<'_>, own: &Parts<Table>, received: &Parts<Table>) -> Result<Vec<f64>> {
    match (own.get(Section::Shared), received.get(Section::Shared)) {
        (Some(own), Some(received)) => lanes.norms(Section::Shared, own, Some(received)),
        _ => Ok(vec![0.0; lanes.count]),
    }
}

/// The norm of all parameters of every lane.
fn norms(lanes: Lanes<'_>, parts: &Parts<Table>) -> Result<Vec<f64>> {
    let mut squares = vec![0.0; lanes.count];
    for (section, table) in parts.iter().filter(|(section, _)| *section != Section::Statistics) {
        let norms = lanes.norms(section, table, None)?;
        squares.iter_mut().zip(norms).for_each(|(sum, norm): (&mut f64, f64)| *sum += norm * norm);
    }
    Ok(squares.into_iter().map(f64::sqrt).collect())
}

/// The same failure for another client.
pub(crate) fn repeated(error: &Error) -> Error {
    match error {
        Error::Invalid { problem, remedy } => Error::invalid(problem, remedy),
        Error::OutOfMemory { problem, remedy } => Error::out_of_memory(problem, remedy),
        Error::Message { problem } => Error::message(problem),
        other => Error::invalid(other.to_string(), other.hint()),
    }
}
