//! What work a client has, counted and not done.
use fedeq_core::{ClientInfo, ClientTask, Portion, RoundContext, ScoreRequest, Trains};

use super::pace::Pace;
use crate::experiment::Prepared;

/// A client's answer to one request: passes over its data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Effort {
    /// What is trained, and for how many epochs.
    pub(super) trained: Vec<(Trains, usize)>,
    /// How often training, validation and test samples are looked at without training.
    pub(super) evaluated: [usize; 3],
}

impl Effort {
    /// What a client that has not trained yet does when it is asked: a method says so in plain values.
    pub(super) fn of(prepared: &Prepared, task: ClientTask) -> Self {
        let experiment = &prepared.experiment;
        let (algorithm, me) = (experiment.method.algorithm(), ClientInfo::default());
        let (rounds, rho) = (experiment.plan.rounds, algorithm.initial_rho());
        let round = RoundContext { round: 0, rounds, rho, training: &experiment.training };
        let update = match task {
            ClientTask::Train => algorithm.client_update(&me, &round),
            ClientTask::Finish => algorithm.finish(&me, &round),
            ClientTask::Adopt => algorithm.adopt(&me, &round),
            // Keys and masks take no training.
            ClientTask::Aggregate => return Self::default(),
            ClientTask::Evaluate => return Self::asked(&ScoreRequest::all(algorithm, &me)),
            // The gradient takes a pass over all training data.
            ClientTask::Measure => {
                return Self { trained: vec![(Trains::Everything, 1)], ..Self::of(prepared, ClientTask::Evaluate) };
            }
        };
        Self { trained: update.passes().collect(), ..Self::default() }
    }

    fn asked(requests: &[ScoreRequest]) -> Self {
        let mut effort = Self::default();
        for request in requests {
            effort.evaluated[request.on as usize] += 1;
            if request.neighbours.is_some() {
                effort.evaluated[Portion::Train as usize] += 1; // Neighbours are found among embedded training samples.
            }
        }
        effort
    }

    /// How often samples are looked at without training, of so many training, validation and test samples.
    pub(super) fn looks(&self, samples: [f64; 3]) -> f64 {
        self.evaluated.iter().zip(samples).map(|(times, samples)| *times as f64 * samples).sum()
    }

    /// Seconds for a client of so many batches, and so many training, validation and test samples to be evaluated by.
    pub(super) fn seconds(&self, pace: &Pace, batches: f64, samples: [f64; 3]) -> f64 {
        let trained: f64 = self.trained.iter().map(|(trains, epochs)| *epochs as f64 * batches * pace.batch(*trains)).sum();
        trained + self.looks(samples) * pace.sample()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn effort(settings: &[&str], task: ClientTask) -> Effort {
        let wishes: Vec<_> = settings.iter().map(|setting| setting.parse().expect("a setting")).collect();
        let prepared = Experiment::read(None, &wishes).and_then(|experiment| experiment.prepare()).expect("an experiment");
        Effort::of(&prepared, task)
    }

    #[test]
    fn the_work_of_a_method_is_counted_from_its_local_updates() {
        let epochs = ["training.epochs=3", "training.personal_epochs=2"];
        let trained = |method: &str| effort(&[&[method], &epochs[..]].concat(), ClientTask::Train).trained;
        assert_eq!(trained("method=fedeq"), [(Trains::Personal, 2), (Trains::Shared, 3)]);
        assert_eq!(trained("method=fedavg"), [(Trains::Everything, 3)]);
        assert_eq!(trained("method=apfl"), [(Trains::Everything, 3); 2]);
        assert_eq!(
            effort(&["method=pfedme", "method.inner_steps=4", epochs[0]], ClientTask::Train).trained,
            [(Trains::Everything, 12)]
        );
        assert_eq!(trained("method=ditto"), [(Trains::Everything, 3), (Trains::Everything, 3)]);
        assert_eq!(effort(&["method=fedavg-ft"], ClientTask::Finish).trained, [(Trains::Everything, 5)]);
    }

    #[test]
    fn both_models_of_a_client_are_evaluated_and_neighbours_are_embedded() {
        assert_eq!(effort(&["method=fedeq"], ClientTask::Evaluate).evaluated, [0, 1, 2]);
        assert_eq!(effort(&["method=local"], ClientTask::Evaluate).evaluated, [0, 1, 1]);
        assert_eq!(effort(&["method=knn-per"], ClientTask::Evaluate).evaluated, [2, 1, 2]);
    }
}
