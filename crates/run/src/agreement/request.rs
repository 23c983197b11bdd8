//! Which requests belong to an agreement.
use fedeq_core::{ClientTask, Error, Request, Result};

use super::Agreement;

impl Agreement {
    /// Refuses a request that the experiment does not lead to: another task, another round, another penalty.
    pub fn check_request(&self, request: &Request) -> Result<()> {
        let plan = &self.experiment.plan;
        let refuse = |name: &str, value: String| {
            let problem = format!("the request says `{name} = {value}`, which is no part of the experiment");
            Err(Error::invalid(problem, "the server must ask for what the experiment says"))
        };
        if request.rounds != plan.rounds {
            return refuse("rounds", request.rounds.to_string());
        }
        if !self.is_foreseen(request) {
            return refuse("task", format!("{:?} {}", request.task, request.round).to_lowercase());
        }
        let algorithm = self.experiment.method.algorithm();
        // Where the server does nothing but take a mean, the penalty stays as it is.
        if algorithm.plain_mean().is_some() && request.rho != algorithm.initial_rho() {
            return refuse("rho", request.rho.map_or("none".into(), |rho| rho.to_string()));
        }
        Ok(())
    }

    /// Whether the plan has this task at this round.
    fn is_foreseen(&self, request: &Request) -> bool {
        let plan = &self.experiment.plan;
        let (round, every) = (request.round, plan.evaluate_every);
        let is_evaluated = round == plan.rounds || (every > 0 && round > 0 && round < plan.rounds && round.is_multiple_of(every));
        match request.task {
            ClientTask::Train => round < plan.rounds,
            ClientTask::Evaluate => is_evaluated && !plan.measure_theory,
            ClientTask::Measure => is_evaluated && plan.measure_theory,
            ClientTask::Finish | ClientTask::Adopt => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::agreement;
    use super::*;

    fn is_allowed(agreement: &Agreement, task: ClientTask, round: u64, rounds: u64, rho: Option<f64>) -> bool {
        let request = Request { task, round, rounds, rho, weights: Default::default() };
        agreement.check_request(&request).is_ok()
    }

    #[test]
    fn only_what_the_plan_says_is_allowed() {
        let agreement = agreement(&["plan.rounds=6", "plan.evaluate_every=2", "method.rho=0.3"]);
        let rho = Some(0.3);
        let rounds = |task| (0..8).filter(|round| is_allowed(&agreement, task, *round, 6, rho)).collect::<Vec<_>>();
        assert_eq!(rounds(ClientTask::Train), [0, 1, 2, 3, 4, 5]);
        assert_eq!(rounds(ClientTask::Evaluate), [2, 4, 6]);
        for task in [ClientTask::Measure, ClientTask::Finish, ClientTask::Adopt] {
            assert!(rounds(task).is_empty(), "{task:?}");
        }
        assert!(!is_allowed(&agreement, ClientTask::Train, 0, 7, rho));
        for rho in [None, Some(0.0), Some(1e30)] {
            assert!(!is_allowed(&agreement, ClientTask::Train, 0, 6, rho), "{rho:?}");
        }
    }

    #[test]
    fn the_theory_is_measured_only_where_that_was_accepted() {
        let agreement = agreement(&["plan.rounds=2", "plan.evaluate_every=0", "plan.measure_theory=true", "method=fedavg"]);
        let rounds = |task| (0..4).filter(|round| is_allowed(&agreement, task, *round, 2, None)).collect::<Vec<_>>();
        assert_eq!((rounds(ClientTask::Evaluate), rounds(ClientTask::Measure)), (vec![], vec![2]));
    }
}
