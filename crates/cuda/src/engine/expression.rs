//! A cohort's assignments: what expressions are made of, wherever the numbers are.
//!
//! It follows [`fedeq_core::Workspace`], of which a cohort is many: the same values, the same errors. Which parts of a model there are is the same for all clients of a cohort.
use std::collections::BTreeMap;

use fedeq_core::{Error, Expression, LocalUpdate, Phase, ProximalTerm, Result, Slot, Step};
use fedeq_models::graph::Graph;

use super::parts::{Parts, Section};

/// Arithmetic on the numbers of a part of a model.
pub(crate) trait Arithmetic {
    type Numbers: Clone;

    /// `first + factor * second`, with a factor for every lane; one alone is that of all.
    fn plus(&self, section: Section, first: &Self::Numbers, factors: &[f32], second: &Self::Numbers) -> Result<Self::Numbers>;

    /// `factor * of`
    fn scaled(&self, section: Section, factor: f32, of: &Self::Numbers) -> Result<Self::Numbers>;
}

/// What expressions are made of: what was received, what clients keep, and values kept for a while.
#[derive(Clone, Debug)]
pub(crate) struct Slots<'g, N> {
    graph: &'g Graph,
    pub(crate) received: Parts<N>,
    pub(crate) own: Parts<N>,
    pub(crate) dual: Parts<N>,
    pub(crate) second: Option<Parts<N>>,
    temporaries: BTreeMap<&'static str, Parts<N>>,
}

impl<'g, N: Clone> Slots<'g, N> {
    pub(crate) fn new(graph: &'g Graph, received: Parts<N>, own: Parts<N>, dual: Parts<N>, second: Option<Parts<N>>) -> Self {
        Self { graph, received, own, dual, second, temporaries: BTreeMap::new() }
    }

    /// The value of an expression, given that of every lane: they are [alike](alike_expressions). One alone is that of all lanes.
    pub(crate) fn value(&self, by: &impl Arithmetic<Numbers = N>, lanes: &[&Expression]) -> Result<Parts<N>> {
        let Some(expression) = lanes.first() else { return Ok(Parts::default()) };
        let operand = |which: usize| -> Result<Parts<N>> {
            let of_lanes: Vec<&Expression> = lanes.iter().filter_map(|lane| operands(lane)[which]).collect();
            self.value(by, &of_lanes)
        };
        match expression {
            Expression::Nothing => Ok(Parts::default()),
            Expression::Received => Ok(self.received.clone()),
            Expression::Slot(slot) => self.read(*slot),
            Expression::With(..) => Ok(operand(0)?.with(&operand(1)?)),
            Expression::Only(part, _) => Ok(operand(0)?.only(*part)),
            Expression::Model(_) => Ok(operand(0)?.model()),
            Expression::Control(_) => Ok(operand(0)?.control()),
            Expression::Beside(..) => Ok(operand(0)?.beside(&operand(1)?)),
            Expression::WithoutNorms(_) => Ok(operand(0)?.without_norms()),
            Expression::Plus(..) => {
                let factor = |lane: &&Expression| if let Expression::Plus(_, factor, _) = lane { Some(*factor) } else { None };
                let factors: Vec<f32> = lanes.iter().filter_map(factor).collect();
                self.plus(by, &operand(0)?, &factors, &operand(1)?)
            }
        }
    }

    /// `first + factor * second`, with the statistics of the first.
    fn plus(&self, by: &impl Arithmetic<Numbers = N>, first: &Parts<N>, factors: &[f32], second: &Parts<N>) -> Result<Parts<N>> {
        self.ensure_has_all(second, first)?;
        first.map(|section, numbers| match (section, second.get(section)) {
            (Section::Parameters(_) | Section::Control(_), Some(other)) => by.plus(section, numbers, factors, other),
            _ => Ok(numbers.clone()),
        })
    }

    fn ensure_has_all(&self, parts: &Parts<N>, names: &Parts<N>) -> Result<()> {
        let missing = |section: &Section| names.get(*section).is_some() && parts.get(*section).is_none();
        let missing = Section::PARAMETERS.into_iter().filter(missing);
        match missing.filter_map(|section| section.first_name(self.graph)).min() {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!("a step adds something without `{name}`"), "add models of the same parts")),
        }
    }

    fn read(&self, slot: Slot) -> Result<Parts<N>> {
        let absent =
            |name: &str| Error::invalid(format!("a step reads `{name}`, which is empty"), "let an earlier step assign it");
        match slot {
            Slot::Own => Ok(self.own.clone()),
            Slot::Dual => Ok(self.dual.clone()),
            Slot::Second => self.second.clone().ok_or_else(|| absent("second")),
            Slot::Temporary(name) => self.temporaries.get(name).cloned().ok_or_else(|| absent(name)),
        }
    }

    /// Puts a value into a slot.
    pub(crate) fn assign(&mut self, slot: Slot, value: Parts<N>) {
        match slot {
            Slot::Own => self.own = value,
            Slot::Dual => self.dual = value.without_statistics(),
            Slot::Second => self.second = Some(value),
            Slot::Temporary(name) => drop(self.temporaries.insert(name, value)),
        }
    }

    /// `dual - strength * anchor` of a proximal term, for every part that it acts on.
    pub(crate) fn offset(&self, by: &impl Arithmetic<Numbers = N>, term: &ProximalTerm) -> Result<Parts<N>> {
        let anchor = self.value(by, &[&term.anchor])?.without_statistics();
        let factor = -term.strength as f32;
        let Some(dual) = &term.dual else { return anchor.map(|section, numbers| by.scaled(section, factor, numbers)) };
        let dual = self.value(by, &[dual])?.without_statistics();
        self.plus(by, &dual, &[factor], &anchor)
    }

    /// A model to be trained.
    pub(crate) fn trained(&mut self, slot: Slot) -> Result<&mut Parts<N>> {
        let refused =
            |what: &str| Error::invalid(format!("a phase trains {what}"), "train a model that an earlier step assigned");
        match slot {
            Slot::Own => Ok(&mut self.own),
            Slot::Second => self.second.as_mut().ok_or_else(|| refused("a second model that is not there")),
            Slot::Dual => Err(refused("the dual")),
            Slot::Temporary(name) => self.temporaries.get_mut(name).ok_or_else(|| refused(&format!("`{name}`, which is empty"))),
        }
    }
}

/// What an expression is made of.
fn operands(expression: &Expression) -> [Option<&Expression>; 2] {
    match expression {
        Expression::Nothing | Expression::Received | Expression::Slot(_) => [None, None],
        Expression::Only(_, of) | Expression::Model(of) | Expression::Control(of) | Expression::WithoutNorms(of) => {
            [Some(of), None]
        }
        Expression::With(first, second) | Expression::Beside(first, second) | Expression::Plus(first, _, second) => {
            [Some(first), Some(second)]
        }
    }
}

/// Whether two expressions differ in factors at most.
pub(crate) fn alike_expressions(a: &Expression, b: &Expression) -> bool {
    let same = match (a, b) {
        (Expression::Slot(a), Expression::Slot(b)) => a == b,
        (Expression::Only(a, _), Expression::Only(b, _)) => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    };
    let both = |(a, b): (Option<&Expression>, Option<&Expression>)| a.zip(b).is_none_or(|(a, b)| alike_expressions(a, b));
    same && operands(a).into_iter().zip(operands(b)).all(both)
}

/// Whether two updates are the same steps, which may differ in numbers: factors, step sizes, and how a mixing moves.
pub(crate) fn alike_updates(a: &LocalUpdate, b: &LocalUpdate) -> bool {
    alike_expressions(&a.sent, &b.sent) && alike_steps(&a.steps, &b.steps)
}

fn alike_steps(a: &[Step], b: &[Step]) -> bool {
    let step = |(a, b): (&Step, &Step)| match (a, b) {
        (Step::Assign { slot: a, value: first }, Step::Assign { slot: b, value: second }) => {
            a == b && alike_expressions(first, second)
        }
        (Step::Train(a), Step::Train(b)) => Phase { learning_rate: a.learning_rate, ..(**b).clone() } == **a,
        (Step::Mix(a), Step::Mix(b)) => {
            a.least == b.least && alike_expressions(&a.along, &b.along) && alike_expressions(&a.gradient, &b.gradient)
        }
        (Step::ForEachBatch(a), Step::ForEachBatch(b)) => {
            (a.epochs, a.batches) == (b.epochs, b.batches) && alike_steps(&a.steps, &b.steps)
        }
        _ => false,
    };
    a.len() == b.len() && a.iter().zip(b).all(step)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use fedeq_core::{
        Apfl, ClientInfo, ClientState, Ditto, FedEq, Method, Params, PersonalStart, RoundContext, ServerStep, Step, ThetaStart,
        Training, Weights, Workspace, dual, nothing, own, received, second, temporary,
    };
    use fedeq_models::{ModelConfig, Part, Task};

    use super::super::parts::{parts_of, parts_of_params};
    use super::*;
    use crate::layout::Kind;

    /// Numbers on the host, part by part.
    struct OnHost;

    impl Arithmetic for OnHost {
        type Numbers = Params;

        fn plus(&self, _: Section, first: &Params, factors: &[f32], second: &Params) -> Result<Params> {
            Ok(first.plus(factors[0], second))
        }

        fn scaled(&self, _: Section, factor: f32, of: &Params) -> Result<Params> {
            Ok(of.map(|value| factor * value))
        }
    }

    fn cut(graph: &Graph, weights: &Weights) -> Parts<Params> {
        let cut = |section: Section, (): &()| -> Result<Params> {
            let of = |kind: Kind, params: &Params| {
                params.filter(|path| kind.parameters(graph).any(|parameter| parameter.path == path))
            };
            Ok(match section {
                Section::Parameters(kind) => of(kind, &weights.params),
                Section::Control(kind) => of(kind, &weights.control().params),
                Section::Statistics => weights.statistics.clone(),
            })
        };
        parts_of(graph, weights).map(cut).expect("no error")
    }

    fn joined(parts: &Parts<Params>) -> Weights {
        let mut weights = Weights::default();
        for (section, params) in parts.iter() {
            match section {
                Section::Parameters(_) => weights.params.overwrite(params),
                Section::Control(_) => weights = weights.beside(params),
                Section::Statistics => weights.statistics.overwrite(params),
            }
        }
        weights
    }

    fn graph() -> Graph {
        "resnet-xs".parse::<ModelConfig>().expect("known").graph(&Task::image(8, 8, 1, 10)).expect("fits")
    }

    fn noisy(weights: &Weights, shift: f32) -> Weights {
        Weights {
            params: weights.params.map(|value| 1.3 * value + shift),
            statistics: weights.statistics.map(|value| value + shift),
        }
    }

    fn state(graph: &Graph, with_second: bool) -> ClientState {
        let own = Weights::initial(graph, 3);
        let dual = noisy(&own, 0.25).theta();
        ClientState { dual, second: with_second.then(|| noisy(&own, 0.5)), own, ..ClientState::default() }
    }

    fn slots<'g>(graph: &'g Graph, state: &ClientState, received: &Weights) -> Slots<'g, Params> {
        let dual = Weights { params: state.dual.clone(), ..Weights::default() };
        let second = state.second.as_ref().map(|second| cut(graph, second));
        Slots::new(graph, cut(graph, received), cut(graph, &state.own), cut(graph, &dual), second)
    }

    /// Methods with their switches thrown, so that every kind of step is taken.
    fn methods() -> Vec<Method> {
        let consensus = FedEq { server_step: ServerStep::Consensus, start: ThetaStart::Own, ..FedEq::default() };
        let trained = Ditto { start: PersonalStart::Trained, ..Ditto::default() };
        let named = Method::NAMES.into_iter().map(|name| Method::named(name).expect("known"));
        let adaptive = Method::Apfl(Apfl { adaptive: true, ..Apfl::default() });
        [Method::Fedeq(consensus), Method::Ditto(trained), adaptive].into_iter().chain(named).collect()
    }

    #[test]
    fn every_method_gets_the_same_values_as_on_the_host() {
        let graph = graph();
        let training = Training::default();
        let round = RoundContext { round: 3, rounds: 10, rho: Some(0.7), training: &training };
        for method in methods() {
            let method = method.algorithm();
            for (participations, has_second) in [(0, false), (2, true)] {
                let mut state = state(&graph, has_second);
                let mut received = fedeq_core::shared_part(method, &noisy(&state.own, -0.125));
                if method.sends_control() {
                    state.dual = noisy(&state.own, 0.25).params;
                    received = received.beside(&noisy(&state.own, 0.75).params);
                }
                let me = ClientInfo {
                    participations,
                    last_round: (participations > 0).then_some(2),
                    has_second,
                    mixing: None,
                    steps: 4,
                };
                for update in [method.client_update(&me, &round), method.finish(&me, &round), method.adopt(&me, &round)] {
                    let mut host = Workspace::new(&received, Cow::Borrowed(&state));
                    let mut cohort = slots(&graph, &state, &received);
                    for step in update.carried_out() {
                        match &step {
                            Step::ForEachBatch(_) => panic!("it is carried out step by step"),
                            Step::Assign { slot, value } => {
                                host.assign(*slot, host.evaluate(value).expect("sound"));
                                let value = cohort.value(&OnHost, &[value]).expect("sound");
                                cohort.assign(*slot, value);
                            }
                            Step::Mix(step) => {
                                for value in [&step.along, &step.gradient] {
                                    let expected = host.evaluate(value).expect("sound");
                                    assert_eq!(joined(&cohort.value(&OnHost, &[value]).expect("sound")), expected);
                                }
                            }
                            Step::Train(phase) => {
                                cohort.trained(phase.slot).expect("there");
                                let models = phase.contrast.iter().flat_map(|term| [&term.attracts, &term.repels]);
                                for value in models {
                                    let expected = host.evaluate(value).expect("sound");
                                    assert_eq!(joined(&cohort.value(&OnHost, &[value]).expect("sound")), expected);
                                }
                                let Some(term) = &phase.proximal else { continue };
                                let expected = host.proximal(term).expect("sound").offset;
                                let offset = cohort.offset(&OnHost, term).expect("sound");
                                assert_eq!(joined(&offset).params, expected);
                                assert_eq!(offset.present(), parts_of_params(&graph, &expected));
                            }
                        }
                    }
                    let sent = cohort.value(&OnHost, &[&update.sent]).expect("sound");
                    assert_eq!(joined(&sent), host.evaluate(&update.sent).expect("sound"));
                    let after = host.into_state();
                    assert_eq!(joined(&cohort.own), after.own);
                    assert_eq!(joined(&cohort.dual).params, after.dual);
                    assert_eq!(cohort.second.as_ref().map(joined), after.second);
                }
            }
        }
    }

    /// A number of each of two lanes.
    struct Pairs;

    impl Arithmetic for Pairs {
        type Numbers = [f32; 2];

        fn plus(&self, _: Section, first: &[f32; 2], factors: &[f32], second: &[f32; 2]) -> Result<[f32; 2]> {
            Ok([0, 1].map(|lane| first[lane] + factors[lane % factors.len()] * second[lane]))
        }

        fn scaled(&self, _: Section, factor: f32, of: &[f32; 2]) -> Result<[f32; 2]> {
            Ok(of.map(|value| factor * value))
        }
    }

    #[test]
    fn lanes_may_differ_in_factors_and_in_nothing_else() {
        let (graph, shared) = (graph(), Section::Parameters(Kind::Shared));
        let with = |numbers: [f32; 2]| {
            let mut parts = Parts::default();
            parts.set(shared, Some(numbers));
            parts
        };
        let slots = Slots::new(&graph, with([2.0, 3.0]), with([10.0, 20.0]), Parts::default(), None);
        let expression = |inner: f64, outer: f64| own() + outer * (own() + inner * received());
        let lanes = [expression(1.0, 0.5), expression(2.0, -1.0)];
        assert!(alike_expressions(&lanes[0], &lanes[1]));
        let found = slots.value(&Pairs, &lanes.each_ref()).expect("sound");
        assert_eq!(found.get(shared), Some(&[10.0 + 0.5 * 12.0, 20.0 - 26.0]));
        for other in [own(), received() + 0.5 * (own() + received()), own() + 0.5 * (received() + received()), own().with(own())]
        {
            assert!(!alike_expressions(&lanes[0], &other), "{other:?}");
        }
    }

    #[test]
    fn clients_with_other_numbers_of_steps_and_mixings_work_together_unless_a_method_goes_batch_by_batch() {
        let training = Training::default();
        let round = RoundContext { round: 3, rounds: 10, rho: Some(0.7), training: &training };
        let me = |steps, mixing| ClientInfo { participations: 1, last_round: Some(2), has_second: true, mixing, steps };
        for method in methods() {
            let update = |steps, mixing| method.algorithm().client_update(&me(steps, mixing), &round);
            let (one, other, longer) = (update(4, Some(0.3)), update(4, Some(0.6)), update(7, Some(0.6)));
            assert!(alike_updates(&one, &other), "{}", method.name());
            let by_batch = one.steps.iter().any(|step| matches!(step, Step::ForEachBatch(_)));
            assert_eq!(alike_updates(&one, &longer), !by_batch, "{}", method.name());
            assert!(!alike_updates(&one, &LocalUpdate::nothing()));
            let quicker = Training { epochs: 1, ..Training::default() };
            let sooner = method.algorithm().client_update(&me(4, Some(0.3)), &RoundContext { training: &quicker, ..round });
            assert!(!alike_updates(&one, &sooner), "{}", method.name());
        }
    }

    #[test]
    fn what_is_not_there_is_refused_in_the_same_words_as_on_the_host() {
        let graph = graph();
        let state = state(&graph, false);
        let sent = state.own.only(|part| part == Part::Shared);
        let host = Workspace::new(&sent, Cow::Borrowed(&state));
        let mut cohort = slots(&graph, &state, &sent);
        for wrong in [second(), temporary("x"), own() - received(), received() + nothing(), nothing().with(temporary("y"))] {
            let expected = host.evaluate(&wrong).expect_err("not there").to_string();
            assert_eq!(cohort.value(&OnHost, &[&wrong]).expect_err("not there").to_string(), expected);
        }
        let wrong = ProximalTerm::augmented(1.0, received(), own());
        let expected = host.proximal(&wrong).expect_err("the anchor has no head").to_string();
        assert_eq!(cohort.offset(&OnHost, &wrong).expect_err("the anchor has no head").to_string(), expected);
        for slot in [Slot::Dual, Slot::Second, Slot::Temporary("x")] {
            assert!(cohort.trained(slot).is_err());
        }
        assert!(cohort.trained(Slot::Own).is_ok());
    }

    #[test]
    fn an_assignment_keeps_what_others_hold() {
        let graph = graph();
        let state = state(&graph, false);
        let sent = noisy(&state.own, 0.75);
        let mut cohort = slots(&graph, &state, &sent);
        for slot in [Slot::Temporary("kept"), Slot::Second, Slot::Dual] {
            cohort.assign(slot, cohort.received.clone());
        }
        assert_eq!(joined(&cohort.value(&OnHost, &[&temporary("kept")]).expect("kept")), sent);
        assert_eq!(
            joined(&cohort.value(&OnHost, &[&dual()]).expect("there")),
            Weights { params: sent.params.clone(), ..Weights::default() }
        );
        assert_eq!(joined(&cohort.own), state.own);
    }
}
