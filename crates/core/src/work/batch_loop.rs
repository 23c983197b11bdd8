//! Steps that are repeated for every batch, for methods that do something between two gradient steps.
use std::vec::IntoIter;

use super::{Phase, Step};

/// Some steps for every batch of some epochs. Each phase among them trains on that batch alone, as many steps as it has epochs; phases of one name have the same batches. Step
/// sizes follow the phase's schedule from batch to batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchLoop {
    /// Passes over the data.
    pub epochs: usize,
    /// Batches of an epoch.
    pub batches: usize,
    /// What is done for each.
    pub steps: Vec<Step>,
}

impl BatchLoop {
    /// A phase as it is carried out for the batch of this number, of all epochs' batches.
    pub fn phase(&self, phase: &Phase, number: u64) -> Phase {
        phase.on_batch(number, self.epochs, self.batches)
    }

    fn all(&self) -> u64 {
        (self.epochs * self.batches) as u64
    }

    fn step(&self, at: usize, number: u64) -> Option<Step> {
        self.steps.get(at).map(|step| match step {
            Step::Train(phase) => Step::Train(self.phase(phase, number).into()),
            step => step.clone(),
        })
    }
}

/// The steps of an update one by one. Those for every batch are made when their turn comes: there may be very many.
#[derive(Clone, Debug)]
pub struct Steps {
    rest: IntoIter<Step>,
    /// Steps for every batch under way: the batch, and the next step for it.
    open: Option<(Box<BatchLoop>, u64, usize)>,
}

impl Steps {
    pub(super) fn new(steps: Vec<Step>) -> Self {
        Self { rest: steps.into_iter(), open: None }
    }

    fn next_of_loop(&mut self) -> Option<Step> {
        let (batches, number, at) = self.open.as_mut()?;
        while *number < batches.all() && !batches.steps.is_empty() {
            if let Some(step) = batches.step(*at, *number) {
                *at += 1;
                return Some(step);
            }
            (*number, *at) = (*number + 1, 0);
        }
        self.open = None;
        None
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.next_of_loop() {
                return Some(step);
            }
            match self.rest.next()? {
                Step::ForEachBatch(batches) => self.open = Some((batches, 0, 0)),
                step => return Some(step),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimiser::{Schedule, ScheduleShape};
    use crate::work::{LocalUpdate, Slot, Trains, own};

    fn loop_of(batches: usize) -> LocalUpdate {
        let schedule = Some(Schedule { shape: ScheduleShape::Step, every: Some(2), factor: Some(0.5), ..Schedule::default() });
        let phase = Phase { schedule, ..Phase::new("body", Trains::Everything, 3, 0.8) };
        let mut update = LocalUpdate::default();
        update.assign(Slot::Second, own());
        let steps = vec![Step::Train(phase.into()), Step::Assign { slot: Slot::Dual, value: own() }];
        update.for_each_batch(BatchLoop { epochs: 2, batches, steps });
        update.assign(Slot::Second, own());
        update
    }

    #[test]
    fn every_batch_of_every_epoch_has_its_steps_with_its_step_size() {
        let update = loop_of(2);
        let phase = |step| {
            if let Step::Train(phase) = step { Some((phase.pass, phase.batch, phase.epochs, phase.learning_rate)) } else { None }
        };
        let found: Vec<_> = update.carried_out().filter_map(phase).collect();
        assert_eq!(found, [(0, Some(0), 3, 0.8), (0, Some(1), 3, 0.8), (1, Some(0), 3, 0.4), (1, Some(1), 3, 0.4)]);
        assert_eq!(update.carried_out().count(), 2 + 4 * 2);
        assert_eq!((update.written().count(), update.phases().count()), (4, 1));
        assert_eq!(update.passes().collect::<Vec<_>>(), [(Trains::Everything, 6)]);
    }

    #[test]
    fn without_batches_only_what_is_around_them_is_done() {
        assert_eq!(loop_of(0).carried_out().count(), 2);
    }
}
