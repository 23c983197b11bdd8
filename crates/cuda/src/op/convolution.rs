//! Convolutions, their gradients, and what else is computed like one: launches that layers and cells share.
//!
//! A linear layer over the positions of texts is a convolution of 1 x 1 over one row of pixels.
use fedeq_core::Result;
use fedeq_models::Activation;
use half::f16;

use super::{Cohort, PassContext, phi};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, argument, launch};
use crate::plan::{Planner, Precision, USUAL_LANES};

/// The most columns of pictures that the kernels which read every pixel once have room for.
const WIDEST: i32 = 80;

/// The shape of a convolution with SAME padding. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) height: i32,
    pub(crate) width: i32,
    pub(crate) from: i32,
    pub(crate) out_height: i32,
    pub(crate) out_width: i32,
    pub(crate) to: i32,
    pub(crate) window: i32,
    pub(crate) stride: i32,
    pub(crate) above: i32,
    pub(crate) left: i32,
}

argument!(Geometry { height, width, from, out_height, out_width, to, window, stride, above, left });

impl Geometry {
    pub(crate) fn new([height, width]: [usize; 2], from: usize, to: usize, window: usize, stride: usize) -> Self {
        // An odd zero goes to the end, as in TensorFlow.
        let same = |size: usize| {
            let out = size.div_ceil(stride);
            (out, ((out - 1) * stride + window).saturating_sub(size) / 2)
        };
        let ((out_height, above), (out_width, left)) = (same(height), same(width));
        let [height, width, from, out_height, out_width, to] = [height, width, from, out_height, out_width, to].map(|n| n as i32);
        let [window, stride, above, left] = [window, stride, above, left].map(|n| n as i32);
        Self { height, width, from, out_height, out_width, to, window, stride, above, left }
    }

    fn taps(&self) -> usize {
        (self.window * self.window) as usize
    }

    /// Numbers of the weights.
    pub(crate) fn weights(&self) -> usize {
        self.taps() * (self.from * self.to) as usize
    }

    pub(crate) fn in_pixels(&self) -> usize {
        (self.height * self.width) as usize
    }

    pub(crate) fn out_pixels(&self) -> usize {
        (self.out_height * self.out_width) as usize
    }

    /// Whether kernels that read every pixel once for its nine taps apply.
    fn is_plain(&self) -> bool {
        (self.window, self.stride) == (3, 1)
    }
}

/// How the weights lie in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// `[to][window][window][from]`, as convolutions have them.
    Conv,
    /// `[from][to]`, as linear layers have them.
    Linear,
}

/// A convolution's weights as kernels read them: of every lane, in its precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(crate) geometry: Geometry,
    storage: Storage,
    /// `[lanes]` of what the way forward reads, in 16 bits.
    forward: Option<Slot>,
    /// The same for the gradient by input.
    back: Option<Slot>,
    hopper: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Conv {
    x: Pointer<f16>,
    w: Pointer<f16>,
    bias: Pointer<f32>,
    y: Pointer<u8>,
    cohort: Cohort,
    w_stride: i64,
    bias_stride: i64,
    alpha: f32,
    geometry: Geometry,
    back: i32,
    phi: i32,
    narrow: i32,
    add: i32,
}

argument!(Conv { x, w, bias, y, cohort, w_stride, bias_stride, alpha, geometry, back, phi, narrow, add });

#[repr(C)]
#[derive(Clone, Copy)]
struct ConvExact {
    x: Pointer<f32>,
    w: Pointer<f32>,
    bias: Pointer<f32>,
    y: Pointer<f32>,
    cohort: Cohort,
    w_stride: i64,
    bias_stride: i64,
    geometry: Geometry,
}

argument!(ConvExact { x, w, bias, y, cohort, w_stride, bias_stride, geometry });

#[repr(C)]
#[derive(Clone, Copy)]
struct WeightGradient {
    x: Pointer<f16>,
    dy: Pointer<f16>,
    dw: Pointer<f32>,
    w_stride: i64,
    part_stride: i64,
    alpha: f32,
    geometry: Geometry,
}

argument!(WeightGradient { x, dy, dw, w_stride, part_stride, alpha, geometry });

/// Where a result goes, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Into {
    /// 16 bits.
    Halves(Pointer<f16>),
    /// 32 bits.
    Numbers(Pointer<f32>),
    /// 32 bits, added to what is there.
    Sum(Pointer<f32>),
}

/// One layer's weights on their way to 16 bits. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy)]
struct Narrowing {
    w: Pointer<f32>,
    straight: Pointer<f16>,
    turned: Pointer<f16>,
    packed: i64,
    columns: i32,
    rows: i32,
    taps: i32,
    /// The number of its first block.
    first: i32,
}

argument!(Narrowing { w, straight, turned, packed, columns, rows, taps, first });

impl Narrowing {
    const NONE: Self = Self {
        w: Pointer::NULL,
        straight: Pointer::NULL,
        turned: Pointer::NULL,
        packed: 0,
        columns: 0,
        rows: 0,
        taps: 0,
        first: 0,
    };

    /// Its blocks, of 32 x 32 numbers.
    fn blocks(&self) -> usize {
        (self.columns as usize).div_ceil(32) * (self.rows as usize).div_ceil(32) * self.taps as usize
    }
}

/// Layers whose weights one launch takes.
const AT_ONCE: usize = 16;

#[repr(C)]
#[derive(Clone, Copy)]
struct Narrowings {
    layers: [Narrowing; AT_ONCE],
}

argument!(Narrowings { layers });

/// Takes the weights of several layers as they are now, each with those of the first lane.
pub(crate) fn prepare<'w>(run: &PassContext<'_>, layers: impl IntoIterator<Item = (&'w Weights, Pointer<f32>)>) -> Result<()> {
    let mut waiting = Narrowings { layers: [Narrowing::NONE; AT_ONCE] };
    let (mut count, mut blocks) = (0, 0);
    let launch = |layers: Narrowings, count: usize, blocks: usize| {
        let kernel = Launch { threads: [32, 8, 1], ..Launch::new("weights_to_f16", [blocks, run.size.lanes, 1], 32) };
        launch!(run.device, kernel; layers, count as i32, run.stride())
    };
    for (weights, w) in layers {
        let Some(layer) = weights.narrowing(run, w, blocks) else { continue };
        waiting.layers[count] = layer;
        (count, blocks) = (count + 1, blocks + layer.blocks());
        if count == AT_ONCE {
            launch(waiting, count, blocks)?;
            (count, blocks) = (0, 0);
        }
    }
    if count == 0 { Ok(()) } else { launch(waiting, count, blocks) }
}

impl Weights {
    /// Plans the memory of weights in the form of kernels. `turned` says whether the gradient by input will be wanted, `kept` whether the way back needs them.
    pub(crate) fn new(plan: &mut Planner<'_>, geometry: Geometry, storage: Storage, turned: bool) -> Self {
        let mixed = plan.purpose.precision == Precision::Mixed;
        let bytes = plan.purpose.size.lanes * geometry.weights() * size_of::<f16>();
        let forward = mixed.then(|| if turned { plan.kept(bytes) } else { plan.scratch(bytes) });
        let back = (mixed && turned).then(|| plan.kept(bytes));
        Self { geometry, storage, forward, back, hopper: plan.device.is_hopper() }
    }

    /// The same for a layer whose way back computes its way forward again.
    pub(crate) fn lasting(plan: &mut Planner<'_>, geometry: Geometry, storage: Storage, turned: bool) -> Self {
        let mixed = plan.purpose.precision == Precision::Mixed;
        let bytes = plan.purpose.size.lanes * geometry.weights() * size_of::<f16>();
        let forward = mixed.then(|| plan.kept(bytes));
        let back = (mixed && turned).then(|| plan.kept(bytes));
        Self { geometry, storage, forward, back, hopper: plan.device.is_hopper() }
    }

    /// Whether what is multiplied is 16 bits.
    pub(crate) fn is_narrow(&self) -> bool {
        self.forward.is_some()
    }

    /// What the way forward reads in 16 bits: `[lanes][to][window][window][from]`; none where everything is exact.
    pub(crate) fn halves(&self) -> Option<Slot> {
        self.forward
    }

    /// Takes the weights as they are now; `w` are those of the first lane.
    pub(crate) fn prepare(&self, run: &PassContext<'_>, w: Pointer<f32>) -> Result<()> {
        prepare(run, [(self, w)])
    }

    /// What is to be done to take the weights as they are now, by blocks from number `first` on; nothing where everything is exact.
    fn narrowing(&self, run: &PassContext<'_>, w: Pointer<f32>, first: usize) -> Option<Narrowing> {
        let forward = self.forward?;
        let Geometry { from, to, .. } = self.geometry;
        // `straight` keeps the order of the lane, `turned` swaps inputs and outputs and turns the window round.
        let (rows, columns, straight, turned) = match self.storage {
            Storage::Conv => (to, from, run.at(forward), run.maybe(self.back)),
            Storage::Linear => (from, to, run.maybe(self.back), run.at(forward)),
        };
        let (packed, taps) = (self.geometry.weights() as i64, self.geometry.taps() as i32);
        Some(Narrowing { w, straight, turned, packed, columns, rows, taps, first: first as i32 })
    }

    /// `y = phi(conv(x) + bias)`; `w` are the weights of the first lane, `bias` that of the first lane or null.
    pub(crate) fn forward(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        x: Pointer<u8>,
        [w, bias]: [Pointer<f32>; 2],
        activation: Option<Activation>,
        y: Into,
    ) -> Result<()> {
        let g = self.geometry;
        let phi = phi(activation, run.precision);
        let Some(weights) = self.forward else {
            let Into::Numbers(y) = y else { unreachable!("exact results are 32 bits") };
            return self.forward_exact(run, cohort, x.cast(), [w, bias], phi, y);
        };
        let call = Conv {
            x: x.cast(),
            w: run.at(weights),
            bias,
            cohort,
            w_stride: g.weights() as i64,
            bias_stride: run.stride(),
            alpha: 1.0,
            geometry: g,
            back: 0,
            phi,
            ..Conv::into(y)
        };
        self.launch(run, call, 1, g.out_pixels())
    }

    /// `dx = alpha conv^T(dy)`, `dy` in the form of factors.
    pub(crate) fn input_gradient(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        dy: Pointer<u8>,
        w: Pointer<f32>,
        alpha: f32,
        dx: Into,
    ) -> Result<()> {
        let g = self.geometry;
        let Some(weights) = self.back else {
            let Into::Numbers(dx) = dx else { unreachable!("exact gradients are 32 bits, and added by whoever wants a sum") };
            return self.input_gradient_exact(run, cohort, dy.cast(), w, dx);
        };
        let swapped = Geometry {
            height: g.out_height,
            width: g.out_width,
            from: g.to,
            out_height: g.height,
            out_width: g.width,
            to: g.from,
            ..g
        };
        let call = Conv {
            x: dy.cast(),
            w: run.at(weights),
            bias: Pointer::NULL,
            cohort,
            w_stride: g.weights() as i64,
            bias_stride: 0,
            alpha,
            geometry: swapped,
            back: 1,
            phi: 0,
            ..Conv::into(dx)
        };
        let stride = g.stride as usize;
        let pixels = (g.height as usize).div_ceil(stride) * (g.width as usize).div_ceil(stride);
        self.launch(run, call, stride * stride, pixels)
    }

    fn launch(&self, run: &PassContext<'_>, call: Conv, parts: usize, pixels: usize) -> Result<()> {
        let g = call.geometry;
        let (to, most, lanes) = (g.to as usize, run.size.most, run.size.lanes);
        if self.hopper && g.is_plain() && (33..=64).contains(&to) && g.width <= WIDEST {
            let positions = 256 + 2 * (g.width as usize + 2);
            let shared = 3 * 64 * 128 + 16 * plane_bytes(positions) + 4 * positions + 1024;
            let rows = (most * (g.height as usize + 1) * (g.width as usize + 1)).div_ceil(256);
            let launch = Launch::new("conv_planes_sm90", [to.div_ceil(64), rows, lanes], 256).shared(shared);
            return launch!(run.device, launch; call);
        }
        let (kernel, channels, shared) = match (to, self.hopper) {
            (..=32, _) => ("conv_32", 32, 82_432),
            (..=64, false) => ("conv_64", 64, 98_816),
            (..=64, true) => ("conv_64_sm90", 64, 99_840),
            (_, false) => ("conv", 128, 98_816),
            (_, true) => ("conv_sm90", 128, 99_840),
        };
        let grid = [to.div_ceil(channels), parts * (most * pixels).div_ceil(128), lanes];
        launch!(run.device, Launch::new(kernel, grid, 128).shared(shared); call)
    }

    fn forward_exact(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        x: Pointer<f32>,
        [w, bias]: [Pointer<f32>; 2],
        phi: i32,
        y: Pointer<f32>,
    ) -> Result<()> {
        let g = self.geometry;
        let call = ConvExact { x, w, bias, y, cohort, w_stride: run.stride(), bias_stride: run.stride(), geometry: g };
        let kernel = ["conv_exact", "conv_exact_relu", "conv_exact", "conv_exact_softplus"][phi as usize];
        let grid = [(g.to as usize).div_ceil(64), (run.size.most * g.out_pixels()).div_ceil(64), run.size.lanes];
        launch!(run.device, Launch::new(kernel, grid, 256); call)
    }

    fn input_gradient_exact(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        dy: Pointer<f32>,
        w: Pointer<f32>,
        dx: Pointer<f32>,
    ) -> Result<()> {
        let g = self.geometry;
        let x = Pointer::NULL;
        let call = ConvExact { x, w, bias: x, y: dy, cohort, w_stride: run.stride(), bias_stride: 0, geometry: g };
        let grid = [(g.from as usize).div_ceil(64), (run.size.most * g.in_pixels()).div_ceil(64), run.size.lanes];
        launch!(run.device, Launch::new("conv_exact_input", grid, 256); call, dx)
    }
}

impl Conv {
    /// Where the result goes; everything else is to be filled in.
    fn into(y: Into) -> Self {
        let (y, narrow, add) = match y {
            Into::Halves(y) => (y.cast(), 1, 0),
            Into::Numbers(y) => (y.cast(), 0, 0),
            Into::Sum(y) => (y.cast(), 0, 1),
        };
        let no_cohort = Cohort { spans: Pointer::NULL, rows: Pointer::NULL };
        Self {
            x: Pointer::NULL,
            w: Pointer::NULL,
            bias: Pointer::NULL,
            y,
            cohort: no_cohort,
            w_stride: 0,
            bias_stride: 0,
            alpha: 1.0,
            geometry: Geometry::new([1, 1], 0, 0, 1, 1),
            back: 0,
            phi: 0,
            narrow,
            add,
        }
    }
}

fn plane_bytes(positions: usize) -> usize {
    (positions.next_multiple_of(8) + 1) * 16
}

/// The gradient of a convolution by its weights: how its pixels are cut, and memory for the parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByWeights {
    geometry: Geometry,
    storage: Storage,
    kernel: Kernel,
    parts: usize,
    partial: Option<Slot>,
}

/// A kernel for gradients by weights.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    name: &'static str,
    /// Tiles of a lane.
    tiles: usize,
    threads: usize,
    shared: usize,
    /// Blocks that a card runs at a time.
    places: usize,
    /// Pixels a step of a block, and its microseconds on an H200.
    pixels: usize,
    step: f64,
}

impl ByWeights {
    /// Plans a gradient by weights for this layer's way back.
    pub(crate) fn new(plan: &mut Planner<'_>, geometry: Geometry, storage: Storage) -> Self {
        // x^T dy of a linear layer is the gradient of a convolution from dy's channels to x's.
        let of = match storage {
            Storage::Conv => geometry,
            Storage::Linear => Geometry { from: geometry.to, to: geometry.from, ..geometry },
        };
        let kernel = Kernel::choose(of, plan.device.is_hopper());
        let lanes = plan.purpose.size.lanes;
        let walked = if kernel.threads == 384 { (of.height as usize + 1) * (of.width as usize + 1) } else { of.out_pixels() };
        let steps = (plan.purpose.size.most * walked).div_ceil(kernel.pixels);
        let parts = match plan.purpose.precision {
            Precision::Mixed => parts_for(kernel, kernel.tiles * USUAL_LANES, steps, USUAL_LANES * of.weights()),
            Precision::Exact => 1,
        };
        let partial = (parts > 1).then(|| plan.workspace_back(4 * parts * lanes * of.weights()));
        Self { geometry: of, storage, kernel, parts, partial }
    }

    /// `dw = alpha x^T dy`, both in the form of factors, into the gradient of the first lane and those after it.
    pub(crate) fn run(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        x: Pointer<u8>,
        dy: Pointer<u8>,
        alpha: f32,
        dw: Pointer<f32>,
    ) -> Result<()> {
        let (x, dy) = match self.storage {
            Storage::Conv => (x, dy),
            Storage::Linear => (dy, x),
        };
        let (g, lanes) = (self.geometry, run.size.lanes);
        if run.precision == Precision::Exact {
            return self.exact(run, cohort, x.cast(), dy.cast(), dw);
        }
        let packed = g.weights();
        let (to, w_stride) = match self.partial {
            Some(partial) => (run.at(partial), packed as i64),
            None => (dw, run.stride()),
        };
        let part_stride = (lanes * packed) as i64;
        let call = WeightGradient { x: x.cast(), dy: dy.cast(), dw: to, w_stride, part_stride, alpha, geometry: g };
        let Kernel { name, tiles, threads, shared, .. } = self.kernel;
        let grid = [tiles, lanes, self.parts];
        launch!(run.device, Launch::new(name, grid, threads).shared(shared); call, call, tiles as i32, cohort)?;
        if self.partial.is_some() {
            let (n, grid) = (packed as i64, [packed.div_ceil(1024), lanes, 1]);
            let sum = Launch::new("sum_parts", grid, 256);
            launch!(run.device, sum; to, dw, run.stride(), w_stride, part_stride, n, self.parts as i32)?;
        }
        Ok(())
    }

    fn exact(&self, run: &PassContext<'_>, cohort: Cohort, x: Pointer<f32>, dy: Pointer<f32>, dw: Pointer<f32>) -> Result<()> {
        let (g, none) = (self.geometry, Pointer::NULL);
        let call = ConvExact { x, w: none, bias: none, y: dy, cohort, w_stride: run.stride(), bias_stride: 0, geometry: g };
        let grid = [(g.taps() * g.from as usize).div_ceil(64), (g.to as usize).div_ceil(64), run.size.lanes];
        launch!(run.device, Launch::new("conv_exact_weights", grid, 256); call, dw)
    }
}

impl Kernel {
    fn choose(g: Geometry, hopper: bool) -> Self {
        let (to, from, columns) = (g.to as usize, g.from as usize, g.taps() * g.from as usize);
        if hopper && g.is_plain() && g.height.min(g.width) >= 16 && g.width <= WIDEST {
            let stage = (16_384 + 8 * plane_bytes(128 + 2 * (g.width as usize + 2))).next_multiple_of(1024);
            let tiles = to.div_ceil(64) * from.div_ceil(64);
            let shared = 4 * stage + 7232;
            return Self { name: "conv_weights_planes_sm90", tiles, threads: 384, shared, places: 132, pixels: 128, step: 1.7 };
        }
        let (name, channels, shared, step) = match (to, hopper) {
            (..=64, false) => ("conv_weights_64", 64, 76_800, 0.5),
            (..=64, true) => ("conv_weights_64_sm90", 64, 76_800, 0.5),
            (_, false) => ("conv_weights", 128, 101_376, 0.8),
            (_, true) => ("conv_weights_sm90", 128, 101_376, 0.8),
        };
        let tiles = to.div_ceil(channels) * columns.div_ceil(128);
        Self { name, tiles, threads: 128, shared, places: 264, pixels: 64, step }
    }
}

/// Into how many parts the pixels are cut: what takes the least time for as many rounds of blocks as a card needs, with writing, reading and adding up the parts.
fn parts_for(kernel: Kernel, blocks: usize, steps: usize, numbers: usize) -> usize {
    let microseconds = |parts: usize| {
        let rounds = (blocks * parts).div_ceil(kernel.places) * steps.div_ceil(parts);
        let sum = if parts > 1 { 3.0 + (numbers * 4 * (2 * parts + 1)) as f64 / 3e6 } else { 0.0 };
        rounds as f64 * kernel.step + sum
    };
    (1..=steps.clamp(1, 16)).min_by(|a, b| microseconds(*a).total_cmp(&microseconds(*b))).unwrap_or(1)
}
