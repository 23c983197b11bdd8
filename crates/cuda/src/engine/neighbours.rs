//! Predictions mixed with the votes of a client's nearest training samples.
use fedeq_core::{Neighbours, Result, Score};
use fedeq_data::shard::Shard;
use fedeq_data::{Dataset, Labels, Samples};

use super::contrast::embedding_width;
use super::evaluate::{in_order, summed};
use super::runner::Runner;
use super::state::Home;
use crate::data::DeviceData;
use crate::device::{Buffer, Launch, Pointer, launch};
use crate::op::{Cohort, PassContext};

/// Queries of a client whose distances are computed at once: whatever the memory, so that sums have one order.
const QUERIES: usize = 256;

/// The embedded training samples of all lanes, for text their positions.
pub(crate) struct Voters<'a> {
    neighbours: &'a Neighbours,
    width: usize,
    /// Entries of a lane at most.
    most: usize,
    /// `[lanes][most][width]`
    embeddings: Buffer<f32>,
    /// `[lanes][most]`
    classes: Buffer<i32>,
    who: Who,
}

/// Some rows of every lane.
struct Who {
    spans: Buffer<i32>,
    rows: Buffer<i32>,
}

impl Who {
    /// The first so many of `most` rows of each lane.
    fn new(home: &Home, counts: &[usize], most: usize) -> Result<Self> {
        let spans: Vec<i32> =
            counts.iter().enumerate().flat_map(|(lane, &count)| [lane * most, count]).map(|n| n as i32).collect();
        let rows: Vec<i32> = (0..(counts.len() * most) as i32).collect();
        Ok(Self { spans: Buffer::of(&home.device, &spans)?, rows: Buffer::of(&home.device, &rows)? })
    }

    fn cohort(&self) -> Cohort {
        Cohort { spans: self.spans.pointer().cast(), rows: self.rows.pointer() }
    }
}

/// The rows of a pass that count: where they are among the rows of all lanes, and their classes.
struct Rows {
    lanes: Vec<Vec<(i32, i32)>>,
}

impl Rows {
    /// Those of one pass. Positions whose symbol is padding do not count.
    fn of(schedule: &super::schedule::Schedule, step: usize, shards: &[&Shard]) -> Self {
        let lane = |(lane, shard): (usize, &&Shard)| {
            let rows = schedule.batch(step, lane).iter().enumerate().flat_map(|(index, &sample)| {
                let slot = lane * schedule.most() + index;
                targets(shard.dataset(), sample as usize)
                    .into_iter()
                    .map(move |(position, length, class)| ((slot * length + position) as i32, class))
            });
            rows.collect()
        };
        Self { lanes: shards.iter().enumerate().map(lane).collect() }
    }

    /// The classes of at most `most` of every lane from the `first` on, and where they are; `[lanes][most]`.
    fn some(&self, first: usize, most: usize) -> (Vec<usize>, Vec<i32>, Vec<i32>) {
        let (mut places, mut classes) = (vec![0; self.lanes.len() * most], vec![0; self.lanes.len() * most]);
        let mut counts = Vec::new();
        for (lane, rows) in self.lanes.iter().enumerate() {
            let some = rows.iter().skip(first).take(most);
            for (at, (place, class)) in some.clone().enumerate() {
                (places[lane * most + at], classes[lane * most + at]) = (*place, *class);
            }
            counts.push(some.count());
        }
        (counts, places, classes)
    }

    fn longest(&self) -> usize {
        self.lanes.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// The predictions that a sample asks for: position, positions of a sample, class.
fn targets(dataset: &Dataset, sample: usize) -> Vec<(usize, usize, i32)> {
    match (&dataset.labels, &dataset.samples) {
        (Labels::Classes { values, .. }, _) => vec![(0, 1, i32::from(values[sample]))],
        (Labels::NextSymbols(next), Samples::Sequences(sequences)) => {
            let length = sequences.length;
            let at = |position: usize| sample * length + position;
            let counts = |position: &usize| sequences.symbols[at(*position)] != 0;
            (0..length).filter(counts).map(|position| (position, length, i32::from(next[at(position)]))).collect()
        }
        (Labels::NextSymbols(_), _) => Vec::new(),
    }
}

/// How many predictions a shard asks for.
fn predictions(shard: &Shard) -> usize {
    shard.indices().iter().map(|&sample| targets(shard.dataset(), sample as usize).len()).sum()
}

/// Copies rows: `to[slot] = from[places[slot]]`, `width` numbers each.
fn gather(
    run: &PassContext<'_>,
    from: Pointer<f32>,
    places: &Buffer<i32>,
    to: Pointer<f32>,
    who: Cohort,
    width: usize,
    most: usize,
) -> Result<()> {
    let grid = [width.div_ceil(256), most, run.size.lanes];
    launch!(run.device, Launch::new("vectors", grid, 256); from, places.pointer(), to, who, width as i32)
}

impl<'a> Voters<'a> {
    /// Embeds the training samples of the loaded models' clients; nothing if there are none at all.
    pub(crate) fn new(
        runner: &mut Runner,
        home: &Home,
        data: &DeviceData,
        shards: &[&Shard],
        neighbours: &'a Neighbours,
    ) -> Result<Option<Self>> {
        let counts: Vec<usize> = shards.iter().map(|shard| predictions(shard)).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        if most == 0 {
            return Ok(None);
        }
        let width = embedding_width(home, runner.executor.purpose.precision);
        let embeddings = Buffer::new(&home.device, shards.len() * most * width)?;
        let mut classes = vec![0; shards.len() * most];
        let mut filled = vec![0; shards.len()];
        let schedule = in_order(runner, home, shards)?;
        for step in 0..schedule.steps() {
            let run = runner.run(home, data);
            runner.forward(&run, data)?;
            runner.end_step(&run)?;
            let rows = Rows::of(&schedule, step, shards);
            let (here, places, found) = rows.some(0, rows.longest().max(1));
            let longest = rows.longest().max(1);
            // Behind what is there: entries of a pass are gathered to where the lane's entries end.
            for (lane, &count) in here.iter().enumerate() {
                let to = lane * most + filled[lane];
                classes[to..to + count].copy_from_slice(&found[lane * longest..][..count]);
            }
            let places = Buffer::of(&home.device, &places)?;
            let compact = Buffer::new(&home.device, shards.len() * longest * width)?;
            let who = Who::new(home, &here, longest)?;
            gather(&run, embedding(runner, &run), &places, compact.pointer(), who.cohort(), width, longest)?;
            for (lane, &count) in here.iter().enumerate() {
                let to = embeddings.pointer().add((lane * most + filled[lane]) * width);
                home.device.copy(compact.pointer().add(lane * longest * width), to, count * width)?;
                filled[lane] += count;
            }
        }
        let classes = Buffer::of(&home.device, &classes)?;
        Ok(Some(Self { neighbours, width, most, embeddings, classes, who: Who::new(home, &counts, most)? }))
    }

    /// How well the loaded models do on these samples together with the voters.
    pub(crate) fn scores(&self, runner: &mut Runner, home: &Home, data: &DeviceData, shards: &[&Shard]) -> Result<Vec<Score>> {
        let schedule = in_order(runner, home, shards)?;
        let mut sums = vec![Score::default(); shards.len()];
        for step in 0..schedule.steps() {
            let run = runner.run(home, data);
            runner.forward(&run, data)?;
            runner.end_step(&run)?;
            let rows = Rows::of(&schedule, step, shards);
            for first in (0..rows.longest()).step_by(QUERIES) {
                let found = self.vote(runner, home, &run, rows.some(first, QUERIES))?;
                sums.iter_mut().zip(found).for_each(|(sum, score)| *sum = sum.plus(score));
            }
        }
        Ok(sums)
    }

    /// The scores of some rows of every lane.
    fn vote(
        &self,
        runner: &Runner,
        home: &Home,
        run: &PassContext<'_>,
        (counts, places, classes): (Vec<usize>, Vec<i32>, Vec<i32>),
    ) -> Result<Vec<Score>> {
        let (device, lanes, all) = (&home.device, counts.len(), counts.len() * QUERIES);
        let (labels, pitch) = (home.graph.task.classes, runner.executor.plan.logits_pitch);
        let asking = Who::new(home, &counts, QUERIES)?;
        let (places, classes) = (Buffer::of(device, &places)?, Buffer::of(device, &classes)?);
        let queries = Buffer::<f32>::new(device, all * self.width)?;
        gather(run, embedding(runner, run), &places, queries.pointer(), asking.cohort(), self.width, QUERIES)?;
        let logits = self.logits(runner, home, run, &places, asking.cohort(), [labels, pitch])?;
        let distances = Buffer::<f32>::new(device, all * self.most)?;
        let grid = [self.most.div_ceil(64), QUERIES.div_ceil(64), lanes];
        launch!(device, Launch::new("knn_distances", grid, 256);
            queries.pointer(), self.embeddings.pointer(), distances.pointer(), asking.cohort(), self.who.cohort(), self.width as i32, self.most as i32)?;
        let (mixed, losses, right) =
            (Buffer::<f32>::new(device, all * labels)?, Buffer::<f32>::new(device, all)?, Buffer::<u8>::new(device, all)?);
        launch!(device, Launch::new("knn_vote", [1, QUERIES, lanes], 128).shared(4 * labels);
            distances.pointer(), logits.pointer(), self.classes.pointer(), classes.pointer(), mixed.pointer(), losses.pointer(), right.pointer(),
            asking.cohort(), self.who.cohort(), self.neighbours.mixing as f32, self.neighbours.count as i32, labels as i32, self.most as i32)?;
        let scores = Buffer::zeros(device, lanes)?;
        launch!(device, Launch::new("sum_scores", [lanes, 1, 1], 256);
            losses.pointer(), right.pointer(), Pointer::<i32>::NULL, scores.pointer(), asking.cohort(), 1_i32)?;
        let mut found = vec![crate::executor::Score::default(); lanes];
        scores.read(device, 0, &mut found)?;
        Ok(found.iter().map(summed).collect())
    }

    /// The logits of some rows, without what pads them.
    fn logits(
        &self,
        runner: &Runner,
        home: &Home,
        run: &PassContext<'_>,
        places: &Buffer<i32>,
        asking: Cohort,
        [labels, pitch]: [usize; 2],
    ) -> Result<Buffer<f32>> {
        let rows = places.len();
        let padded = Buffer::<f32>::new(&home.device, rows * pitch)?;
        gather(run, run.at(runner.executor.plan.logits), places, padded.pointer(), asking, pitch, QUERIES)?;
        if pitch == labels {
            return Ok(padded);
        }
        let logits = Buffer::new(&home.device, rows * labels)?;
        for first in (0..rows).step_by(GRID) {
            let (to, from, none) =
                (logits.pointer().add(first * labels), padded.pointer().add(first * pitch), Pointer::<f32>::NULL);
            let grid = [labels.div_ceil(1024), GRID.min(rows - first), 1];
            launch!(home.device, Launch::new("lanes_plus", grid, 256);
                to, from, none, labels as i64, pitch as i64, 0_i64, labels as i64, 0.0_f32)?;
        }
        Ok(logits)
    }
}

/// Blocks of a grid in its second direction at most.
const GRID: usize = 65_535;

/// Where the embeddings of the last pass are, one row a sample or position.
fn embedding(runner: &Runner, run: &PassContext<'_>) -> Pointer<f32> {
    let plan = &runner.executor.plan;
    run.maybe(plan.embedding.or(plan.input.numbers))
}
