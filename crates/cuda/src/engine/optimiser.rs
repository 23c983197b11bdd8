//! Steps beyond plain gradient descent: what they go by, what they remember, and their launches.
use std::ops::Range;

use fedeq_core::{Optimiser, Phase, Result};

use super::schedule::Schedule;
use crate::device::{Buffer, Device, Launch, Pointer, argument, launch};
use crate::op::{Cohort, PassContext};

/// What a phase takes beside models and gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Whether it has a proximal term.
    pub(crate) proximal: bool,
    /// How many moments its optimiser has.
    pub(crate) moments: usize,
}

/// How many moments an optimiser remembers of every parameter.
pub(crate) fn moments_of(optimiser: Optimiser) -> usize {
    match optimiser {
        Optimiser::Sgd { momentum, .. } => usize::from(momentum != 0.0),
        Optimiser::Adam { .. } => 2,
    }
}

impl Extras {
    pub(crate) fn of(phase: &Phase) -> Self {
        Self { proximal: phase.proximal.is_some(), moments: moments_of(phase.optimiser) }
    }

    /// Tables as large as that of the parameters.
    pub(crate) fn tables(self) -> usize {
        usize::from(self.proximal) + self.moments
    }

    /// Whether whoever has these can do with them what wants others.
    pub(crate) fn cover(self, wanted: Self) -> bool {
        (self.proximal || !wanted.proximal) && self.moments >= wanted.moments
    }
}

/// The numbers by which steps go, for every lane and step: computed here as the CPU computes them, in 64 bits where it does.
pub(crate) struct Rates<'p> {
    /// Of every lane; they differ in their step sizes at most.
    phases: &'p [&'p Phase],
    /// Of every lane, steps of an epoch.
    steps: Vec<u64>,
    /// Of every lane, `beta_1^t` and `beta_2^t` after the `t` steps that were asked for.
    powers: Vec<[f64; 2]>,
}

impl<'p> Rates<'p> {
    /// Numbers of a step at most.
    pub(crate) const MOST: usize = 3;

    pub(crate) fn new(phases: &'p [&'p Phase], steps: impl Iterator<Item = usize>) -> Self {
        let steps: Vec<u64> = steps.map(|steps| steps as u64).collect();
        Self { phases, powers: vec![[1.0; 2]; steps.len()], steps }
    }

    /// Those of the steps that come next.
    pub(crate) fn of(&mut self, schedule: &Schedule) -> Vec<f32> {
        match self.phases[0].optimiser {
            Optimiser::Sgd { .. } => schedule.by_batch(0.0, |lane, epoch, batch| [self.rate(lane, epoch, batch) as f32]),
            Optimiser::Adam { .. } => schedule.by_batch(0.0, |lane, epoch, batch| self.adam(lane, epoch, batch)),
        }
    }

    fn rate(&self, lane: usize, epoch: u64, batch: u64) -> f64 {
        let (phase, steps) = (self.phases[lane], self.steps[lane]);
        phase.rate(epoch * steps + batch, phase.epochs as u64 * steps)
    }

    /// What is kept of a parameter, the rate, and the factor of the second moment's root.
    fn adam(&mut self, lane: usize, epoch: u64, batch: u64) -> [f32; 3] {
        let Optimiser::Adam { betas, weight_decay, decoupled, .. } = self.phases[lane].optimiser else { return [0.0; 3] };
        let rate = self.rate(lane, epoch, batch);
        let powers = &mut self.powers[lane];
        *powers = [0, 1].map(|at| powers[at] * betas[at]);
        let kept = if decoupled { 1.0 - rate as f32 * weight_decay as f32 } else { 1.0 };
        [kept, (rate / (1.0 - powers[0])) as f32, (1.0 / (1.0 - powers[1])).sqrt() as f32]
    }
}

/// A step of one part of all lanes' parameters. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OptimiserStep {
    pub(crate) theta: Pointer<f32>,
    pub(crate) first: Pointer<f32>,
    pub(crate) second: Pointer<f32>,
    pub(crate) gradient: Pointer<f32>,
    pub(crate) offset: Pointer<f32>,
    pub(crate) cohort: Cohort,
    pub(crate) counts: Pointer<i32>,
    pub(crate) norms: Pointer<f64>,
    pub(crate) rates: Pointer<f32>,
    pub(crate) counter: Pointer<i32>,
    pub(crate) stride: i64,
    pub(crate) n: i64,
    pub(crate) longest: f64,
    pub(crate) strength: f32,
    pub(crate) decay: f32,
}

argument!(OptimiserStep {
    theta,
    first,
    second,
    gradient,
    offset,
    cohort,
    counts,
    norms,
    rates,
    counter,
    stride,
    n,
    longest,
    strength,
    decay
});

/// Takes a step of a part.
pub(crate) fn optimiser_step(run: &PassContext<'_>, step: OptimiserStep, optimiser: Optimiser) -> Result<()> {
    let grid = [(step.n as usize).div_ceil(1024), run.size.lanes, 1];
    match optimiser {
        Optimiser::Sgd { momentum, nesterov, weight_decay } => {
            let step = OptimiserStep { decay: weight_decay as f32, ..step };
            launch!(run.device, Launch::new("momentum_step", grid, 256); step, momentum as f32, i32::from(nesterov))
        }
        Optimiser::Adam { betas: [beta_1, beta_2], epsilon, weight_decay, decoupled } => {
            let step = OptimiserStep { decay: if decoupled { 0.0 } else { weight_decay as f32 }, ..step };
            let [new_1, new_2] = [beta_1, beta_2].map(|beta| (1.0 - beta) as f32);
            launch!(run.device, Launch::new("adam_step", grid, 256); step, beta_1 as f32, beta_2 as f32, new_1, new_2, epsilon as f32)
        }
    }
}

/// The norm of every lane's gradient, in 64 bits and always in the same order.
pub(crate) struct GradientNorms {
    /// `[lanes][BLOCKS]` and `[lanes]`
    partial: Buffer<f64>,
    norms: Buffer<f64>,
}

/// Blocks a lane that add up its norm: the same in every cohort.
const BLOCKS: usize = 64;

impl GradientNorms {
    pub(crate) fn new(device: &Device, lanes: usize) -> Result<Self> {
        Ok(Self { partial: Buffer::new(device, lanes * BLOCKS)?, norms: Buffer::new(device, lanes)? })
    }

    pub(crate) fn pointer(&self) -> Pointer<f64> {
        self.norms.pointer()
    }

    /// Takes the norms of these numbers of every lane's gradient. What is between parameters is zero.
    pub(crate) fn take(&self, run: &PassContext<'_>, range: Range<usize>) -> Result<()> {
        let (lanes, nothing) = (run.size.lanes, Pointer::<f32>::NULL);
        launch!(run.device, Launch::new("lanes_norm_partial", [BLOCKS, lanes, 1], 256);
            run.gradients.add(range.start), nothing, self.partial.pointer(), run.stride(), 0_i64, range.len() as i64)?;
        launch!(run.device, Launch::new("lanes_norm", [lanes.div_ceil(128), 1, 1], 128);
            self.partial.pointer(), self.norms.pointer(), BLOCKS as i32, lanes as i32)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fedeq_core::Trains;
    use fedeq_data::Seed;
    use fedeq_data::shard::Shard;
    use fedeq_kernels::optimiser::{AdamStep, MomentumStep, sum_of_squares};
    use fedeq_models::{Mode, ModelConfig, Task, normal_numbers};

    use super::*;
    use crate::executor::{Executor, Lanes};
    use crate::layout::Layout;
    use crate::plan::{Precision, Purpose, Size};

    const ADAM: Optimiser = Optimiser::Adam { betas: [0.8, 0.95], epsilon: 1e-6, weight_decay: 0.1, decoupled: true };

    fn phase(optimiser: Optimiser) -> Phase {
        Phase { optimiser, ..Phase::new("body", Trains::Everything, 4, 0.1) }
    }

    /// Lanes of so many samples, in batches of four.
    fn schedule(sizes: &[usize], epochs: Range<usize>) -> Schedule {
        use super::super::schedule::Trainee;
        let training = fedeq_core::Training {
            batch_size: std::num::NonZeroUsize::new(4).expect("not 0"),
            remainder: fedeq_data::shard::Remainder::Keep,
            ..fedeq_core::Training::default()
        };
        let all = sizes.iter().max().copied().unwrap_or(0);
        let dataset = Arc::new(fedeq_data::Dataset {
            name: "numbers".into(),
            samples: fedeq_data::Samples::Vectors(fedeq_data::Vectors { width: 1, values: vec![0.0; all] }),
            labels: fedeq_data::Labels::Classes { names: vec!["a".into()], values: vec![0; all] },
            owners: None,
            test_start: None,
        });
        let shards: Vec<Shard> =
            sizes.iter().map(|&size| Shard::new(Arc::clone(&dataset), (0..size as u32).collect()).expect("there")).collect();
        let seed = phase(Optimiser::PLAIN).seed(Seed::new(1));
        let lanes: Vec<Trainee<'_>> =
            shards.iter().map(|shard| Trainee { shard, samples: 0..shard.len(), batch: None, seed }).collect();
        Schedule::of_epochs(&lanes, &training, epochs, 4)
    }

    #[test]
    fn a_phase_that_is_cut_between_epochs_continues_with_its_rates() {
        let (sizes, phase) = ([9, 4, 0], phase(ADAM));
        let rates = |cuts: &[usize]| -> Vec<f32> {
            let phases = [&phase; 3];
            let mut rates = Rates::new(&phases, sizes.iter().map(|size: &usize| size.div_ceil(4)));
            cuts.windows(2).flat_map(|cut| rates.of(&schedule(&sizes, cut[0]..cut[1]))).collect()
        };
        // Lane 1 has one step an epoch, lane 0 three: apart, lane 1 sits out two of three.
        let (whole, cut) = (rates(&[0, 4]), rates(&[0, 1, 4]));
        let of = |table: &[f32], step: usize, lane: usize| table[(step * 3 + lane) * 3..][..3].to_vec();
        assert_eq!(of(&whole, 11, 0), of(&cut, 11, 0));
        assert_eq!(of(&whole, 3, 1), of(&cut, 3 + 2, 1), "its second to fourth steps follow each other again");
        for (step, lane, taken) in [(0, 0, 1), (11, 0, 12), (3, 1, 4)] {
            let expected = [1.0 - 0.1 * 0.1, 0.1 / (1.0 - 0.8_f64.powi(taken)), (1.0 - 0.95_f64.powi(taken)).sqrt().recip()];
            let apart = of(&whole, step, lane).iter().zip(expected).map(|(&a, b)| (f64::from(a) - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-6, "step {step} of lane {lane}: {apart}");
        }
        assert_eq!(of(&whole, 0, 2), [0.0; 3], "no lane steps");
    }

    /// What a lane has: parameters, both moments, its gradient and its offset.
    type Lane = [Vec<f32>; 5];

    /// A step of a lane as the CPU takes it.
    fn on_cpu([p, first, second, gradient, offset]: &mut Lane, by: &Case, rates: &[f32], counts: i32, norm: f64) {
        let mut g = gradient.clone();
        if by.clip.is_some_and(|most| norm > most) {
            let factor = (by.clip.unwrap_or_default() / norm) as f32;
            g.iter_mut().for_each(|g| *g *= factor);
        }
        if by.proximal {
            let share = if by.per_prediction { counts.max(1) as f32 } else { 1.0 };
            g.iter_mut().zip(&*p).zip(&*offset).for_each(|((g, p), offset)| *g += (STRENGTH * p + offset) / share);
        }
        let decay = |g: &mut [f32], p: &[f32], decay: f32| g.iter_mut().zip(p).for_each(|(g, p)| *g += decay * p);
        match by.optimiser {
            Optimiser::Sgd { momentum, nesterov, weight_decay } => {
                decay(&mut g, p, weight_decay as f32);
                let step = MomentumStep { learning_rate: rates[0], momentum: momentum as f32, nesterov };
                step.run(&g, p, first);
            }
            Optimiser::Adam { betas, epsilon, weight_decay, decoupled } => {
                if decoupled {
                    let kept = 1.0 - RATE as f32 * weight_decay as f32;
                    p.iter_mut().for_each(|p| *p *= kept);
                } else {
                    decay(&mut g, p, weight_decay as f32);
                }
                let step = AdamStep { learning_rate: RATE, betas, epsilon: epsilon as f32, powers: betas };
                step.run(&g, p, first, second);
            }
        }
    }

    const STRENGTH: f32 = 0.3;
    const RATE: f64 = 0.1;

    #[derive(Clone, Copy)]
    struct Case {
        optimiser: Optimiser,
        proximal: bool,
        per_prediction: bool,
        clip: Option<f64>,
    }

    fn cases() -> Vec<Case> {
        let momentum = Optimiser::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };
        let nesterov = Optimiser::Sgd { momentum: 0.8, nesterov: true, weight_decay: 0.05 };
        let coupled = Optimiser::Adam { betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.02, decoupled: false };
        let variants = [(false, false, None), (true, false, None), (true, true, Some(3.0)), (false, false, Some(3.0))];
        let all = [momentum, nesterov, coupled, ADAM].into_iter();
        all.flat_map(|optimiser| {
            variants.map(|(proximal, per_prediction, clip)| Case { optimiser, proximal, per_prediction, clip })
        })
        .collect()
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_step_is_the_cpus_to_the_bit() {
        let device = Device::new(0).expect("a GPU");
        let graph = "linear".parse::<ModelConfig>().expect("known").graph(&Task::image(8, 8, 1, 10)).expect("fits");
        let layout = Layout::new(&graph, Precision::Exact);
        let (sizes, stride) = ([3, 0, 1], layout.stride());
        let size = Size { lanes: sizes.len(), most: 3, length: 1 };
        let purpose =
            Purpose { size, mode: Mode::Train, precision: Precision::Exact, trains: Some(Trains::Everything), contrasts: false };
        let mut executor = Executor::new(&device, &graph, &layout, purpose).expect("a plan");
        executor.spans.write(&device, 0, &[0, 3, 3, 0, 6, 1]).expect("spans");
        let counts = [7, 0, 1];
        executor.counts.write(&device, 0, &counts).expect("counts");
        let numbers = |name: &str| -> Vec<f32> { normal_numbers(5, name, sizes.len() * stride) };
        let schedule = schedule(&[3, 3, 3], 0..1);
        for by in cases() {
            let [mut theta, mut first, mut second, gradient, offset] = ["p", "m", "v", "g", "o"].map(numbers);
            second.iter_mut().for_each(|v| *v = v.abs());
            // The lanes' gradients are of different lengths.
            let gradient: Vec<f32> = gradient.iter().enumerate().map(|(at, g)| g * [1.0, 1.0, 1e-2][at / stride]).collect();
            let of = |values: &[f32]| Buffer::of(&device, values).expect("memory");
            let buffers = [of(&theta), of(&first), of(&second), of(&gradient), of(&offset)];
            let (phase, norms) = (phase(by.optimiser), GradientNorms::new(&device, sizes.len()).expect("memory"));
            let rates = Rates::new(&[&phase; 3], sizes.iter().map(|_| 1)).of(&schedule);
            let (table, counter) = (of(&rates), Buffer::<i32>::zeros(&device, 1).expect("memory"));
            let [p, m, v, g, o] = [0, 1, 2, 3, 4].map(|at: usize| buffers[at].pointer());
            let run = executor.run(&layout, Lanes { parameters: p, gradients: g, statistics: Pointer::NULL }, Pointer::NULL);
            norms.take(&run, 0..stride).expect("norms");
            let step = OptimiserStep {
                theta: p,
                first: m,
                second: v,
                gradient: g,
                offset: if by.proximal { o } else { Pointer::NULL },
                cohort: run.cohort,
                counts: if by.per_prediction { executor.counts.pointer() } else { Pointer::NULL },
                norms: if by.clip.is_some() { norms.pointer() } else { Pointer::NULL },
                rates: table.pointer(),
                counter: counter.pointer(),
                stride: stride as i64,
                n: stride as i64,
                longest: by.clip.unwrap_or_default(),
                strength: STRENGTH,
                decay: 0.0,
            };
            optimiser_step(&run, step, by.optimiser).expect("a step");
            let mut found_norms = vec![0.0; sizes.len()];
            norms.norms.read(&device, 0, &mut found_norms).expect("norms");
            for lane in (0..sizes.len()).filter(|&lane| sizes[lane] > 0) {
                let here = lane * stride..(lane + 1) * stride;
                let norm = sum_of_squares(&gradient[here.clone()]).sqrt();
                assert!((found_norms[lane] / norm - 1.0).abs() < 1e-13, "the norm of lane {lane}");
                let mut own = [&theta, &first, &second, &gradient, &offset].map(|values| values[here.clone()].to_vec());
                on_cpu(&mut own, &by, &rates[lane * rates.len() / sizes.len()..], counts[lane], found_norms[lane]);
                for (all, own) in [&mut theta, &mut first, &mut second].into_iter().zip(own) {
                    all[here.clone()].copy_from_slice(&own);
                }
            }
            for (what, expected, buffer) in
                [("parameters", &theta, 0), ("first moments", &first, 1), ("second moments", &second, 2)]
            {
                let mut found = vec![0.0; expected.len()];
                buffers[buffer].read(&device, 0, &mut found).expect("numbers");
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert!(
                    bits(&found) == bits(expected),
                    "{what} of {:?}, proximal {}, clipped {:?}",
                    by.optimiser,
                    by.proximal,
                    by.clip
                );
            }
        }
    }
}
