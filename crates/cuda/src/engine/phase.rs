//! A training phase of a cohort.
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{Error, Phase, PhaseBytes, PhaseSeconds, ProximalTerm, Result, SolveTally, TrainStats, diverged_in_phase};
use fedeq_data::Seed;
use fedeq_data::shard::PictureChange;
use fedeq_models::Mode;
use half::f16;

use super::Clients;
use super::contrast::Embeddings;
use super::lanes::{Lanes, Table};
use super::optimiser::{Extras, Rates};
use super::parts::{Parts, Section};
use super::runner::{Runner, StepRule};
use super::schedule::{Schedule, Trainee};
use super::state::Home;
use super::warm::Memory;
use super::workshop::Workshop;
use crate::data::{DeviceData, packed};
use crate::executor::Score;
use crate::plan::{Precision, Purpose, SCALE, Size};

/// Entries of a table of batches at most; a phase of more is cut between epochs.
const TABLE: usize = 1 << 22;

/// What a phase starts from.
pub(crate) struct Begun<'a> {
    /// Lane by lane: the same but for their step sizes.
    pub(crate) phases: Vec<&'a Phase>,
    /// Whose batches, lane by lane.
    pub(crate) trainees: Vec<Trainee<'a>>,
    pub(crate) data: &'a DeviceData,
    /// `dual - strength * anchor` of the proximal term, if there is one.
    pub(crate) offset: Option<(&'a ProximalTerm, Parts<Table>)>,
    /// What other models make of the samples, if there is a loss on that.
    pub(crate) embeddings: Option<Embeddings>,
}

impl<'a> Begun<'a> {
    /// What all lanes do, with the step size of the first.
    fn phase(&self) -> &'a Phase {
        self.phases[0]
    }
}

/// How a lane's phase went, step by step.
#[derive(Clone, Debug, Default)]
struct Progress {
    steps: usize,
    /// The mean over the last epoch so far.
    loss: f64,
    /// The first loss that is not finite.
    bad_loss: Option<f64>,
}

impl Clients {
    /// What a phase is computed by.
    pub(crate) fn purpose_of(&self, phase: &Phase, lanes: usize, data: &DeviceData) -> Purpose {
        let size = Size { lanes, most: self.most_trained, length: data.length() };
        Purpose {
            size,
            mode: Mode::Train,
            precision: self.precision,
            trains: Some(phase.trains),
            contrasts: phase.contrast.is_some(),
        }
    }

    /// Carries a phase out for all lanes: moves their models and says how it went in each.
    pub(crate) fn train_phase(
        &self,
        shop: &mut Workshop,
        home: &Arc<Home>,
        begun: &Begun<'_>,
        model: &mut Parts<Table>,
        memory: &mut Option<Memory>,
    ) -> Result<Vec<Result<TrainStats>>> {
        let (phase, lanes) = (begun.phase(), begun.trainees.len());
        if !home.graph.parameters.iter().any(|parameter| phase.trains.includes(parameter.part)) {
            return Ok((0..lanes).map(|_| Ok(TrainStats::default())).collect()); // Such as the head of a network that has none.
        }
        let started = Instant::now();
        let arithmetic = Lanes { device: &home.device, layout: &home.layout, count: lanes };
        let mut runner = shop.take(home, self.purpose_of(phase, lanes, begun.data), Extras::of(phase))?;
        runner.load(home, arithmetic, model)?;
        if let Some((_, offset)) = &begun.offset {
            runner.load_offset(home, arithmetic, offset)?;
        }
        let progress = self.take_steps(&mut runner, home, begun, memory)?;
        runner.contrast_by(home, None)?;
        let finite = arithmetic.are_finite_at(runner.parameters(), home.layout.stride(), home.layout.stride())?;
        let tallies = runner.hooks.tallies(home, lanes)?;
        for section in Section::MODEL.into_iter().filter(|section| section.is_in(&home.graph)) {
            if section.part().is_none_or(|part| phase.trains.includes(part)) {
                model.set(section, Some(runner.part(home, arithmetic, section)?));
            }
        }
        home.device.synchronize()?;
        let seconds = started.elapsed().as_secs_f64();
        let all: usize = progress.iter().map(|lane| lane.steps).sum();
        let each =
            progress.into_iter().zip(finite).zip(tallies).zip(&begun.phases).map(|(((lane, finite), [solves, first]), phase)| {
                let share = lane.steps as f64 / all.max(1) as f64;
                let stats = stats(&runner, &lane, solves, seconds * share);
                ended(lane, finite, phase, &first).map_err(|error| told(error, self.precision)).map(|()| stats)
            });
        let each = each.collect();
        shop.put_back(runner);
        Ok(each)
    }

    /// All steps of a phase, some epochs at a time.
    fn take_steps(
        &self,
        runner: &mut Runner,
        home: &Home,
        begun: &Begun<'_>,
        memory: &mut Option<Memory>,
    ) -> Result<Vec<Progress>> {
        let (phase, lanes, most) = (begun.phase(), begun.trainees.len(), self.most_trained);
        let longest = begun.trainees.iter().map(|trainee| trainee.shard.len()).max().unwrap_or(0);
        let epoch = longest.div_ceil(self.training.batch_size.get().min(longest.max(1))) * lanes * most;
        let at_once = (TABLE / epoch.max(1)).max(1);
        let rule = self.rule(begun);
        let mut progress = vec![Progress::default(); lanes];
        let mut rates = Rates::new(&begun.phases, begun.trainees.iter().map(|trainee| self.training.steps(trainee.shard.len())));
        runner.hooks.begin(home)?;
        runner.forget_moments(home)?;
        for first in (0..phase.epochs).step_by(at_once) {
            let epochs = first..(first + at_once).min(phase.epochs);
            let schedule = Schedule::of_epochs(&begun.trainees, &self.training, epochs, most);
            runner.schedule(home, &schedule)?;
            runner.drop_by(home, &schedule, |lane, epoch, batch| begun.trainees[lane].seed.dropout(epoch, batch))?;
            if rule.scheduled {
                runner.move_by(home, &schedule, &mut rates)?;
            }
            if let Some(augment) = &self.training.augment {
                let seed = |lane: usize, epoch| begun.trainees[lane].seed.epoch(epoch);
                let change = |seed: &Seed, sample| packed(augment.change(*seed, sample));
                runner.change_by(home, &schedule.by_sample(packed(PictureChange::default()), seed, change))?;
            }
            runner.contrast_by(home, begun.embeddings.as_ref().map(|embeddings| (embeddings, &schedule)))?;
            let places = memory.as_mut().map(|memory| memory.directory.places(&schedule));
            let counter = runner.counter();
            runner.hooks.schedule(home, counter, memory.as_ref().zip(places))?;
            runner.train(home, begun.data, rule, schedule.steps(), [self.record, first == 0])?;
            let scores = runner.scores(home, schedule.steps())?;
            progress.iter_mut().enumerate().for_each(|(lane, progress)| progress.note(&schedule, &scores, lane));
        }
        Ok(progress)
    }

    fn rule(&self, begun: &Begun<'_>) -> StepRule {
        let term = begun.offset.as_ref();
        let phase = begun.phase();
        let together = begun.phases.iter().all(|other| other.learning_rate == phase.learning_rate);
        let scheduled = phase.schedule.is_some() || !phase.is_plain() || !together;
        let pulls = |section: Section| term.is_some_and(|(_, offset)| offset.get(section).is_some());
        StepRule {
            rate: if scheduled { 0.0 } else { phase.learning_rate as f32 },
            scheduled,
            strength: term.map_or(0.0, |(term, _)| term.strength as f32),
            per_prediction: term.is_some_and(|(term, _)| term.per_prediction),
            proximal: Section::PARAMETERS.map(pulls),
            projection: self.training.projection,
            optimiser: phase.optimiser,
            clip: phase.clip,
        }
    }
}

impl Progress {
    /// Takes note of the scores of some steps, `[steps][lanes]`.
    fn note(&mut self, schedule: &Schedule, scores: &[Score], lane: usize) {
        let score = |step: usize| &scores[step * schedule.lanes() + lane];
        let steps = schedule.steps_of(lane);
        self.steps += steps;
        let bad = |step: usize| Some(score(step).loss).filter(|loss| !loss.is_finite());
        self.bad_loss = self.bad_loss.or_else(|| (0..steps).find_map(bad));
        let (mut loss, mut samples) = (0.0, 0);
        for step in schedule.last_epoch(lane) {
            let count = schedule.count(step, lane);
            loss += score(step).loss * count as f64;
            samples += count;
        }
        self.loss = loss / samples.max(1) as f64;
    }
}

fn stats(runner: &Runner, lane: &Progress, solves: SolveTally, seconds: f64) -> TrainStats {
    let [solve, backward, update] = runner.shares.map(|share| share * seconds);
    let bytes = runner.bytes_a_lane();
    TrainStats {
        steps: lane.steps as u64,
        loss: lane.loss,
        solves,
        seconds: PhaseSeconds { solve, backward, update },
        memory: PhaseBytes { solve: bytes, backward: bytes, update: bytes },
        ..TrainStats::default()
    }
}

/// Refuses what diverged. `first` are the solves of the first batch.
fn ended(lane: Progress, finite: bool, phase: &Phase, first: &SolveTally) -> Result<()> {
    match lane.bad_loss {
        Some(loss) => Err(diverged_in_phase(format!("the training loss is `{loss}`"), phase, first)),
        None if !finite => {
            Err(diverged_in_phase("the parameters are no longer finite after local training".into(), phase, first))
        }
        None => Ok(()),
    }
}

/// In mixed precision it may not be the learning rate: gradients behind convolutions are 16 bits there, and normalisations over batches of one or two samples can make them too large.
fn told(error: Error, precision: Precision) -> Error {
    match error {
        Error::Diverged { problem, remedy } if precision == Precision::Mixed => {
            let remedy = format!(
                "{remedy}; or set `engine.precision=exact`, if batches are of few samples: in `mixed`, no gradient behind a convolution may be larger than {}",
                (f16::MAX.to_f32() / SCALE).floor()
            );
            Error::Diverged { problem, remedy }
        }
        other => other,
    }
}
