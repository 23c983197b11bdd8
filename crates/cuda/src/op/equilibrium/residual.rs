//! The cell of DEQ-ResNet, `g(z; u) = GN3(phi(z + GN2(u + conv_b(GN1(phi(conv_a(z)))))))`.
//!
//! In mixed precision what is between the two convolutions is 16 bits, and so are the gradients there, [`SCALE`] times as large as they are; what is outside is 32 bits.
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::{self, ParameterId};
use half::f16;

use super::norm::{Affine, Moments, Norm};
use super::{CellOp, Differentiated, State, To};
use crate::arena::Slot;
use crate::device::{Pointer, argument, launch};
use crate::op::convolution::{self, ByWeights, Geometry, Into, Storage, Weights};
use crate::op::norm::Shape;
use crate::op::{Cohort, PassContext};
use crate::plan::{Planner, Precision, SCALE};

pub(super) struct Residual {
    /// Numbers of a state.
    each: usize,
    parameters: Parameters,
    activation: Activation,
    convs: [Weights; 2],
    /// That between the convolutions, and those around them.
    inner: Norm,
    outer: Norm,
    /// What is between the convolutions in a step, in the form of factors.
    wide: Slot,
    back: Option<Back>,
}

#[derive(Clone, Copy)]
struct Parameters {
    convs: [ParameterId; 2],
    norms: [graph::Affine; 3],
}

/// The linearisation, and memory for gradients at it.
#[derive(Clone, Copy)]
struct Back {
    /// phi(conv_a(z)), and the normalisation of it.
    activated_wide: Slot,
    normalised: Slot,
    /// The gradients of both, one after the other.
    dwide: Slot,
    /// u + conv_b(...), and phi(z + GN2(...)).
    sum: Slot,
    activated: Slot,
    moments: [Slot; 3],
    /// The samples' shares in the gradients of scales and offsets.
    shares: [Slot; 3],
    /// The gradient of what is injected, where it is not wanted.
    du: Option<Slot>,
    /// The same in 16 bits.
    du_halves: Option<Slot>,
    /// The exact kernel cannot add: the state's gradient through the convolutions.
    beside: Option<Slot>,
    by_weights: [Option<ByWeights>; 2],
    norms_trained: [bool; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Outer {
    second: Affine,
    third: Affine,
    moments: [Pointer<Moments>; 2],
    cohort: Cohort,
    shape: Shape,
}

argument!(Outer { second, third, moments, cohort, shape });

impl Residual {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        cell: &graph::Cell,
        plane: [usize; 2],
        channels: usize,
        differentiated: Differentiated,
    ) -> Self {
        let graph::Cell::Residual { conv_a, norm_1, conv_b, norm_2, norm_3, over, activation } = *cell else {
            unreachable!("it was one before");
        };
        let parameters = Parameters { convs: [conv_a, conv_b], norms: [norm_1, norm_2, norm_3] };
        let geometries = [Geometry::new(plane, channels, 2 * channels, 3, 1), Geometry::new(plane, 2 * channels, channels, 3, 1)];
        let norm = |channels: usize| Norm::new(plane, channels, over).expect("a network that was checked");
        let (inner, outer) = (norm(2 * channels), norm(channels));
        let each = plane[0] * plane[1] * channels;
        let back = differentiated.any().then(|| Back::new(plan, each, parameters, geometries, [inner, outer], differentiated));
        let conv = |plan: &mut Planner<'_>, geometry, turned| match differentiated {
            Differentiated::No => Weights::new(plan, geometry, Storage::Conv, false),
            _ => Weights::lasting(plan, geometry, Storage::Conv, turned),
        };
        let convs = [conv(plan, geometries[0], differentiated.state()), conv(plan, geometries[1], differentiated.any())];
        let wide = plan.scratch(factor_bytes(plan) * 2 * plan.purpose.size.samples() * each);
        Self { each, parameters, activation, convs, inner, outer, wide, back }
    }

    fn back(&self) -> Back {
        self.back.expect("there is a way back")
    }

    /// The weights of a convolution as lanes have them, and no bias.
    fn weights(&self, run: &PassContext<'_>, index: usize) -> [Pointer<f32>; 2] {
        [run.parameter(self.parameters.convs[index]), Pointer::NULL]
    }

    /// `t = conv_b(GN1(phi(conv_a(z))))`; `y` may be `v`, and `moments` null.
    fn inner(
        &self,
        run: &PassContext<'_>,
        z: State,
        [v, y]: [Pointer<u8>; 2],
        moments: Pointer<Moments>,
        t: Pointer<f32>,
    ) -> Result<()> {
        let [a, b] = &self.convs;
        let (factors, cohort) = (factors_of(run, z), run.cohort);
        a.forward(run, cohort, factors, self.weights(run, 0), Some(self.activation), into(run, v))?;
        self.inner.forward(run, Affine::of(run, self.parameters.norms[0]), [v, y], moments)?;
        b.forward(run, cohort, y, self.weights(run, 1), None, Into::Numbers(t))
    }

    fn outer(&self, run: &PassContext<'_>, moments: [Pointer<Moments>; 2]) -> Outer {
        let [_, second, third] = self.parameters.norms.map(|affine| Affine::of(run, affine));
        Outer { second, third, moments, cohort: run.cohort, shape: self.outer.shape() }
    }

    /// From the gradient of the result to that of `u`, in 32 bits and in the form of factors, and to the state's on the way around the convolutions; and then to that in front of
    /// the convolutions, in the form of factors.
    fn pull_to_front(&self, run: &PassContext<'_>, v: Pointer<f32>, to: To) -> Result<()> {
        let back = self.back();
        let kernel = match (self.activation, run.precision) {
            (Activation::Relu, _) => "outer_relu_backward",
            (Activation::Softplus, Precision::Mixed) => "outer_softplus_backward",
            (Activation::Softplus, Precision::Exact) => "outer_softplus_exact_backward",
        };
        let outer = self.outer(run, [run.at(back.moments[1]), run.at(back.moments[2])]);
        let (sum, activated) = (run.at::<f32>(back.sum), run.at::<f32>(back.activated));
        let halves = run.maybe::<f16>(back.du_halves);
        let [_, second, third] = back.shares.map(|slot| run.at::<f32>(slot));
        launch!(run.device, self.outer.launch(run, kernel); outer, v, sum, activated, to.dz, to.du, halves, SCALE, second, third)?;
        let (factors, dwide) = (self.du_factors(run, to.du), run.at::<u8>(back.dwide));
        // 16 bits stay scaled.
        self.convs[1].input_gradient(run, run.cohort, factors, self.weights(run, 1)[0], 1.0, into(run, dwide))?;
        let affine = Affine::of(run, self.parameters.norms[0]);
        let (x, moments, shares) = (run.at::<u8>(back.activated_wide), run.at(back.moments[0]), run.at(back.shares[0]));
        self.inner.backward(run, affine, self.activation, [x, dwide], (moments, shares))
    }

    fn du_factors(&self, run: &PassContext<'_>, du: Pointer<f32>) -> Pointer<u8> {
        self.back().du_halves.map_or(du.cast(), |slot| run.at(slot))
    }

    /// Adds to the state's gradient what came through the convolutions.
    fn pull_first(&self, run: &PassContext<'_>, dz: Pointer<f32>) -> Result<()> {
        let Back { dwide, beside, .. } = self.back();
        let (dwide, w) = (run.at::<u8>(dwide), self.weights(run, 0)[0]);
        match beside {
            None => self.convs[0].input_gradient(run, run.cohort, dwide, w, alpha(run), Into::Sum(dz)),
            Some(beside) => {
                self.convs[0].input_gradient(run, run.cohort, dwide, w, 1.0, Into::Numbers(run.at(beside)))?;
                run.add(run.at(beside), dz, self.each)
            }
        }
    }
}

impl Back {
    fn new(
        plan: &mut Planner<'_>,
        each: usize,
        parameters: Parameters,
        geometries: [Geometry; 2],
        [inner, outer]: [Norm; 2],
        differentiated: Differentiated,
    ) -> Self {
        let (samples, factor) = (plan.purpose.size.samples(), factor_bytes(plan));
        let (wide, narrow) = (2 * factor * samples * each, 4 * samples * each);
        let exact = plan.purpose.precision == Precision::Exact;
        let [activated_wide, normalised, dwide] = [wide; 3].map(|bytes| plan.scratch_back(bytes));
        let [sum, activated] = [narrow; 2].map(|bytes| plan.scratch_back(bytes));
        let norms = [inner, outer, outer];
        let by_weights = [0, 1].map(|index| {
            let trained = plan.parameter(parameters.convs[index]).is_some();
            trained.then(|| ByWeights::new(plan, geometries[index], Storage::Conv))
        });
        Self {
            activated_wide,
            normalised,
            dwide,
            sum,
            activated,
            moments: norms.map(|norm| plan.scratch_back(norm.moments_bytes(samples))),
            shares: norms.map(|norm| plan.scratch_back(norm.shares_bytes(samples))),
            du: differentiated.state().then(|| plan.scratch_back(narrow)),
            du_halves: (!exact).then(|| plan.scratch_back(narrow / 2)),
            beside: (exact && differentiated.state()).then(|| plan.scratch_back(narrow)),
            by_weights,
            norms_trained: parameters.norms.map(|norm| {
                let [scale, offset] = [norm.scale, norm.offset].map(|id| plan.parameter(id).is_some());
                scale && offset
            }),
        }
    }
}

impl CellOp for Residual {
    fn reads_halves(&self) -> bool {
        self.convs[0].is_narrow()
    }

    fn prepare(&self, run: &PassContext<'_>) -> Result<()> {
        convolution::prepare(run, [0, 1].map(|index| (&self.convs[index], self.weights(run, index)[0])))
    }

    fn start(&self, run: &PassContext<'_>, u: Pointer<f32>, z: State) -> Result<()> {
        run.device.copy(u, z.numbers, run.size.samples() * self.each)?;
        if z.halves.is_null() { Ok(()) } else { run.to_halves(u, z.halves, 1.0, self.each) }
    }

    fn step(&self, run: &PassContext<'_>, cohort: Cohort, z: State, u: Pointer<f32>, out: Pointer<f32>) -> Result<()> {
        let (run, wide) = (&run.of(cohort), run.at(self.wide));
        // Both normalisations hold what they read in registers before they write: they may write where they read.
        self.inner(run, z, [wide; 2], Pointer::NULL, out)?;
        let (outer, none) = (self.outer(run, [Pointer::NULL; 2]), Pointer::<f32>::NULL);
        launch!(run.device, self.outer.launch(run, outer_kernel(run, self.activation)); outer, out, u, z.numbers, out, none, none)
    }

    fn linearise(&self, run: &PassContext<'_>, z: State, u: Pointer<f32>) -> Result<()> {
        let Back { activated_wide, normalised, sum, activated, moments, .. } = self.back();
        let (sum, [first, second, third]) = (run.at::<f32>(sum), moments.map(|slot| run.at::<Moments>(slot)));
        self.inner(run, z, [run.at(activated_wide), run.at(normalised)], first, sum)?;
        let (outer, none) = (self.outer(run, [second, third]), Pointer::<f32>::NULL);
        let activated = run.at::<f32>(activated);
        launch!(run.device, self.outer.launch(run, outer_kernel(run, self.activation)); outer, sum, u, z.numbers, none, sum, activated)
    }

    fn pull_back(&self, run: &PassContext<'_>, cohort: Cohort, v: Pointer<f32>, out: Pointer<f32>) -> Result<()> {
        let run = &run.of(cohort);
        self.pull_to_front(run, v, To { dz: out, du: run.maybe(self.back().du) })?;
        self.pull_first(run, out)
    }

    fn backward(&self, run: &PassContext<'_>, z: State, v: Pointer<f32>, to: To) -> Result<()> {
        let back = self.back();
        self.pull_to_front(run, v, to)?;
        let front = [factors_of(run, z), run.at(back.normalised)];
        let behind = [run.at(back.dwide), self.du_factors(run, to.du)];
        for (index, by_weights) in back.by_weights.iter().enumerate() {
            if let Some(by_weights) = by_weights {
                let to = run.gradient(self.parameters.convs[index]);
                by_weights.run(run, run.cohort, front[index], behind[index], alpha(run), to)?;
            }
        }
        for (index, norm) in self.parameters.norms.iter().enumerate().filter(|(index, _)| back.norms_trained[*index]) {
            let (by, alpha) = if index == 0 { (self.inner, alpha(run)) } else { (self.outer, 1.0) };
            by.sum_shares(run, run.at(back.shares[index]), alpha, run.gradient(norm.scale))?;
        }
        if to.dz.is_null() { Ok(()) } else { self.pull_first(run, to.dz) }
    }
}

fn outer_kernel(run: &PassContext<'_>, activation: Activation) -> &'static str {
    match (activation, run.precision) {
        (Activation::Relu, _) => "outer_relu",
        (Activation::Softplus, Precision::Mixed) => "outer_softplus",
        (Activation::Softplus, Precision::Exact) => "outer_softplus_exact",
    }
}

/// The bytes of a number that convolutions read.
fn factor_bytes(plan: &Planner<'_>) -> usize {
    match plan.purpose.precision {
        Precision::Mixed => size_of::<f16>(),
        Precision::Exact => size_of::<f32>(),
    }
}

/// A state as convolutions read it.
fn factors_of(run: &PassContext<'_>, z: State) -> Pointer<u8> {
    match run.precision {
        Precision::Mixed => z.halves.cast(),
        Precision::Exact => z.numbers.cast(),
    }
}

/// Where a convolution's result goes that another one reads.
fn into(run: &PassContext<'_>, to: Pointer<u8>) -> Into {
    match run.precision {
        Precision::Mixed => Into::Halves(to.cast()),
        Precision::Exact => Into::Numbers(to.cast()),
    }
}

/// What undoes the scale of 16-bit gradients.
fn alpha(run: &PassContext<'_>) -> f32 {
    match run.precision {
        Precision::Mixed => 1.0 / SCALE,
        Precision::Exact => 1.0,
    }
}
