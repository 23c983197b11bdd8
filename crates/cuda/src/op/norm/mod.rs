//! Batch and group normalisation, with what is fused to it.
mod batch;
mod group;

use fedeq_core::Result;
use fedeq_models::graph::{Affine, Fusion, Layer, NormScope, ParameterId, ValueId};

use super::{Op, PassContext, phi};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::plan::{Form, Forms, Passed, Planner, SCALE, Written};

pub(crate) use group::{Cut, Shape, cut};

/// The normalisation with its place in the plan.
pub(super) fn build(
    plan: &mut Planner<'_>,
    x: ValueId,
    affine: Affine,
    over: NormScope,
    fusion: Fusion,
    y: ValueId,
) -> Box<dyn Op> {
    match over {
        NormScope::Batch { statistics } => Box::new(batch::BatchNorm::new(plan, x, affine, statistics, fusion, y)),
        NormScope::Groups(groups) => Box::new(group::GroupNorm::new(plan, x, affine, (groups, false), fusion, y)),
        NormScope::RowGroups(groups) => Box::new(group::GroupNorm::new(plan, x, affine, (groups, true), fusion, y)),
    }
}

/// What all normalisations have: `after(norm(before(x)) + shortcut)`.
struct FusedNorm {
    affine: Affine,
    /// Of a value whose activation has not been applied: where that goes to.
    activates: Option<Slot>,
    /// What was given, which is what is normalised unless it is to be activated.
    x: Slot,
    /// That of what is normalised, and of the output where the way back reads it.
    form: Form,
    /// Numbers of a sample.
    count: usize,
    /// As kernels know them.
    before: i32,
    after: i32,
    shortcut: Option<Slot>,
    y: Forms,
    back: Option<Back>,
}

/// The way back.
struct Back {
    dy: Slot,
    /// The output, if there is an activation behind.
    y: Option<Slot>,
    dx: Option<Written>,
    shortcut: Passed,
    /// The scale, whose gradient is followed by that of the offset, if they are trained.
    trained: Option<ParameterId>,
}

impl FusedNorm {
    fn new(plan: &mut Planner<'_>, x: ValueId, affine: Affine, fusion: Fusion, y: ValueId) -> Self {
        let (before, after, shortcut) = match fusion {
            Fusion::None => (None, None, None),
            Fusion::Before(phi) => (Some(phi), None, None),
            Fusion::After(phi) => (None, Some(phi), None),
            Fusion::AddThen(shortcut, phi) => (None, Some(phi), Some(shortcut)),
        };
        let activates = before.is_some() && plan.activation_behind(x).is_none();
        // Convolutions write 16 bits as readily as 32.
        let by_conv = matches!(plan.giver(x), Some(Layer::Conv { .. }));
        let form = if by_conv && !activates { plan.factors() } else { Form::Numbers };
        let back = plan.incoming(y).map(|dy| Back {
            dy: dy.slot,
            y: after.map(|_| plan.reads_again(y, form)),
            dx: plan.written(x),
            shortcut: shortcut.map_or(Passed::Unwanted, |shortcut| plan.same_as(shortcut, dy.slot)),
            trained: [affine.offset, affine.scale].into_iter().filter_map(|id| plan.parameter(id)).last().map(|target| target.id),
        });
        if back.is_some() && !activates {
            plan.reads_again(x, form);
        }
        let precision = plan.purpose.precision;
        Self {
            affine,
            activates: activates.then(|| plan.kept(plan.bytes(x, Form::Numbers))),
            x: plan.reads(x, form),
            form,
            count: plan.count(x),
            before: phi(before, precision),
            after: phi(after, precision),
            shortcut: shortcut.map(|shortcut| plan.reads(shortcut, Form::Numbers)),
            y: plan.writes(y),
            back,
        }
    }

    /// What is normalised.
    fn input(&self) -> Slot {
        self.activates.unwrap_or(self.x)
    }

    /// Applies the activation in front, if that has not been done.
    fn activate(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(to) = self.activates else { return Ok(()) };
        let kernel = Launch::new("activation", run.by_sample(self.count.div_ceil(256)), 256);
        let (x, y, none) = (run.at::<f32>(self.x), run.at::<f32>(to), Pointer::<half::f16>::NULL);
        launch!(run.device, kernel; x, y, none, run.cohort, self.count as i32, self.before)
    }

    /// The name of a kernel in the precision of what is normalised.
    fn named(&self, [numbers, halves]: [&'static str; 2]) -> &'static str {
        match self.form {
            Form::Numbers => numbers,
            Form::Halves => halves,
        }
    }
}

impl Back {
    /// Where the gradient behind the activation goes: it replaces that of the output. Nowhere if it is the same.
    fn d(&self, run: &PassContext<'_>) -> Pointer<f32> {
        if self.y.is_some() { run.at(self.dy) } else { Pointer::NULL }
    }

    fn dx<T>(&self, of: impl Fn(&Written) -> Pointer<T>) -> Pointer<T> {
        self.dx.as_ref().map_or(Pointer::NULL, of)
    }

    /// Hands the shortcut its gradient, and completes that of the input.
    fn finish(&self, run: &PassContext<'_>, count: usize) -> Result<()> {
        if let Passed::AddedTo(sum) = self.shortcut {
            run.add(run.at(self.dy), run.at(sum), count)?;
        }
        self.dx.map_or(Ok(()), |dx| dx.finish(run))
    }
}
