//! A round's training: jobs that are alike, cohort by cohort.
use std::sync::Arc;

use fedeq_core::{
    ClientInfo, Done, Error, Expression, Job, KeptState, LocalUpdate, MixingStep, Phase, Reply, Result, Started, Step, Steps,
    TrainStats, UpdateStats, Weights,
};
use fedeq_data::shard::Shard;
use fedeq_models::Part;

use super::Clients;
use super::cohort::{alike, most_lanes, pack};
use super::expression::{Slots, alike_updates};
use super::lanes::{Lanes, Table};
use super::optimiser::Extras;
use super::parts::{Parts, Section};
use super::phase::Begun;
use super::runner::Wanted;
use super::schedule::Trainee;
use super::sent;
use super::state::{DeviceState, Holding, Home};
use super::stored::Stored;
use super::warm::{Directory, Memory};
use super::workshop::Workshop;
use crate::data::DeviceData;

/// Copies of a model that the steps of an update hold at most, beside those it begins and ends with.
const MOST_COPIES: usize = 9;

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

    /// Whether two do the same, but for numbers, with models of the same parts.
    fn is_like(&self, other: &Self) -> bool {
        let parts = |member: &Self| {
            let DeviceState { own, dual, second, .. } = &member.state;
            [Some(own), Some(dual), second.as_ref(), Some(&member.received)].map(|parts| parts.map(Parts::present))
        };
        alike_updates(&self.update, &other.update) && parts(self) == parts(other)
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
        // Models at the start, after each phase, and of the state to be. What a step replaces is given back, so that many steps need no more than some.
        let copies = (3 + some.update.written().count().min(MOST_COPIES)) as u64;
        let each = self.each(home, data);
        let embedded = some.update.phases().map(|phase| self.embedded_numbers(home, phase, longest.unwrap_or(0), data));
        let embedded = embedded.max().unwrap_or(0) as u64;
        let mut bytes = |shop: &mut Workshop, lanes: usize| {
            let shared = some.update.phases().map(|phase| {
                let purpose = self.purpose_of(phase, lanes, data);
                shop.wants(home, purpose, Extras::of(phase))
            });
            let mut shared = shared.fold(Wanted::default(), Wanted::or);
            if embedded > 0 {
                shared = shared.or(shop.wants(home, self.examination(lanes, data), Extras::default()));
            }
            let warm = Memory::bytes(home.warm_start, lanes, slots, each);
            shared.bytes() + warm + 4 * lanes as u64 * (copies * home.layout.stride() as u64 + embedded)
        };
        self.fit(shop, home, wanted, &mut bytes)
    }

    /// How many lanes fit. Clients' states make room where not even one does.
    pub(crate) fn fit(
        &self,
        shop: &mut Workshop,
        home: &Arc<Home>,
        wanted: usize,
        bytes: &mut dyn FnMut(&mut Workshop, usize) -> u64,
    ) -> Result<usize> {
        let room = self.budget.saturating_sub(self.data_bytes() + home.storage.bytes());
        let lanes = most_lanes(wanted, room, |lanes| bytes(shop, lanes));
        let needed = bytes(shop, lanes);
        if needed > room {
            home.storage.make_room(self.budget.saturating_sub(self.data_bytes() + needed), None)?;
        }
        if needed < shop.bytes() && shop.bytes() > room {
            shop.clear(); // What was kept for larger cohorts is too much now.
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
        let mut stats: Vec<Result<UpdateStats>> = lanes.iter().map(|_| Ok(UpdateStats::default())).collect();
        let mut mixing: Vec<Option<f64>> = lanes.iter().map(|lane| lane.info.mixing).collect();
        let mut memory = self.warm_memory(shop, home, lanes)?;
        let mut updates: Vec<Steps> = lanes.iter().map(|lane| lane.update.carried_out()).collect();
        // Lanes are alike, so that all of them have a next step, or none has.
        while let Some(next) = updates.iter_mut().map(Iterator::next).collect::<Option<Vec<Step>>>() {
            let steps = || next.iter();
            match &next[0] {
                Step::Assign { slot, .. } => {
                    let value = slots.value(&arithmetic, &steps().filter_map(assigned).collect::<Vec<_>>())?;
                    slots.assign(*slot, value);
                }
                Step::Mix(_) => mixing = mixings(arithmetic, &slots, &steps().filter_map(mixed).collect::<Vec<_>>())?,
                Step::ForEachBatch(_) => unreachable!("it is carried out step by step"),
                Step::Train(phase) => {
                    let phases = steps().filter_map(trained).collect();
                    let ended = self.carry_out_phase(shop, home, (lanes, phases), &mut slots, &mut memory)?;
                    stats = stats.into_iter().zip(ended).map(|(before, now)| added(before?, phase, now?)).collect();
                    if stats.iter().all(Result::is_err) {
                        return Ok(stats.into_iter().filter_map(Result::err).map(Err).collect());
                    }
                }
            }
        }
        let sent = slots.value(&arithmetic, &lanes.iter().map(|lane| &lane.update.sent).collect::<Vec<_>>())?;
        let like: Vec<&Weights> = lanes.iter().map(|lane| lane.job.received).collect();
        let sent = sent::sent(home, arithmetic, sent, &slots.received, &like)?;
        let gaps = gaps(arithmetic, &slots.own, &slots.received)?;
        let states = self.states(home, arithmetic, &slots, memory.as_ref(), (lanes, &mixing))?;
        shop.put_memory_back(memory);
        let done = stats.into_iter().zip(sent).zip(gaps).zip(states);
        Ok(done.map(|(((stats, sent), gap), state)| Ok((state, Done { stats: stats?.all(), sent, gap }))).collect())
    }

    /// Carries a phase of every lane out, with what its terms are made of; says how it went in each.
    fn carry_out_phase(
        &self,
        shop: &mut Workshop,
        home: &Arc<Home>,
        (lanes, phases): (&[Member<'_>], Vec<&Phase>),
        slots: &mut Slots<'_, Table>,
        memory: &mut Option<Memory>,
    ) -> Result<Vec<Result<TrainStats>>> {
        let (phase, data) = (phases[0], self.data(lanes[0].job.client));
        let arithmetic = Lanes { device: &home.device, layout: &home.layout, count: lanes.len() };
        let offset = match &phase.proximal {
            Some(term) => Some((term, slots.offset(&arithmetic, term)?)),
            None => None,
        };
        let shards: Vec<&Shard> = lanes.iter().map(|lane| self.shard(lane.job.client)).collect();
        let embeddings = match &phase.contrast {
            Some(term) => {
                let models = [slots.value(&arithmetic, &[&term.attracts])?, slots.value(&arithmetic, &[&term.repels])?];
                self.embeddings(shop, home, (phase, term), models.each_ref(), (data, &shards))?
            }
            None => None,
        };
        let seeds = lanes.iter().map(|lane| phase.seed(lane.job.seed));
        let trainee = |(&shard, seed)| Trainee { shard, samples: phase.samples(Shard::len(shard)), batch: phase.batch, seed };
        let trainees = shards.iter().zip(seeds).map(trainee).collect();
        let begun = Begun { phases, trainees, data, offset, embeddings };
        self.train_phase(shop, home, &begun, slots.trained(phase.slot)?, memory)
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
        (lanes, mixing): (&[Member<'_>], &[Option<f64>]),
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
            let holding = Holding {
                own: own[lane].clone(),
                dual: dual[lane].clone(),
                second: second.as_ref().map(|second| second[lane].clone()),
                dual_norm: dual_norms[lane],
                warm,
            };
            let info = ClientInfo { has_second: holding.second.is_some(), mixing: mixing[lane], ..member.info };
            Ok(KeptState::by_engine(info, Arc::new(DeviceState::new(home, holding))))
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
}

/// Where a step of each lane's mixing leads.
fn mixings(lanes: Lanes<'_>, slots: &Slots<'_, Table>, steps: &[&MixingStep]) -> Result<Vec<Option<f64>>> {
    let along = slots.value(&lanes, &steps.iter().map(|step| &step.along).collect::<Vec<_>>())?;
    let gradient = slots.value(&lanes, &steps.iter().map(|step| &step.gradient).collect::<Vec<_>>())?;
    let moved = |(step, dot): (&&MixingStep, f64)| Some((step.from - step.rate * dot).clamp(step.least, 1.0));
    Ok(steps.iter().zip(dots(lanes, &along, &gradient)?).map(moved).collect())
}

/// With what a phase took.
fn added(mut before: UpdateStats, phase: &Phase, now: TrainStats) -> Result<UpdateStats> {
    before.add(phase, now);
    Ok(before)
}

/// What a step assigns, if it is an assignment.
fn assigned(step: &Step) -> Option<&Expression> {
    if let Step::Assign { value, .. } = step { Some(value) } else { None }
}

fn mixed(step: &Step) -> Option<&MixingStep> {
    if let Step::Mix(step) = step { Some(step) } else { None }
}

fn trained(step: &Step) -> Option<&Phase> {
    if let Step::Train(phase) = step { Some(phase) } else { None }
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
    let shared = Section::PARAMETERS.into_iter().filter(|section| section.part() == Some(Part::Shared));
    let mut squares = vec![0.0; lanes.count];
    for section in shared {
        let (Some(own), Some(received)) = (own.get(section), received.get(section)) else { continue };
        add_squares(&mut squares, lanes.norms(section, own, Some(received))?);
    }
    Ok(squares.into_iter().map(f64::sqrt).collect())
}

/// The inner product of all parameters of every lane.
fn dots(lanes: Lanes<'_>, first: &Parts<Table>, second: &Parts<Table>) -> Result<Vec<f64>> {
    let mut sums = vec![0.0; lanes.count];
    for section in Section::PARAMETERS {
        let (Some(first), Some(second)) = (first.get(section), second.get(section)) else { continue };
        sums.iter_mut().zip(lanes.dots(section, first, second)?).for_each(|(sum, dot)| *sum += dot);
    }
    Ok(sums)
}

/// The norm of all parameters of every lane.
fn norms(lanes: Lanes<'_>, parts: &Parts<Table>) -> Result<Vec<f64>> {
    let mut squares = vec![0.0; lanes.count];
    for (section, table) in parts.iter().filter(|(section, _)| *section != Section::Statistics) {
        add_squares(&mut squares, lanes.norms(section, table, None)?);
    }
    Ok(squares.into_iter().map(f64::sqrt).collect())
}

fn add_squares(squares: &mut [f64], norms: Vec<f64>) {
    squares.iter_mut().zip(norms).for_each(|(sum, norm)| *sum += norm * norm);
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
