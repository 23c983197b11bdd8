//! Gradients of parameters by several differentiated steps of a cell, or by several layers that share them, added up.
//!
//! Kernels write gradients over what is there. So the sum is kept aside while further steps write theirs, and comes back at the end.
use std::ops::Range;

use fedeq_core::Result;
use fedeq_models::graph::ParameterId;

use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::op::PassContext;
use crate::plan::Planner;

pub(crate) struct Sums {
    /// Where the gradients are in a lane, and memory for their sum.
    pieces: Vec<(Range<usize>, Slot)>,
}

impl Sums {
    /// For the trained parameters of the layer the plan stands at.
    pub(super) fn new(plan: &mut Planner<'_>, steps: usize) -> Self {
        let trained = plan.trained_here();
        Self::of(plan, &trained, steps)
    }

    /// For some parameters.
    pub(crate) fn of(plan: &mut Planner<'_>, parameters: &[ParameterId], steps: usize) -> Self {
        if steps == 1 {
            return Self { pieces: Vec::new() };
        }
        let lanes = plan.purpose.size.lanes;
        let pieces = pieces(plan, parameters);
        Self { pieces: pieces.into_iter().map(|range| (range.clone(), plan.scratch_back(4 * lanes * range.len()))).collect() }
    }

    /// Takes note of the gradients of step number `index` of so many, the last of which comes first. After step 0 the sums are where gradients belong.
    pub(crate) fn add(&self, run: &PassContext<'_>, index: usize, steps: usize) -> Result<()> {
        for (range, slot) in &self.pieces {
            let (gradient, sum) = (run.gradients.add(range.start), run.at::<f32>(*slot));
            let (stride, packed, n) = (run.stride(), range.len() as i64, range.len());
            let launch = Launch::new("lanes_plus", [n.div_ceil(1024), run.size.lanes, 1], 256);
            if index + 1 == steps {
                launch!(run.device, launch; sum, gradient, Pointer::<f32>::NULL, packed, stride, 0_i64, n as i64, 1.0_f32)?;
            } else if index > 0 {
                launch!(run.device, launch; sum, sum, gradient, packed, packed, stride, n as i64, 1.0_f32)?;
            } else {
                launch!(run.device, launch; gradient, gradient, sum, stride, stride, packed, n as i64, 1.0_f32)?;
            }
        }
        Ok(())
    }
}

/// The numbers of a lane that these parameters take: one piece for those that follow each other.
fn pieces(plan: &Planner<'_>, parameters: &[ParameterId]) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> =
        parameters.iter().map(|&id| plan.layout.place(id)).map(|place| place.start..place.end()).collect();
    places.sort_unstable_by_key(|place| place.start);
    let mut pieces: Vec<Range<usize>> = Vec::new();
    for place in places {
        match pieces.last_mut() {
            // Parameters begin at multiples of 64 or stand between the columns of others: nothing else is in a smaller gap.
            Some(piece) if place.start <= piece.end.next_multiple_of(64) => piece.end = piece.end.max(place.end),
            _ => pieces.push(place),
        }
    }
    pieces
}
