//! What work a client has, counted and not done.
use std::cell::{Cell, RefCell};

use fedeq_core::{
    Client, Descent, Neighbours, Params, Phase, Portion, Request, Result, Score, ServerState, Site, Task, Trains, Weights,
};
use fedeq_data::Seed;
use fedeq_equilibrium::WarmMemory;

use super::pace::Pace;
use crate::experiment::Prepared;

/// A client's answer to one request: passes over its data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Effort {
    /// What is trained, and for how many epochs.
    pub(super) trained: Vec<(Trains, usize)>,
    /// How often training, validation and test samples are looked at without training.
    pub(super) judged: [usize; 3],
}

impl Effort {
    /// What a client does when it is asked.
    pub(super) fn of(prepared: &Prepared, task: Task) -> Result<Self> {
        let experiment = &prepared.experiment;
        let counter = Counter { samples: prepared.samples_of(0)[0], ..Counter::default() };
        let mut state = prepared.fresh_state(0);
        let (algorithm, training) = (experiment.method.algorithm(), &experiment.training);
        let mut client = Client { algorithm, training, site: &counter, state: &mut state, seed: Seed::new(0) };
        let ServerState { weights, rho, .. } = prepared.server();
        client.handle(&Request { task, round: 0, rounds: experiment.plan.rounds, rho, weights })?;
        Ok(Self { trained: counter.trained.into_inner(), judged: counter.judged.get() })
    }

    /// Seconds for a client of so many batches, and so many training, validation and test samples to be judged by.
    pub(super) fn seconds(&self, pace: &Pace, batches: f64, samples: [f64; 3]) -> f64 {
        let trained: f64 = self.trained.iter().map(|(trains, epochs)| *epochs as f64 * batches * pace.batch(*trains)).sum();
        let judged: f64 = self.judged.iter().zip(samples).map(|(times, samples)| *times as f64 * samples * pace.sample).sum();
        trained + judged
    }
}

/// A site that takes note of what is asked of it and does nothing.
#[derive(Default)]
struct Counter {
    samples: usize,
    trained: RefCell<Vec<(Trains, usize)>>,
    judged: Cell<[usize; 3]>,
}

impl Counter {
    fn look_at(&self, portion: Portion) {
        let mut judged = self.judged.get();
        judged[portion as usize] += 1;
        self.judged.set(judged);
    }
}

impl Site for Counter {
    fn samples(&self) -> usize {
        self.samples
    }

    fn descend(&self, _: &mut Weights, _: &mut WarmMemory, phase: &Phase<'_>, _: Seed) -> Result<Descent> {
        self.trained.borrow_mut().push((phase.trains, phase.epochs));
        Ok(Descent::default())
    }

    fn score(&self, _: &Weights, on: Portion, neighbours: Option<&Neighbours>) -> Result<Score> {
        self.look_at(on);
        if neighbours.is_some() {
            self.look_at(Portion::Train); // Neighbours are found among embedded training samples.
        }
        Ok(Score::default())
    }

    fn gradient(&self, weights: &Weights) -> Result<(f64, Params)> {
        self.trained.borrow_mut().push((Trains::Everything, 1));
        Ok((0.0, weights.params.zeros_like()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn effort(settings: &[&str], task: Task) -> Effort {
        let wishes: Vec<_> = settings.iter().map(|setting| setting.parse().expect("a setting")).collect();
        let prepared = Experiment::read(None, &wishes).and_then(|experiment| experiment.prepare()).expect("an experiment");
        Effort::of(&prepared, task).expect("counted")
    }

    #[test]
    fn the_work_of_a_method_is_what_its_client_asks_of_its_site() {
        let epochs = ["training.epochs=3", "training.personal_epochs=2"];
        let trained = |method: &str| effort(&[&[method], &epochs[..]].concat(), Task::Train).trained;
        assert_eq!(trained("method=fedeq"), [(Trains::Personal, 2), (Trains::Shared, 3)]);
        assert_eq!(trained("method=fedavg"), [(Trains::Everything, 3)]);
        assert_eq!(trained("method=ditto"), [(Trains::Everything, 3), (Trains::Everything, 3)]);
        assert_eq!(effort(&["method=fedavg-ft"], Task::Finish).trained, [(Trains::Everything, 5)]);
    }

    #[test]
    fn both_models_of_a_client_are_judged_and_neighbours_are_embedded() {
        assert_eq!(effort(&["method=fedeq"], Task::Evaluate).judged, [0, 1, 2]);
        assert_eq!(effort(&["method=local"], Task::Evaluate).judged, [0, 1, 1]);
        assert_eq!(effort(&["method=knn-per"], Task::Evaluate).judged, [2, 1, 2]);
    }
}
