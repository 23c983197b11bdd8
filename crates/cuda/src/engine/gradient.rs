//! The true gradient of a client's training loss.
use std::num::NonZeroUsize;
use std::sync::Arc;

use fedeq_core::{Params, Result, Trains, Weights};
use fedeq_data::shard::Shard;
use fedeq_equilibrium::{Adjoint, Equilibrium, LinearSolver, Stop};
use fedeq_models::Graph;
use fedeq_models::Mode;

use super::evaluate::EVALUATION_BATCH;
use super::lanes::{Lanes, Table};
use super::optimiser::Extras;
use super::parts::Parts;
use super::runner::{Runner, Shared};
use super::schedule::Schedule;
use super::state::Home;
use super::stored::Storage;
use crate::data::DeviceData;
use crate::device::{Buffer, Device, Launch, launch};
use crate::layout::Layout;
use crate::plan::{Precision, Purpose, Size};

/// The tolerance of fixed points and of adjoints through them where the true gradient is wanted: what 32 bits allow.
const TOLERANCE: f64 = 1e-6;
/// Steps that they may take.
const STEPS: usize = 300;
/// Directions that GMRES keeps: the most that its kernels can.
const DIRECTIONS: usize = 24;

/// A network that computes as precisely as it can, one client at a time.
pub(crate) struct Precise {
    home: Arc<Home>,
    runner: Option<Runner>,
}

impl Precise {
    pub(crate) fn new(device: &Arc<Device>, graph: &Graph, storage: Arc<Storage>) -> Self {
        let stop = Stop::relative(TOLERANCE, STEPS);
        let adjoint = Adjoint::Implicit { solver: LinearSolver::Gmres { memory: DIRECTIONS }, stop };
        let graph = Arc::new(graph.clone().with_equilibrium(&Equilibrium { stop, adjoint, ..Equilibrium::default() }));
        let layout = Layout::new(&graph, Precision::Exact);
        let home = Home::new(device, graph, layout, storage, fedeq_equilibrium::WarmStart::Off);
        Self { home: Arc::new(home), runner: None }
    }

    /// The mean loss and its gradient with respect to all parameters.
    pub(crate) fn gradient(&mut self, data: &DeviceData, shard: &Shard, weights: &Weights) -> Result<(f64, Params)> {
        let home = &self.home;
        let size = Size { lanes: 1, most: EVALUATION_BATCH.min(shard.len()).max(1), length: data.length() };
        let purpose = Purpose {
            size,
            mode: Mode::Evaluate,
            precision: Precision::Exact,
            trains: Some(Trains::Everything),
            contrasts: false,
        };
        let mut runner = match self.runner.take().filter(|runner| runner.executor.purpose == purpose) {
            Some(runner) => runner,
            None => Runner::new(home, purpose, Extras::default(), &mut Shared::default())?,
        };
        let lanes = Lanes { device: &home.device, layout: &home.layout, count: 1 };
        let model: Parts<Table> =
            home.upload(weights)?.map(|_, stored| Ok::<_, fedeq_core::Error>(Table::Same(Arc::clone(stored))))?;
        runner.load(home, lanes, &model)?;
        let schedule = Schedule::in_order(&[shard], NonZeroUsize::new(size.most).unwrap_or(NonZeroUsize::MIN));
        runner.schedule(home, &schedule)?;
        let counter = runner.counter();
        runner.hooks.schedule(home, counter, None)?;
        let sum = Buffer::<f32>::zeros(&home.device, home.layout.stride())?;
        for step in 0..schedule.steps() {
            let run = runner.run(home, data);
            runner.forward(&run, data)?;
            runner.executor.backward(&run)?;
            runner.end_step(&run)?;
            add(home, &sum, &runner, schedule.count(step, 0) as f32)?;
        }
        let scores = runner.scores(home, schedule.steps())?;
        let samples = f64::max(shard.len() as f64, 1.0);
        let loss: f64 = scores.iter().enumerate().map(|(step, score)| schedule.count(step, 0) as f64 * score.loss).sum();
        let mut values = vec![0.0; home.layout.stride()];
        sum.read(&home.device, 0, &mut values)?;
        values.iter_mut().for_each(|value| *value /= samples as f32);
        let gradient = home.layout.read(&home.graph, &values, |_| true);
        self.runner = Some(runner);
        Ok((loss / samples, gradient))
    }
}

/// `sum += factor * gradient`
fn add(home: &Home, sum: &Buffer<f32>, runner: &Runner, factor: f32) -> Result<()> {
    let Some(gradients) = runner.gradients() else { return Ok(()) };
    let (n, sum) = (home.layout.stride(), sum.pointer());
    launch!(home.device, Launch::new("lanes_plus", [n.div_ceil(1024), 1, 1], 256);
        sum, sum, gradients.pointer(), 0_i64, 0_i64, 0_i64, n as i64, factor)
}
