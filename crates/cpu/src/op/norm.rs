//! Batch and group normalisation, with what is fused to it.
use fedeq_kernels::activation::Activation;
use fedeq_kernels::norm::{self as kernels, AffineTargets, Moments};
use fedeq_models::Mode;
use fedeq_models::graph::{Affine, Fusion, NormScope, ValueId};

use super::{Op, PassContext};
use crate::memory::{Buffer, Target, add};
use crate::op::kernel_of;
use crate::parameters::{ParameterTarget, Values};
use crate::plan::{PassedGradient, Planner};

#[derive(Debug)]
pub(super) struct Norm {
    norm: kernels::Norm,
    affine: Affine,
    /// Which running statistics it has, if it has any.
    running: Option<usize>,
    /// Whether these stand in for its own.
    given: bool,
    x: Buffer,
    shortcut: Option<Buffer>,
    y: Buffer,
    moments: Moments,
    back: Option<Back>,
}

#[derive(Debug)]
struct Back {
    dy: Buffer,
    /// Where the output is on the way back, if its activation comes last.
    y: Option<Buffer>,
    /// Where the gradient of the input goes, which is computed even if it is not wanted.
    dx: Target,
    /// The shortcut's activation and where its gradient goes, which is that of the output in front of the activation.
    shortcut: Option<(Activation, PassedGradient)>,
    scale: Option<ParameterTarget>,
    offset: Option<ParameterTarget>,
}

impl Norm {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, affine: Affine, over: NormScope, fusion: Fusion, y: ValueId) -> Self {
        let shape = plan.images(x);
        let (groups, scope) = match over {
            NormScope::Batch { .. } => (shape.channels, kernels::NormScope::Batch),
            NormScope::Groups(groups) => (groups, kernels::NormScope::Plane),
            NormScope::RowGroups(groups) => (groups, kernels::NormScope::Row),
        };
        let (kernel_fusion, shortcut) = match fusion {
            Fusion::None => (kernels::Fusion::None, None),
            Fusion::Before(phi) => (kernels::Fusion::Before(kernel_of(phi)), None),
            Fusion::After(phi) => (kernels::Fusion::After(kernel_of(phi)), None),
            Fusion::AddThen(shortcut, phi) => (kernels::Fusion::After(kernel_of(phi)), Some((shortcut, kernel_of(phi)))),
        };
        let running = if let NormScope::Batch { statistics } = over { Some(statistics) } else { None };
        let last = matches!(kernel_fusion, kernels::Fusion::After(_));
        let back = plan.incoming(y).map(|dy| Back {
            dy,
            y: last.then(|| if shortcut.is_some() { plan.backward(y) } else { plan.kept_or_repeated(y) }),
            dx: plan.target(x).unwrap_or_else(|| Target { buffer: plan.temporary(shape.len()), added_by: None }),
            shortcut: shortcut.map(|(shortcut, phi)| (phi, plan.same_as(shortcut, dy))),
            scale: plan.parameter(affine.scale),
            offset: plan.parameter(affine.offset),
        });
        if back.is_some() {
            plan.backward(x);
        }
        Self {
            norm: kernels::Norm { shape, groups, scope, fusion: kernel_fusion },
            affine,
            running,
            given: running.is_some() && plan.mode == Mode::Evaluate,
            x: plan.forward(x),
            shortcut: shortcut.map(|(shortcut, _)| plan.forward(shortcut)),
            y: plan.forward(y),
            moments: Moments::default(),
            back,
        }
    }
}

fn affine_of<'a>(affine: Affine, parameters: &Values<'a>) -> kernels::Affine<'a> {
    kernels::Affine { scale: parameters.get(affine.scale), offset: parameters.get(affine.offset) }
}

impl Op for Norm {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        let affine = affine_of(self.affine, &run.parameters);
        let running = self.running.map(|index| &mut run.statistics[index]);
        let given = running.as_ref().filter(|_| self.given).map(|running| &running.moments);
        let scratch = &mut run.scratch.norm;
        run.numbers.write(self.y, |numbers, y| {
            let (x, shortcut) = (numbers.read(self.x), self.shortcut.map(|shortcut| numbers.read(shortcut)));
            match given {
                Some(moments) => self.norm.apply(run.set, (x, shortcut), affine, moments, y, scratch),
                None => self.norm.forward_to(run.set, (x, shortcut), affine, y, &mut self.moments, scratch),
            }
        });
        if let Some(running) = running.filter(|_| !self.given) {
            running.observe(&self.moments);
        }
    }

    fn repeat(&mut self, run: &mut PassContext<'_>) {
        let Some(y) = self.back.as_ref().and_then(|back| back.y) else { return };
        let affine = affine_of(self.affine, &run.parameters);
        let moments = if self.given { &run.statistics[self.running.unwrap_or_default()].moments } else { &self.moments };
        let scratch = &mut run.scratch.norm;
        run.numbers.write(y, |numbers, y| self.norm.apply(run.set, (numbers.read(self.x), None), affine, moments, y, scratch));
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(back) = &self.back else { return };
        let affine = affine_of(self.affine, &run.parameters);
        let moments = if self.given { &run.statistics[self.running.unwrap_or_default()].moments } else { &self.moments };
        let mut norm = self.norm;
        if let Some((phi, passed)) = back.shortcut {
            // Through the activation in place; what is left is the gradient of the shortcut and of the plain normalisation.
            let y = back.y.unwrap_or(self.y);
            run.numbers.write(back.dy, |numbers, dy| phi.backward_in_place(run.set, numbers.read(y), dy));
            if let PassedGradient::AddedTo(sum) = passed {
                run.numbers.write(sum, |numbers, sum| add(sum, numbers.read(back.dy)));
            }
            norm.fusion = kernels::Fusion::None;
        }
        let y = back.y.filter(|_| matches!(norm.fusion, kernels::Fusion::After(_)));
        let (x, dy, given) = (self.x, back.dy, self.given);
        let (set, numbers, scratch) = (run.set, &mut run.numbers, &mut run.scratch.norm);
        run.gradients.write_some([back.scale, back.offset], |[scale, offset]| {
            numbers.write_gradient(back.dx, |numbers, dx| {
                let y = y.map_or(&[][..], |y| numbers.read(y));
                let saved = kernels::NormSaved { x: numbers.read(x), y, moments, given };
                let to = AffineTargets { scale, offset };
                norm.backward_to(set, saved, affine, numbers.read(dy), (dx, None), to, scratch);
            });
        });
    }
}
