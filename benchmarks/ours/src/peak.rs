//! What one core can do at most, and what share of it the forward pass of the equilibrium cell reaches.
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use fedeq_cpu::{Context, Executor, Input, RunningMoments, Start};
use fedeq_kernels::InstructionSet;
use fedeq_models::InputShape;
use fedeq_models::Mode;
use pulp::{Simd, WithSimd};
use serde_json::{Value, json};

use crate::Result;
use crate::job::Peak;
use crate::setting::Setting;

/// Independent sums: more than the pipeline is deep and wide, fewer than there are registers.
const SUMS: usize = 12;
const LOOPS: usize = 4_000_000;
/// How often each thing is timed; the fastest counts, on both sides of the comparison.
const TRIES: usize = 5;
/// Cell evaluations between the two solves whose difference is timed.
const STEPS: usize = 20;

/// Fused multiply-adds that depend on nothing but registers; gives the floating-point operations done.
struct Multiply;

impl WithSimd for Multiply {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let factor = simd.splat_f32s(black_box(0.999_9));
        let summand = simd.splat_f32s(black_box(1e-4));
        let mut sums = [simd.splat_f32s(black_box(1.0)); SUMS];
        for _ in 0..LOOPS {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, factor, summand);
            }
        }
        let total = sums.into_iter().fold(summand, |total, sum| simd.add_f32s(total, sum));
        black_box(simd.reduce_sum_f32s(total));
        let lanes = size_of::<S::f32s>() / size_of::<f32>();
        (2 * LOOPS * SUMS * lanes) as f64
    }
}

/// The best of a few short runs: a limit is what is reached undisturbed.
fn peak_gflops() -> f64 {
    (0..TRIES).map(|_| one_peak_gflops()).fold(0.0, f64::max)
}

fn one_peak_gflops() -> f64 {
    let begun = Instant::now();
    let operations = InstructionSet::best().run(Multiply);
    operations / begun.elapsed().as_secs_f64() / 1e9
}

impl Peak {
    pub(crate) fn measure(&self) -> Result<Value> {
        let (mut peaks, mut reached) = (Vec::new(), Vec::new());
        for _ in 0..=self.repeats {
            peaks.push(peak_gflops());
            let seconds = (self.solve_seconds(STEPS + 1)? - self.solve_seconds(1)?) / STEPS as f64;
            reached.push(self.cell_operations() / seconds / 1e9);
        }
        Ok(json!({ "instructions": InstructionSet::best().name(), "peak_gflops": peaks[1..], "cell_gflops": reached[1..] }))
    }

    /// Of a forward pass whose solve takes so many steps: the difference of two such is that of cell evaluations and the solver's mixing.
    fn solve_seconds(&self, steps: usize) -> Result<f64> {
        let network = Setting { solver_steps: Some(steps), ..self.setting.clone() }.network()?;
        let graph = network.graph();
        let values = graph.initial_values(7);
        let parameters: Vec<Arc<Vec<f32>>> =
            graph.parameters.iter().map(|parameter| Arc::new(values[&parameter.path].clone())).collect();
        let mut statistics: Vec<RunningMoments> =
            graph.statistics.iter().map(|running| RunningMoments::fresh(running.channels)).collect();
        let pictures = vec![0.5; self.batch * self.shape()?.iter().product::<usize>()];
        let mut executor = Executor::new(graph, self.batch, 1, Mode::Evaluate, |_| false);
        let mut context = Context { parameters: &parameters, statistics: &mut statistics, dropout: None, start: Start::Model };
        let mut fastest = f64::INFINITY;
        for _ in 0..TRIES {
            let begun = Instant::now();
            executor.forward(Input::Numbers(&pictures), &mut context);
            fastest = fastest.min(begun.elapsed().as_secs_f64());
        }
        Ok(fastest)
    }

    /// Of one evaluation of the cell on the batch, convolutions counted as direct ones: `C -> 2C -> C` channels, 3x3, half the plane.
    fn cell_operations(&self) -> f64 {
        let channels = if self.setting.model == "deq-resnet-m" { 128 } else { 64 };
        let [height, width, _] = self.shape().unwrap_or_default();
        let multiplications = 2 * 9 * channels * 2 * channels * (height / 2) * (width / 2);
        (2 * self.batch * multiplications) as f64
    }

    fn shape(&self) -> Result<[usize; 3]> {
        match self.setting.kind.task().input {
            InputShape::Image { height, width, channels } => Ok([height, width, channels]),
            _ => Err("only networks for pictures have a convolutional cell".into()),
        }
    }
}
