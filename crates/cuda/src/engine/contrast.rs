//! A loss on embeddings: what two models that stay as they are make of the samples of a cohort.
use std::collections::HashMap;
use std::sync::Arc;

use fedeq_core::{ContrastTerm, Phase, Result};
use fedeq_data::shard::Shard;

use super::Clients;
use super::evaluate::in_order;
use super::lanes::{Lanes, Table};
use super::optimiser::Extras;
use super::parts::Parts;
use super::schedule::Schedule;
use super::state::Home;
use super::workshop::Workshop;
use crate::data::DeviceData;
use crate::device::{Buffer, Pointer, argument};
use crate::op::{Cohort, PassContext, Text};
use crate::plan::{Precision, contrasts};

/// The embeddings of all training samples of a cohort by two models, and what the loss on them is.
pub(crate) struct Embeddings {
    /// `[lanes][most][numbers of a sample]`
    near: Buffer<f32>,
    far: Buffer<f32>,
    /// Samples of a lane at most.
    most: usize,
    /// Of every lane, where its samples are.
    places: Vec<HashMap<u64, i32>>,
    weight: f64,
    temperature: f64,
}

/// What a step needs of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contrasting {
    near: Pointer<f32>,
    far: Pointer<f32>,
    most: usize,
    weight: f64,
    temperature: f64,
}

/// The loss of a batch and its gradient. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Contrast {
    z: Pointer<f32>,
    near: Pointer<f32>,
    far: Pointer<f32>,
    at: Pointer<i32>,
    counter: Pointer<i32>,
    counts: Pointer<i32>,
    gradient: Pointer<f32>,
    losses: Pointer<f64>,
    cohort: Cohort,
    text: Text,
    weight: f64,
    temperature: f64,
    places: i64,
    width: i32,
}

argument!(Contrast { z, near, far, at, counter, counts, gradient, losses, cohort, text, weight, temperature, places, width });

impl Embeddings {
    /// Where the samples of every batch are among those of their lane.
    pub(crate) fn places(&self, schedule: &Schedule) -> Vec<i32> {
        schedule.by_sample(0, |lane, _| lane, |&lane, sample| self.places[lane].get(&sample).copied().unwrap_or_default())
    }

    pub(crate) fn of_step(&self) -> Contrasting {
        let Self { near, far, most, weight, temperature, .. } = self;
        Contrasting { near: near.pointer(), far: far.pointer(), most: *most, weight: *weight, temperature: *temperature }
    }
}

impl Contrasting {
    /// What a recorded step depends on.
    pub(crate) fn fingerprint(&self) -> [u64; 5] {
        let Self { near, far, most, weight, temperature } = self;
        [near.address(), far.address(), *most as u64, weight.to_bits(), temperature.to_bits()]
    }

    /// The loss on embeddings `z`, with the places of the batches' samples by step.
    pub(crate) fn call(
        &self,
        run: &PassContext<'_>,
        [z, gradient]: [Pointer<f32>; 2],
        [at, counter, counts]: [Pointer<i32>; 3],
        losses: Pointer<f64>,
        width: usize,
    ) -> Contrast {
        let Self { near, far, most, weight, temperature } = *self;
        let (cohort, text) = (run.cohort, run.text);
        Contrast {
            z,
            near,
            far,
            at,
            counter,
            counts,
            gradient,
            losses,
            cohort,
            text,
            weight,
            temperature,
            places: most as i64,
            width: width as i32,
        }
    }
}

impl Clients {
    /// The numbers that the two models' embeddings of a lane's samples take, where a phase has a loss on them.
    pub(crate) fn embedded_numbers(&self, home: &Home, phase: &Phase, samples: usize, data: &DeviceData) -> usize {
        if phase.contrast.is_some() && contrasts(&home.graph, phase.trains) {
            2 * samples * self.embedding(home, data)
        } else {
            0
        }
    }

    /// Numbers of a sample's embedding.
    fn embedding(&self, home: &Home, data: &DeviceData) -> usize {
        data.length() * embedding_width(home, self.precision)
    }

    /// What the two models of a term make of the lanes' training samples; nothing if nothing that is trained has a say in embeddings.
    pub(crate) fn embeddings(
        &self,
        shop: &mut Workshop,
        home: &Arc<Home>,
        (phase, term): (&Phase, &ContrastTerm),
        [attracts, repels]: [&Parts<Table>; 2],
        (data, shards): (&DeviceData, &[&Shard]),
    ) -> Result<Option<Embeddings>> {
        if !contrasts(&home.graph, phase.trains) {
            return Ok(None);
        }
        let place = |shard: &&Shard| (0..).zip(shard.indices()).map(|(at, &sample)| (u64::from(sample), at)).collect();
        Ok(Some(Embeddings {
            near: self.embedded(shop, home, attracts, data, shards)?,
            far: self.embedded(shop, home, repels, data, shards)?,
            most: longest(shards),
            places: shards.iter().map(place).collect(),
            weight: term.weight,
            temperature: term.temperature,
        }))
    }

    /// What one model of every lane makes of the lane's samples, in their order.
    fn embedded(
        &self,
        shop: &mut Workshop,
        home: &Arc<Home>,
        model: &Parts<Table>,
        data: &DeviceData,
        shards: &[&Shard],
    ) -> Result<Buffer<f32>> {
        let (each, most) = (self.embedding(home, data), longest(shards));
        let all = Buffer::new(&home.device, shards.len() * most * each)?;
        let mut runner = shop.take(home, self.examination(shards.len(), data), Extras::default())?;
        runner.load(home, Lanes { device: &home.device, layout: &home.layout, count: shards.len() }, model)?;
        let schedule = in_order(&mut runner, home, shards)?;
        let mut filled = vec![0; shards.len()];
        for step in 0..schedule.steps() {
            let run = runner.run(home, data);
            runner.forward(&run, data)?;
            runner.end_step(&run)?;
            let from = run.maybe::<f32>(runner.executor.plan.embedding);
            for (lane, filled) in filled.iter_mut().enumerate() {
                let count = schedule.count(step, lane);
                let to = all.pointer().add((lane * most + *filled) * each);
                home.device.copy(from.add(lane * schedule.most() * each), to, count * each)?;
                *filled += count;
            }
        }
        shop.put_back(runner);
        Ok(all)
    }
}

fn longest(shards: &[&Shard]) -> usize {
    shards.iter().map(|shard| shard.len()).max().unwrap_or(0)
}

/// Numbers of a row of embeddings: a sample has one, or one a position.
pub(crate) fn embedding_width(home: &Home, precision: Precision) -> usize {
    use fedeq_models::graph::Shape;
    match home.graph.shape(home.graph.embedding) {
        Shape::Sequence(width) if precision == Precision::Mixed => width.next_multiple_of(8),
        shape => shape.count(1),
    }
}
