//! Batch normalisation: mean and variance of every channel over all samples and pixels of a client.
use fedeq_core::Result;
use fedeq_models::Mode;
use fedeq_models::graph::{Affine, Fusion, ValueId};

use super::{FusedNorm, SCALE};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, argument, launch};
use crate::op::{Cohort, Op, PassContext};
use crate::plan::Planner;

pub(super) struct BatchNorm {
    fused: FusedNorm,
    statistics: usize,
    size: Extent,
    width: usize,
    /// `[lanes][channels]` mean and reciprocal deviation.
    moments: Slot,
    /// `[samples][chunks][channels]` mean and squared differences; nothing where the running statistics are given.
    looks: Option<Slot>,
    /// The max pooling behind it, where that is done here.
    pool: Option<Pool>,
    back: Option<Back>,
}

#[derive(Clone, Copy)]
struct Pool {
    plane: Plane,
    /// Which number of its window each output is, if there is a way back.
    places: Option<Slot>,
    /// Numbers of a sample's output.
    count: usize,
}

/// Rows and columns of what is normalised.
#[repr(C)]
#[derive(Clone, Copy)]
struct Plane {
    height: i32,
    width: i32,
}

argument!(Plane { height, width });

struct Back {
    /// `[samples][chunks][2][channels]`: shares in the gradients of scale and offset.
    shares: Slot,
    /// `[lanes][2][channels]`: their sums where these are not trained.
    sums: Option<Slot>,
}

/// How pixels and channels are cut. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Extent {
    pixels: i32,
    channels: i32,
    slices: i32,
    chunks: i32,
}

argument!(Extent { pixels, channels, slices, chunks });

#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    scale: Pointer<f32>,
    offset: Pointer<f32>,
    moments: Pointer<[f32; 2]>,
    cohort: Cohort,
    stride: i64,
    size: Extent,
    before: i32,
    after: i32,
}

argument!(Call { scale, offset, moments, cohort, stride, size, before, after });

#[repr(C)]
#[derive(Clone, Copy)]
struct Shortcut {
    x: Pointer<f32>,
    width: i32,
    from_height: i32,
    from_width: i32,
    from_channels: i32,
}

argument!(Shortcut { x, width, from_height, from_width, from_channels });

impl Extent {
    /// Chunks of as many pixels as a block holds: 256 threads, each with four channels of eight pixels.
    fn new(pixels: usize, channels: usize) -> Self {
        let slices = (1..=channels).find(|n| channels.is_multiple_of(4 * n) && channels / (4 * n) <= 256).unwrap_or(1);
        let rows = 256 / (channels / slices / 4).max(1);
        let chunks = pixels.div_ceil(8 * rows);
        let [pixels, channels, slices, chunks] = [pixels, channels, slices, chunks].map(|n| n as i32);
        Self { pixels, channels, slices, chunks }
    }
}

impl BatchNorm {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, affine: Affine, statistics: usize, fusion: Fusion, y: ValueId) -> Self {
        let ([height, width], channels) = (plan.plane(x), plan.channels(x));
        let size = Extent::new(height * width, channels);
        let pooled = plan.pool_behind(y);
        let fused = FusedNorm::new(plan, x, affine, fusion, pooled.unwrap_or(y));
        let (samples, lanes) = (plan.purpose.size.samples(), plan.purpose.size.lanes);
        let each = samples * size.chunks as usize * channels;
        let given = plan.purpose.mode == Mode::Evaluate;
        let back = fused.back.as_ref().map(|back| Back {
            shares: plan.scratch_back(8 * each),
            sums: (back.trained.is_none() && !given).then(|| plan.scratch_back(8 * lanes * channels)),
        });
        let (moments, looks) = (plan.kept(8 * lanes * channels), (!given).then(|| plan.scratch(8 * each)));
        let pool = pooled.map(|pooled| {
            let (count, [height, width]) = (plan.count(pooled), [height, width].map(|n| n as i32));
            let places = back.is_some().then(|| plan.kept(samples * count));
            Pool { plane: Plane { height, width }, places, count }
        });
        Self { fused, statistics, size, width, moments, looks, pool, back }
    }

    fn call(&self, run: &PassContext<'_>) -> Call {
        let FusedNorm { affine, before, after, .. } = self.fused;
        let (scale, offset) = (run.parameter(affine.scale), run.parameter(affine.offset));
        Call {
            scale,
            offset,
            moments: run.at(self.moments),
            cohort: run.cohort,
            stride: run.stride(),
            size: self.size,
            before,
            after,
        }
    }

    fn grid(&self, run: &PassContext<'_>) -> [usize; 3] {
        run.by_sample((self.size.slices * self.size.chunks) as usize)
    }

    /// Mean and variance: of the batch, which also moves the running ones, or these.
    fn take_moments(&self, run: &PassContext<'_>, call: Call) -> Result<()> {
        let (channels, lanes) = (self.size.channels as usize, run.size.lanes);
        let means = run.statistics.add(run.layout.statistics(self.statistics));
        let (variances, steps, apart) = (means.add(channels), means.add(2 * channels), run.layout.statistics_stride() as i64);
        let Some(looks) = self.looks else {
            let kernel = Launch::new("batch_norm_running", [channels.div_ceil(128), lanes, 1], 128);
            return launch!(run.device, kernel; call, means, variances, apart);
        };
        let kernel = self.fused.named(["batch_norm_look_f32", "batch_norm_look_f16"]);
        let (x, looks) = (run.at::<u8>(self.fused.input()), run.at::<[f32; 2]>(looks));
        launch!(run.device, Launch::new(kernel, self.grid(run), 256); call, x, looks)?;
        let kernel = Launch::new("batch_norm_moments", [channels.div_ceil(32), lanes, 1], 256);
        launch!(run.device, kernel; call, looks, means, variances, steps, apart)
    }
}

impl Pool {
    /// The largest of every window of what is normalised.
    fn forward(&self, run: &PassContext<'_>, fused: &FusedNorm, call: Call) -> Result<()> {
        let kernel = fused.named(["norm_pool_f32", "norm_pool_f16"]);
        let kernel = Launch::new(kernel, run.by_sample(self.count.div_ceil(1024)), 256);
        let (y, y16) = (run.maybe::<f32>(fused.y.numbers), run.maybe::<half::f16>(fused.y.halves));
        let (x, places) = (run.at::<u8>(fused.input()), run.maybe::<u8>(self.places));
        launch!(run.device, kernel; call, self.plane, x, y, y16, places)
    }
}

impl Op for BatchNorm {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let (fused, call) = (&self.fused, self.call(run));
        fused.activate(run)?;
        self.take_moments(run, call)?;
        if let Some(pool) = self.pool {
            return pool.forward(run, fused, call);
        }
        let [width, height] = [self.width as i32, self.size.pixels / self.width as i32];
        let shortcut = Shortcut {
            x: run.maybe(fused.shortcut),
            width,
            from_height: height,
            from_width: width,
            from_channels: self.size.channels,
        };
        let (x, y, y16) =
            (run.at::<u8>(fused.input()), run.maybe::<f32>(fused.y.numbers), run.maybe::<half::f16>(fused.y.halves));
        let kernel = fused.named(["batch_norm_apply_f32", "batch_norm_apply_f16"]);
        launch!(run.device, Launch::new(kernel, self.grid(run), 256); call, x, shortcut, y, y16)
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let (fused, call) = (&self.fused, self.call(run));
        let (Some(back), Some(own)) = (&fused.back, &self.back) else { return Ok(()) };
        let (x, y, dy) = (run.at::<u8>(fused.input()), run.maybe::<u8>(back.y), run.at::<f32>(back.dy));
        let (shares, channels) = (run.at::<f32>(own.shares), self.size.channels as usize);
        let launch = |kernels| Launch::new(fused.named(kernels), self.grid(run), 256);
        match self.pool {
            Some(Pool { plane, places, .. }) => {
                let look = launch(["norm_pool_backward_look_f32", "norm_pool_backward_look_f16"]);
                launch!(run.device, look; call, plane, x, dy, run.maybe::<u8>(places), shares)?;
            }
            None => {
                let look = launch(["batch_norm_backward_look_f32", "batch_norm_backward_look_f16"]);
                launch!(run.device, look; call, x, y, dy, back.d(run), shares)?;
            }
        }
        let (sums, apart) = match back.trained {
            Some(scale) => (run.gradient(scale), run.stride()),
            None => (run.maybe(own.sums), 2 * channels as i64),
        };
        if back.trained.is_some() || own.sums.is_some() {
            run.sum_samples(shares, sums, apart, self.size.chunks as usize, 2 * channels)?;
        }
        if back.dx.is_some() {
            // Nothing flows through moments that were given.
            let sums = if self.looks.is_some() { sums } else { Pointer::NULL };
            let (dx, dx16) = (back.dx(|dx| dx.numbers(run)), back.dx(|dx| dx.halves(run)));
            match self.pool {
                Some(Pool { plane, places, .. }) => {
                    let (kernel, places) =
                        (launch(["norm_pool_backward_f32", "norm_pool_backward_f16"]), run.maybe::<u8>(places));
                    launch!(run.device, kernel; call, plane, x, dy, places, sums, apart, dx, dx16, SCALE)?;
                }
                None => {
                    let kernel = launch(["batch_norm_backward_f32", "batch_norm_backward_f16"]);
                    launch!(run.device, kernel; call, x, dy, sums, apart, dx, dx16, SCALE)?;
                }
            }
        }
        back.finish(run, fused.count)
    }
}
