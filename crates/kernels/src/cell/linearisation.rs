//! A cell near a state: what its gradients need.
use super::backward::{Add, InnerBack, Measured, NormGradient, OuterBack};
use super::forward::{CellOutput, CellStatistics};
use super::{CellScratch, Middle, PreparedCell};
use crate::activation::{Activation, Relu, Softplus};
use crate::buffer::aligned;
use crate::conv;
use crate::norm::{AffineGradient, Moments, Region, Sums, Workspace, sums_to};

/// A step with the intermediate values its gradients need: four times as many numbers as the state has.
#[derive(Debug, Default)]
pub struct Linearisation {
    /// `phi(conv_a(z))`
    inner: Vec<f32>,
    /// `u + conv_b(...)`
    sum: Vec<f32>,
    /// `phi(z + GN2(...))`
    activated: Vec<f32>,
    moments: [Moments; 3],
}

/// The gradients of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct CellGradients {
    /// Of the state.
    pub z: Vec<f32>,
    /// Of the injected input.
    pub u: Vec<f32>,
    /// Of the first convolution, `[2C, C, 3, 3]`.
    pub conv_a: Vec<f32>,
    /// Of the first normalisation.
    pub norm_1: AffineGradient,
    /// Of the second convolution, `[C, 2C, 3, 3]`.
    pub conv_b: Vec<f32>,
    /// Of the second normalisation.
    pub norm_2: AffineGradient,
    /// Of the third normalisation.
    pub norm_3: AffineGradient,
}

/// Where the gradients of a step go.
#[derive(Debug)]
pub struct CellTargets<'a> {
    /// That of the state, if it is wanted.
    pub z: Option<&'a mut [f32]>,
    /// That of the injected input.
    pub u: &'a mut [f32],
    /// Those of the parameters, if they are wanted.
    pub parameters: Option<ParameterTargets<'a>>,
}

/// Where the gradients of a cell's parameters go.
#[derive(Debug)]
pub struct ParameterTargets<'a> {
    /// `[2C, C, 3, 3]`
    pub conv_a: &'a mut [f32],
    /// `[C, 2C, 3, 3]`
    pub conv_b: &'a mut [f32],
    /// Scale and offset of the three normalisations.
    pub norms: [[&'a mut [f32]; 2]; 3],
}

impl PreparedCell {
    /// `out = g(z; u)`, the very numbers that [`step`](PreparedCell::step) gives, with what its gradients need.
    ///
    /// # Panics
    ///
    /// If the slices are not equally many whole states.
    pub fn step_saving(&self, z: &[f32], u: &[f32], out: &mut [f32], scratch: &mut CellScratch) -> Linearisation {
        self.check(&[z.len(), u.len(), out.len()]);
        self.save(z, u, Some(out), scratch)
    }

    /// The cell near `z`, to [pull](Linearisation::pull_back) any number of vectors back.
    ///
    /// # Panics
    ///
    /// If the slices are not equally many whole states.
    pub fn linearise(&self, z: &[f32], u: &[f32], scratch: &mut CellScratch) -> Linearisation {
        self.check(&[z.len(), u.len()]);
        self.save(z, u, None, scratch)
    }

    fn save(&self, z: &[f32], u: &[f32], mut out: Option<&mut [f32]>, scratch: &mut CellScratch) -> Linearisation {
        let mut saved = std::mem::take(&mut scratch.spare);
        saved.resize(self, z.len());
        let (chunk, statistics) = (self.chunk() * self.cell.state_len(), self.chunk() * self.cell.statistics());
        scratch.grow(&self.cell, self.chunk());
        let CellScratch { conv, wide, work, .. } = scratch;
        let [first, second, third] = &mut saved.moments;
        for (index, (z, u)) in z.chunks(chunk).zip(u.chunks(chunk)).enumerate() {
            let (samples, here) = (z.len() / self.cell.state_len(), index * chunk..index * chunk + z.len());
            let inner = &mut saved.inner[2 * here.start..2 * here.end];
            let sum = &mut saved.sum[here.clone()];
            let wide = wide.take(2 * z.len());
            conv::forward(self.set, &self.cell.conv_a(samples), z, &self.forward[0], inner, conv);
            self.inner(inner, first.from(index * statistics), CellOutput::To(wide), work);
            conv::forward(self.set, &self.cell.conv_b(samples), wide, &self.forward[1], sum, conv);
            let middle = Middle { b: sum, u, z, statistics: [second.from(index * statistics), third.from(index * statistics)] };
            let to = out.as_mut().map_or(CellOutput::Nowhere, |out| CellOutput::To(&mut out[here.clone()]));
            self.outer(middle, CellOutput::To(&mut saved.activated[here]), to, work);
        }
        saved
    }
}

impl Linearisation {
    /// The memory of `phi(conv_a(z))` (two numbers for each of the states), `u + conv_b(...)` and `phi(z + GN2(...))` (one for each), for whoever uses it for something
    /// else when the linearisation is [done with](CellScratch::recycle).
    pub fn memory(&mut self) -> [&mut Vec<f32>; 3] {
        [&mut self.inner, &mut self.sum, &mut self.activated]
    }

    /// With room for states of `len` numbers in all.
    fn resize(&mut self, prepared: &PreparedCell, len: usize) {
        let count = len / prepared.cell.state_len() * prepared.cell.statistics();
        self.inner.resize(2 * len, 0.0);
        self.sum.resize(len, 0.0);
        self.activated.resize(len, 0.0);
        for moments in &mut self.moments {
            moments.mean.resize(count, 0.0);
            moments.variance.resize(count, 0.0);
        }
    }

    /// `out = (dg/dz)^T v`
    ///
    /// # Panics
    ///
    /// If `v` and `out` are not as many states as the cell was taken at, or `prepared` is another cell.
    pub fn pull_back(&self, prepared: &PreparedCell, v: &[f32], out: &mut [f32], scratch: &mut CellScratch) {
        prepared.check(&[self.sum.len(), v.len(), out.len()]);
        scratch.grow(&prepared.cell, 1);
        let chunk = prepared.chunk() * prepared.cell.state_len();
        for (index, (v, out)) in v.chunks(chunk).zip(out.chunks_mut(chunk)).enumerate() {
            let CellScratch { conv, wide, narrow, work, sums, .. } = scratch;
            let back = Back { saved: self, prepared, at: index * chunk, len: v.len() };
            let (wide, narrow) = (wide.take(2 * v.len()), narrow.take(2 * v.len()));
            let (dz, du) = narrow.split_at_mut(v.len());
            back.outer(v, dz, du, work, sums);
            back.conv_b(du, wide, conv);
            back.inner(wide, None, work, &mut sums[0]);
            back.conv_a(wide, out, conv);
            prepared.set.run(Add { x: dz, to: out });
        }
    }

    /// The gradients of the state, the injected input and all parameters, given that of the result.
    ///
    /// # Panics
    ///
    /// If `z` and the gradient are not as many states as the cell was taken at, or `prepared` is another cell.
    pub fn backward(&self, prepared: &PreparedCell, z: &[f32], gradient: &[f32], scratch: &mut CellScratch) -> CellGradients {
        let [first, second, third] = prepared.cell.norm_channels();
        let norm = |channels| AffineGradient { scale: vec![0.0; channels], offset: vec![0.0; channels] };
        let mut found = CellGradients {
            z: vec![0.0; z.len()],
            u: vec![0.0; z.len()],
            conv_a: vec![0.0; prepared.cell.conv_a(1).weight_len()],
            norm_1: norm(first),
            conv_b: vec![0.0; prepared.cell.conv_b(1).weight_len()],
            norm_2: norm(second),
            norm_3: norm(third),
        };
        let CellGradients { z: dz, u: du, conv_a, norm_1, conv_b, norm_2, norm_3 } = &mut found;
        let norms = [norm_1, norm_2, norm_3].map(|norm| [&mut norm.scale[..], &mut norm.offset]);
        let parameters = ParameterTargets { conv_a, conv_b, norms };
        self.backward_to(prepared, z, gradient, CellTargets { z: Some(dz), u: du, parameters: Some(parameters) }, scratch);
        found
    }

    /// The same, as far as they are wanted, to where they are wanted.
    ///
    /// # Panics
    ///
    /// As [`backward`](Linearisation::backward), or if there is not a place for every number of what is wanted.
    pub fn backward_to(
        &self,
        prepared: &PreparedCell,
        z: &[f32],
        gradient: &[f32],
        to: CellTargets<'_>,
        scratch: &mut CellScratch,
    ) {
        let CellTargets { z: mut dz, u: du, parameters } = to;
        prepared.check(&[self.sum.len(), z.len(), gradient.len(), du.len(), dz.as_ref().map_or(z.len(), |dz| dz.len())]);
        scratch.grow(&prepared.cell, 1);
        let CellScratch { conv, narrow, batch, work, sums, .. } = scratch;
        let [normalized, da] = batch.each_mut().map(|memory| aligned(memory, 2 * z.len()));
        let chunk = prepared.chunk() * prepared.cell.state_len();
        for (index, gradient) in gradient.chunks(chunk).enumerate() {
            let back = Back { saved: self, prepared, at: index * chunk, len: gradient.len() };
            let (here, wide) = (back.at..back.at + back.len, 2 * back.at..2 * (back.at + back.len));
            let (du, da) = (&mut du[here.clone()], &mut da[wide.clone()]);
            let direct = narrow.take(gradient.len());
            back.outer(gradient, direct, du, work, sums);
            back.conv_b(du, da, conv);
            back.inner(da, Some(&mut normalized[wide]), work, &mut sums[0]);
            if let Some(dz) = &mut dz {
                let dz = &mut dz[here];
                back.conv_a(da, dz, conv);
                prepared.set.run(Add { x: direct, to: dz });
            }
        }
        let Some(parameters) = parameters else { return };
        let samples = z.len() / prepared.cell.state_len();
        conv::weight_gradient(prepared.set, &prepared.cell.conv_a(samples), z, da, parameters.conv_a, conv);
        conv::weight_gradient(prepared.set, &prepared.cell.conv_b(samples), normalized, du, parameters.conv_b, conv);
        for ([scale, offset], sums) in parameters.norms.into_iter().zip(sums) {
            sums_to(&sums.scale, scale);
            sums_to(&sums.offset, offset);
        }
    }
}

/// A chunk of samples on its way back.
struct Back<'a> {
    saved: &'a Linearisation,
    prepared: &'a PreparedCell,
    /// Where the chunk begins in a state.
    at: usize,
    len: usize,
}

impl Back<'_> {
    /// From the gradient of the result to those of `z` on the direct way and of `u`.
    fn outer(&self, gradient: &[f32], dz: &mut [f32], du: &mut [f32], work: &mut Workspace, sums: &mut [Sums; 3]) {
        let region = self.prepared.cell.region(self.prepared.cell.channels);
        let [_, second, third] = sums;
        let (second, third) = (self.layer(1, region, second), self.layer(2, region, third));
        let here = self.at..self.at + self.len;
        let (sum, activated) = (&self.saved.sum[here.clone()], &self.saved.activated[here]);
        let set = self.prepared.set;
        match self.prepared.cell.activation {
            Activation::Relu => set.run(OuterBack { phi: Relu, second, third, sum, activated, gradient, dz, du, work }),
            Activation::Softplus => set.run(OuterBack { phi: Softplus, second, third, sum, activated, gradient, dz, du, work }),
        }
    }

    /// From the gradient of the first normalisation to that of the first convolution, in place.
    fn inner(&self, gradient: &mut [f32], normalized: Option<&mut [f32]>, work: &mut Workspace, sums: &mut Sums) {
        let region = self.prepared.cell.region(2 * self.prepared.cell.channels);
        let first = self.layer(0, region, sums);
        let activated = &self.saved.inner[2 * self.at..2 * (self.at + self.len)];
        let set = self.prepared.set;
        match self.prepared.cell.activation {
            Activation::Relu => set.run(InnerBack { phi: Relu, first, activated, gradient, normalized, work }),
            Activation::Softplus => set.run(InnerBack { phi: Softplus, first, activated, gradient, normalized, work }),
        }
    }

    fn conv_a(&self, dy: &[f32], dx: &mut [f32], scratch: &mut conv::ConvScratch) {
        let geometry = self.prepared.cell.conv_a(self.samples());
        conv::input_gradient(self.prepared.set, &geometry, dy, &self.prepared.backward_weights()[0], dx, scratch);
    }

    fn conv_b(&self, dy: &[f32], dx: &mut [f32], scratch: &mut conv::ConvScratch) {
        let geometry = self.prepared.cell.conv_b(self.samples());
        conv::input_gradient(self.prepared.set, &geometry, dy, &self.prepared.backward_weights()[1], dx, scratch);
    }

    fn samples(&self) -> usize {
        self.len / self.prepared.cell.state_len()
    }

    fn layer<'b>(&'b self, index: usize, region: Region, sums: &'b mut Sums) -> NormGradient<'b> {
        let from = self.at / self.prepared.cell.state_len() * self.prepared.cell.statistics();
        let Moments { mean, variance } = &self.saved.moments[index];
        let measured = Measured { mean: &mean[from..], variance: &variance[from..] };
        NormGradient { region, norm: self.prepared.norms[index].get(), measured, sums }
    }
}

impl Moments {
    fn from(&mut self, first: usize) -> CellStatistics<'_> {
        CellStatistics { mean: &mut self.mean[first..], variance: &mut self.variance[first..] }
    }
}
