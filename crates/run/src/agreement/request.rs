//! Which requests belong to an agreement.
use fedeq_core::{ClientTask, Error, Request, Result};

use super::Agreement;

impl Agreement {
    /// Refuses a request that the experiment does not lead to: another task, another round, another penalty.
    pub fn check_request(&self, request: &Request) -> Result<()> {
        let refuse = |name: &str, value: String| {
            let problem = format!("the request says `{name} = {value}`, which is no part of the experiment");
            Err(Error::invalid(problem, "the server must ask for what the experiment says"))
        };
        if !self.are_all_rounds(request) {
            return refuse("rounds", request.rounds.to_string());
        }
        if !self.is_foreseen(request) {
            return refuse("task", format!("{:?} {}", request.task, request.round).to_lowercase());
        }
        if !self.is_penalty(request.rho, request.round) {
            return refuse("rho", request.rho.map_or("none".into(), |rho| rho.to_string()));
        }
        Ok(())
    }

    /// Whether the penalty can be this one after so many rounds: the one that was accepted, multiplied or divided by no more than its factor for each of them.
    fn is_penalty(&self, rho: Option<f64>, rounds: u64) -> bool {
        let algorithm = self.experiment.method.algorithm();
        let first = algorithm.initial_rho();
        let (Some(factor), Some(first), Some(rho)) = (algorithm.penalty_factor(), first, rho) else { return rho == first };
        // Each multiplication rounds.
        let most = libm::pow(factor.max(1.0 / factor), rounds as f64) * (1.0 + 1e-9);
        rho.is_finite() && rho > 0.0 && rho <= first * most && rho >= first / most
    }

    /// Whether the plan has as many rounds as the request says. Asynchronous work is counted by updates, so many to a round.
    fn are_all_rounds(&self, request: &Request) -> bool {
        let plan = &self.experiment.plan;
        let by_updates = plan.asynchronous.is_some() && request.task == ClientTask::Train;
        request.rounds == plan.rounds || (by_updates && request.rounds.is_multiple_of(plan.rounds))
    }

    /// Whether the server says by a request that training is over: by what is done then, or by an evaluation that the plan has only where training ends early. Which
    /// round it ends in, where it may do so early, depends on what a node cannot see, so a server is held to what it has said.
    pub fn ends_training(&self, request: &Request) -> bool {
        match request.task {
            ClientTask::Train | ClientTask::Aggregate => false,
            ClientTask::Evaluate | ClientTask::Measure => {
                request.round < self.experiment.plan.rounds && !self.is_evaluation_due(request.round)
            }
            ClientTask::Finish | ClientTask::Adopt => true,
        }
    }

    /// Whether models are evaluated after this round also if training continues.
    fn is_evaluation_due(&self, round: u64) -> bool {
        round > 0 && round.checked_rem(self.experiment.plan.evaluate_every) == Some(0)
    }

    /// Whether training may be over after this round. A budget of privacy ends it in a round that the server's account tells, patience in one that evaluations decide.
    fn may_end(&self, round: u64) -> bool {
        let plan = &self.experiment.plan;
        let has_budget = plan.privacy.is_some_and(|privacy| privacy.budget.is_some());
        round == plan.rounds || (0 < round && round < plan.rounds && (has_budget || self.patience_may_end(round)))
    }

    /// Whether patience may make this round the last: it is the one after an evaluation, which needs as many before it as there is patience, and another one that was better.
    fn patience_may_end(&self, round: u64) -> bool {
        let plan = &self.experiment.plan;
        let (evaluated, every) = (round - 1, plan.evaluate_every);
        plan.patience.is_some_and(|patience| evaluated.checked_rem(every) == Some(0) && evaluated / every > patience)
    }

    /// Whether the plan has this task at this round.
    fn is_foreseen(&self, request: &Request) -> bool {
        let plan = &self.experiment.plan;
        let round = request.round;
        let is_end = self.may_end(round);
        let is_evaluated = is_end || (round < plan.rounds && self.is_evaluation_due(round));
        match request.task {
            ClientTask::Train => round < request.rounds,
            ClientTask::Aggregate => round < request.rounds && plan.secure_aggregation.is_some(),
            ClientTask::Evaluate => is_evaluated && !plan.measure_theory,
            ClientTask::Measure => is_evaluated && plan.measure_theory,
            // Once training is over; what comes of it stays with the client.
            ClientTask::Finish | ClientTask::Adopt => is_end,
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

    /// The rounds of six after which this is allowed, asked for a little beyond them.
    fn rounds_of(settings: &[&str], task: ClientTask) -> Vec<u64> {
        let agreement = agreement(settings);
        (0..9).filter(|round| is_allowed(&agreement, task, *round, 6, None)).collect()
    }

    const SIX: [&str; 4] = ["plan.rounds=6", "method=fedavg", "method.weighting=uniform", "model.norm=group"];

    #[test]
    fn a_budget_of_privacy_may_end_training_after_any_round() {
        let private = ["plan.evaluate_every=0", "plan.privacy.noise_multiplier=0.8", "plan.privacy.clip.fixed=0.1"];
        let settings = [&SIX[..], &private[..]].concat();
        let budgeted = [&settings[..], &["plan.privacy.budget=50.0"]].concat();
        for task in [ClientTask::Evaluate, ClientTask::Finish, ClientTask::Adopt] {
            assert_eq!(rounds_of(&settings, task), [6], "{task:?}");
            assert_eq!(rounds_of(&budgeted, task), [1, 2, 3, 4, 5, 6], "{task:?}");
        }
    }

    #[test]
    fn patience_may_end_training_in_the_round_after_an_evaluation_once_it_can_be_over() {
        let patient = |patience: &'static str, every: &'static str, task| {
            rounds_of(&[&SIX[..], &["data.split.validation=0.2", patience, every]].concat(), task)
        };
        // The first evaluation is the best so far, the second finds no better one, and the round after that is the last.
        for task in [ClientTask::Finish, ClientTask::Adopt] {
            assert_eq!(patient("plan.patience=1", "plan.evaluate_every=1", task), [3, 4, 5, 6]);
            assert_eq!(patient("plan.patience=2", "plan.evaluate_every=1", task), [4, 5, 6]);
            assert_eq!(patient("plan.patience=1", "plan.evaluate_every=2", task), [5, 6]);
            assert_eq!(patient("plan.patience=1", "plan.evaluate_every=3", task), [6]);
        }
        assert_eq!(patient("plan.patience=1", "plan.evaluate_every=2", ClientTask::Evaluate), [2, 4, 5, 6]);
    }

    #[test]
    fn a_server_says_that_training_is_over_by_what_the_plan_has_only_then() {
        let patient = ["data.split.validation=0.2", "plan.patience=1", "plan.evaluate_every=2"];
        let agreement = agreement(&[&SIX[..], &patient].concat());
        let ends = |task| -> Vec<u64> {
            let request = |round| Request { task, round, rounds: 6, rho: None, weights: Default::default() };
            let is_end = |request: Request| agreement.check_request(&request).is_ok() && agreement.ends_training(&request);
            (0..7).filter(|round| is_end(request(*round))).collect()
        };
        assert!(ends(ClientTask::Train).is_empty());
        assert_eq!(ends(ClientTask::Evaluate), [5], "after 2, 4 and 6 it is evaluated anyway");
        assert_eq!(ends(ClientTask::Finish), [5, 6]);
    }

    #[test]
    fn only_what_the_plan_says_is_allowed() {
        let agreement = agreement(&["plan.rounds=6", "plan.evaluate_every=2", "method.rho=0.3"]);
        let rho = Some(0.3);
        let rounds = |task| (0..8).filter(|round| is_allowed(&agreement, task, *round, 6, rho)).collect::<Vec<_>>();
        assert_eq!(rounds(ClientTask::Train), [0, 1, 2, 3, 4, 5]);
        assert_eq!(rounds(ClientTask::Evaluate), [2, 4, 6]);
        assert!(rounds(ClientTask::Measure).is_empty());
        for task in [ClientTask::Finish, ClientTask::Adopt] {
            assert_eq!(rounds(task), [6], "{task:?}");
        }
        assert!(!is_allowed(&agreement, ClientTask::Train, 0, 7, rho));
        for rho in [None, Some(0.0), Some(1e30)] {
            assert!(!is_allowed(&agreement, ClientTask::Train, 0, 6, rho), "{rho:?}");
        }
    }

    #[test]
    fn a_penalty_that_moves_is_within_its_factor_for_each_round() {
        let agreement = agreement(&["plan.rounds=6", "method.rho=0.3", "method.balance.factor=2", "plan.evaluate_every=0"]);
        let trains = |round, rho| is_allowed(&agreement, ClientTask::Train, round, 6, rho);
        assert!(trains(0, Some(0.3)) && !trains(0, Some(0.6)) && !trains(0, Some(0.15)), "no round is over");
        for (round, least, most) in [(1, 0.15, 0.6), (3, 0.3 / 8.0, 2.4)] {
            assert!([least, 0.3, most].iter().all(|rho| trains(round, Some(*rho))), "{round}");
            assert!(!trains(round, Some(0.99 * least)) && !trains(round, Some(1.01 * most)), "{round}");
        }
        let never = [None, Some(0.0), Some(-0.3), Some(f64::NAN), Some(f64::INFINITY), Some(1e30), Some(1e-30)];
        for (round, rho) in (0..6).flat_map(|round| never.map(|rho| (round, rho))) {
            assert!(!trains(round, rho), "{round} {rho:?}");
        }
        assert!(is_allowed(&agreement, ClientTask::Evaluate, 6, 6, Some(0.3 * 64.0)));
        // Many rounds of a large factor reach every number, but no other than numbers above 0.
        let far = self::agreement(&["plan.rounds=5000", "method.rho=0.3", "method.balance.factor=2"]);
        let trains = |rho| is_allowed(&far, ClientTask::Train, 4999, 5000, Some(rho));
        assert!(trains(1e300) && trains(1e-300) && !trains(f64::INFINITY) && !trains(0.0) && !trains(-1.0));
    }

    #[test]
    fn work_without_rounds_is_counted_by_updates() {
        let settings = ["plan.rounds=6", "method.rho=0.3", "method.server_step=consensus", "plan.asynchronous.slowest=2"];
        let agreement = agreement(&settings);
        let trains = |round, rounds| is_allowed(&agreement, ClientTask::Train, round, rounds, Some(0.3));
        assert!(trains(17, 18) && !trains(18, 18) && !trains(0, 17));
        assert!(!is_allowed(&agreement, ClientTask::Evaluate, 6, 18, Some(0.3)));
    }

    #[test]
    fn the_theory_is_measured_only_where_that_was_accepted() {
        let agreement = agreement(&["plan.rounds=2", "plan.evaluate_every=0", "plan.measure_theory=true", "method=fedavg"]);
        let rounds = |task| (0..4).filter(|round| is_allowed(&agreement, task, *round, 2, None)).collect::<Vec<_>>();
        assert_eq!((rounds(ClientTask::Evaluate), rounds(ClientTask::Measure)), (vec![], vec![2]));
    }
}
