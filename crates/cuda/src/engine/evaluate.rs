//! Scores of many clients' models at once.
use std::num::NonZeroUsize;
use std::sync::Arc;

use fedeq_core::{Evaluated, EvaluationJob, Expression, Portion, Reply, Result, Score, ScoreRequest, StartedEvaluation};
use fedeq_data::shard::Shard;
use fedeq_models::Mode;

use super::Clients;
use super::cohort::{alike, most_lanes, pack};
use super::expression::{Slots, alike_expressions};
use super::lanes::Lanes;
use super::neighbours::Voters;
use super::optimiser::Extras;
use super::parts::Parts;
use super::runner::Runner;
use super::schedule::Schedule;
use super::state::{DeviceState, Home};
use super::stored::Stored;
use super::train::{gaps, repeated, tables};
use super::workshop::Workshop;
use crate::data::DeviceData;
use crate::plan::{Purpose, Size};

/// Samples of a client in a pass when nothing is trained, at most.
pub(crate) const EVALUATION_BATCH: usize = 100;

/// Bytes of what is on its way through the network in a pass: enough to keep a large card busy.
const SCRATCH: u64 = 2 << 30;

/// An evaluation that has begun, with its numbers on the device.
pub(crate) struct Examinee<'a> {
    job: &'a EvaluationJob<'a>,
    started: StartedEvaluation,
    received: Parts<Arc<Stored>>,
    state: DeviceState,
}

impl<'a> Examinee<'a> {
    pub(crate) fn new(home: &Arc<Home>, job: &'a EvaluationJob<'a>, started: StartedEvaluation) -> Result<Self> {
        let (received, state) = (home.upload(job.received)?, home.state(&started.state)?);
        Ok(Self { job, started, received, state })
    }

    /// What the model of a request is made of.
    fn model(&self, request: usize) -> &Expression {
        &self.started.requests[request].model
    }

    /// Whether two are asked the same, but for factors in what their models are made of, of models of the same parts.
    fn is_like(&self, other: &Self) -> bool {
        let parts = |one: &Self| {
            let DeviceState { own, dual, second, .. } = &one.state;
            [Some(own), Some(dual), second.as_ref(), Some(&one.received)].map(|parts| parts.map(Parts::present))
        };
        let (one, two) = (&self.started.requests, &other.started.requests);
        let same = |(a, b): (&ScoreRequest, &ScoreRequest)| {
            alike_expressions(&a.model, &b.model) && (a.on, &a.neighbours) == (b.on, &b.neighbours)
        };
        one.len() == two.len() && one.iter().zip(two).all(same) && parts(self) == parts(other)
    }
}

impl Clients {
    /// Scores what was begun; what came of each, in their order.
    pub(crate) fn evaluate_all<'a>(
        &self,
        shop: &mut Workshop,
        home: &Arc<Home>,
        all: Vec<Examinee<'a>>,
    ) -> Vec<(Examinee<'a>, Result<Evaluated>)> {
        let same_data = |a: &Examinee<'_>, b: &Examinee<'_>| self.data_of(a.job.client) == self.data_of(b.job.client);
        let groups = alike(&all, |a, b| a.is_like(b) && same_data(a, b));
        let mut found: Vec<Option<Result<Evaluated>>> = all.iter().map(|_| None).collect();
        let mut all: Vec<Option<Examinee<'_>>> = all.into_iter().map(Some).collect();
        let mut done: Vec<Option<Examinee<'_>>> = all.iter().map(|_| None).collect();
        for group in groups {
            let size = |at: usize| all[at].as_ref().map_or(0, |one| self.portion(one.job.client, Portion::Test).len());
            let cohorts = match self.examined_at_once(shop, home, all[group[0]].as_ref(), group.len()) {
                Ok(most) => pack(&group, size, most),
                Err(error) => {
                    group.iter().for_each(|&at| found[at] = Some(Err(repeated(&error))));
                    group.iter().for_each(|&at| done[at] = all[at].take());
                    continue;
                }
            };
            for cohort in cohorts {
                let lanes: Vec<Examinee<'_>> = cohort.iter().filter_map(|&at| all[at].take()).collect();
                let evaluated = self.evaluate_cohort(shop, home, &lanes);
                let mut each = match evaluated {
                    Ok(each) => each.into_iter().map(Ok).collect::<Vec<_>>(),
                    Err(error) => lanes.iter().map(|_| Err(repeated(&error))).collect(),
                }
                .into_iter();
                for (&at, lane) in cohort.iter().zip(lanes) {
                    (found[at], done[at]) = (each.next(), Some(lane));
                }
            }
        }
        let pair = |(one, found): (Option<Examinee<'a>>, Option<Result<Evaluated>>)| one.zip(found);
        done.into_iter().zip(found).filter_map(pair).collect()
    }

    /// How many fit into the memory side by side.
    fn examined_at_once(
        &self,
        shop: &mut Workshop,
        home: &Arc<Home>,
        one: Option<&Examinee<'_>>,
        wanted: usize,
    ) -> Result<usize> {
        let data = self.data(one.map_or(0, |one| one.job.client));
        // Their models, and what may be computed of them.
        let models = |lanes: usize| lanes as u64 * 8 * home.layout.stride() as u64;
        let scratch = |shop: &mut Workshop, lanes: usize| shop.wants(home, self.examination(lanes, data), Extras::default());
        // More at once would be no faster.
        let wanted = most_lanes(wanted.min(self.most_lanes), SCRATCH, |lanes| scratch(shop, lanes).scratch);
        self.fit(shop, home, wanted, &mut |shop, lanes| scratch(shop, lanes).bytes() + models(lanes))
    }

    pub(crate) fn examination(&self, lanes: usize, data: &DeviceData) -> Purpose {
        let size = Size { lanes, most: self.most_evaluated.get(), length: data.length() };
        Purpose { size, mode: Mode::Evaluate, precision: self.precision, trains: None, contrasts: false }
    }

    fn evaluate_cohort(&self, shop: &mut Workshop, home: &Arc<Home>, lanes: &[Examinee<'_>]) -> Result<Vec<Evaluated>> {
        let arithmetic = Lanes { device: &home.device, layout: &home.layout, count: lanes.len() };
        let second =
            lanes[0].state.second.is_some().then(|| tables(lanes, |lane| lane.state.second.as_ref().unwrap_or(&lane.state.own)));
        let [received, own, dual] =
            [tables(lanes, |lane| &lane.received), tables(lanes, |lane| &lane.state.own), tables(lanes, |lane| &lane.state.dual)];
        let slots = Slots::new(&home.graph, received, own, dual, second);
        let requests = &lanes[0].started.requests;
        let mut scores = vec![vec![Score::default(); requests.len()]; lanes.len()];
        let mut runner = shop.take(home, self.examination(lanes.len(), self.data(lanes[0].job.client)), Extras::default())?;
        let all: Vec<usize> = (0..requests.len()).collect();
        for same in alike(&all, |&a, &b| lanes.iter().all(|lane| lane.model(a) == lane.model(b))) {
            let models: Vec<&Expression> = lanes.iter().map(|lane| lane.model(same[0])).collect();
            runner.load(home, arithmetic, &slots.value(&arithmetic, &models)?)?;
            for at in same {
                let found = self.answer(&mut runner, home, lanes, &requests[at])?;
                scores.iter_mut().zip(found).for_each(|(scores, found)| scores[at] = found);
            }
        }
        shop.put_back(runner);
        let gaps = gaps(arithmetic, &slots.own, &slots.received)?;
        let each = scores.into_iter().zip(gaps).zip(lanes);
        Ok(each.map(|((scores, gap), lane)| Evaluated { scores, gap, dual_norm: lane.state.dual_norm }).collect())
    }

    /// How well the loaded models do on a portion of their clients' data.
    fn answer(&self, runner: &mut Runner, home: &Home, lanes: &[Examinee<'_>], request: &ScoreRequest) -> Result<Vec<Score>> {
        let shards = |on: Portion| lanes.iter().map(|lane| self.portion(lane.job.client, on)).collect::<Vec<_>>();
        let data = |on: Portion| self.data_on(lanes[0].job.client, on);
        let neighbours = request.neighbours.as_ref().filter(|neighbours| neighbours.mixing != 0.0);
        let voters = match neighbours {
            Some(neighbours) => Voters::new(runner, home, data(Portion::Train), &shards(Portion::Train), neighbours)?,
            None => None,
        };
        let (data, shards) = (data(request.on), shards(request.on));
        match voters {
            Some(voters) => voters.scores(runner, home, data, &shards),
            None => scores(runner, home, data, &shards),
        }
    }
}

/// How well the loaded models do on these samples.
fn scores(runner: &mut Runner, home: &Home, data: &DeviceData, shards: &[&Shard]) -> Result<Vec<Score>> {
    let schedule = in_order(runner, home, shards)?;
    for _ in 0..schedule.steps() {
        let run = runner.run(home, data);
        runner.forward(&run, data)?;
        runner.end_step(&run)?;
    }
    let scores = runner.scores(home, schedule.steps())?;
    let mut sums = vec![Score::default(); shards.len()];
    for step in scores.chunks_exact(shards.len().max(1)) {
        sums.iter_mut().zip(step).for_each(|(sum, score)| *sum = sum.plus(summed(score)));
    }
    Ok(sums)
}

/// The batches of all samples in their order, ready to be run.
pub(crate) fn in_order(runner: &mut Runner, home: &Home, shards: &[&Shard]) -> Result<Schedule> {
    let most = NonZeroUsize::new(runner.executor.purpose.size.most).unwrap_or(NonZeroUsize::MIN);
    let schedule = Schedule::in_order(shards, most);
    runner.schedule(home, &schedule)?;
    Ok(schedule)
}

/// A lane's score of a pass: sums instead of means.
pub(crate) fn summed(score: &crate::executor::Score) -> Score {
    Score {
        predictions: score.predictions.max(0) as u64,
        correct: score.correct.max(0) as u64,
        loss: score.loss * f64::from(score.predictions),
    }
}

/// Ends what was evaluated.
pub(crate) fn end((one, found): (Examinee<'_>, Result<Evaluated>)) -> Result<Reply> {
    one.job.end(one.started.state, found?)
}
