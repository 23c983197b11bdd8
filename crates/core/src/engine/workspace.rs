//! A job's assignments, with the numbers on the host.
use std::borrow::Cow;
use std::collections::BTreeMap;

use fedeq_equilibrium::WarmMemory;

use super::LocalProblem;
use super::job::{Done, Job, Started, gap};
use crate::error::{Error, Result};
use crate::message::Reply;
use crate::state::ClientState;
use crate::stats::{TrainStats, UpdateStats};
use crate::weights::Weights;
use crate::work::{
    ContrastModels, ContrastTerm, Expression, LocalUpdate, MixingStep, Phase, PhaseSeed, ProximalGradient, ProximalTerm, Slot,
    Step, Steps,
};

/// What expressions are made of: what was received, what the client keeps, and values kept for a while.
#[derive(Clone, Debug)]
pub struct Workspace<'a> {
    received: &'a Weights,
    state: Cow<'a, ClientState>,
    temporaries: BTreeMap<&'static str, Weights>,
}

impl<'a> Workspace<'a> {
    /// A client in some state that received something.
    pub fn new(received: &'a Weights, state: Cow<'a, ClientState>) -> Self {
        Self { received, state, temporaries: BTreeMap::new() }
    }

    /// The client's state.
    pub fn into_state(self) -> ClientState {
        self.state.into_owned()
    }

    /// The value of an expression.
    pub fn evaluate(&self, expression: &Expression) -> Result<Weights> {
        self.value(expression).map(Cow::into_owned)
    }

    fn value(&self, expression: &Expression) -> Result<Cow<'_, Weights>> {
        match expression {
            Expression::Nothing => Ok(Cow::Owned(Weights::default())),
            Expression::Received => Ok(Cow::Borrowed(self.received)),
            Expression::Slot(slot) => self.read(*slot),
            Expression::With(first, second) => Ok(Cow::Owned(self.value(first)?.with(&*self.value(second)?))),
            Expression::Only(part, of) => Ok(Cow::Owned(self.value(of)?.only(|other| other == *part))),
            Expression::Model(of) => Ok(Cow::Owned(self.value(of)?.model())),
            Expression::Control(of) => Ok(Cow::Owned(self.value(of)?.control())),
            Expression::Beside(model, control) => Ok(Cow::Owned(self.value(model)?.beside(&self.value(control)?.params))),
            Expression::WithoutNorms(of) => Ok(Cow::Owned(self.value(of)?.without_norms())),
            Expression::Plus(first, factor, second) => plus(&*self.value(first)?, *factor, &*self.value(second)?).map(Cow::Owned),
        }
    }

    fn read(&self, slot: Slot) -> Result<Cow<'_, Weights>> {
        let absent =
            |name: &str| Error::invalid(format!("a step reads `{name}`, which is empty"), "let an earlier step assign it");
        match slot {
            Slot::Own => Ok(Cow::Borrowed(&self.state.own)),
            Slot::Dual => Ok(Cow::Owned(Weights { params: self.state.dual.clone(), ..Weights::default() })),
            Slot::Second => self.state.second.as_ref().map(Cow::Borrowed).ok_or_else(|| absent("second")),
            Slot::Temporary(name) => self.temporaries.get(name).map(Cow::Borrowed).ok_or_else(|| absent(name)),
        }
    }

    /// Puts a value into a slot.
    pub fn assign(&mut self, slot: Slot, value: Weights) {
        match slot {
            Slot::Own => self.state.to_mut().own = value,
            Slot::Dual => self.state.to_mut().dual = value.params,
            Slot::Second => self.state.to_mut().second = Some(value),
            Slot::Temporary(name) => drop(self.temporaries.insert(name, value)),
        }
    }

    /// The gradient of a term, with its expressions evaluated.
    pub fn proximal(&self, term: &ProximalTerm) -> Result<ProximalGradient> {
        let anchor = self.value(&term.anchor)?;
        let dual = term.dual.as_ref().map(|dual| self.value(dual)).transpose()?;
        if let Some(dual) = &dual {
            ensure_has_all(&anchor, dual)?;
        }
        Ok(ProximalGradient::new(term, &anchor.params, dual.as_ref().map(|dual| &dual.params)))
    }

    /// A term on embeddings, with its expressions evaluated.
    fn contrast(&self, term: &ContrastTerm) -> Result<ContrastModels> {
        let ContrastTerm { weight, temperature, attracts, repels } = term;
        let [attracts, repels] = [self.evaluate(attracts)?, self.evaluate(repels)?];
        Ok(ContrastModels { weight: *weight, temperature: *temperature, attracts, repels })
    }

    /// A model to be trained, and the fixed points remembered of the client's samples.
    fn trained(&mut self, slot: Slot) -> Result<(&mut Weights, &mut WarmMemory)> {
        let refused =
            |what: &str| Error::invalid(format!("a phase trains {what}"), "train a model that an earlier step assigned");
        let ClientState { own, second, memory, .. } = self.state.to_mut();
        match slot {
            Slot::Own => Ok((own, memory)),
            Slot::Second => {
                second.as_mut().map(|second| (second, memory)).ok_or_else(|| refused("a second model that is not there"))
            }
            Slot::Dual => Err(refused("the dual")),
            Slot::Temporary(name) => {
                let model = self.temporaries.get_mut(name);
                model.map(|model| (model, memory)).ok_or_else(|| refused(&format!("`{name}`, which is empty")))
            }
        }
    }
}

impl Workspace<'_> {
    /// Carries out a step of the mixing.
    fn mix(&mut self, step: &MixingStep) -> Result<()> {
        let (along, gradient) = (self.evaluate(&step.along)?, self.evaluate(&step.gradient)?);
        let mixing = step.from - step.rate * along.params.dot(&gradient.params);
        self.state.to_mut().mixing = Some(mixing.clamp(step.least, 1.0));
        Ok(())
    }
}

/// `first + factor * second`, with the statistics of the first.
fn plus(first: &Weights, factor: f32, second: &Weights) -> Result<Weights> {
    ensure_has_all(second, first)?;
    Ok(Weights { params: first.params.plus(factor, &second.params), statistics: first.statistics.clone() })
}

fn ensure_has_all(weights: &Weights, names: &Weights) -> Result<()> {
    match names.params.iter().find(|(name, _)| weights.params.get(name).is_none()) {
        None => Ok(()),
        Some((name, _)) => Err(Error::invalid(format!("a step adds something without `{name}`"), "add models of the same parts")),
    }
}

/// A job under way whose numbers are on the host. The same for every engine that keeps them there: an engine only [trains](Self::next_phase).
pub struct HostWork<'a> {
    job: &'a Job<'a>,
    workspace: Workspace<'a>,
    update: LocalUpdate,
    steps: Steps,
    /// The phase that is carried out.
    under_way: Option<Phase>,
    stats: UpdateStats,
}

/// A phase that is ready to be carried out.
pub struct ReadyPhase<'a> {
    /// The model that is trained.
    pub weights: &'a mut Weights,
    /// Fixed points remembered of the client's samples.
    pub memory: &'a mut WarmMemory,
    /// What to do.
    pub phase: Phase,
    /// The phase's proximal term.
    pub proximal: Option<ProximalGradient>,
    /// The phase's term on embeddings.
    pub contrast: Option<ContrastModels>,
    /// The phase's randomness.
    pub seed: PhaseSeed,
}

impl ReadyPhase<'_> {
    /// Has a client's problem carry it out.
    pub fn carry_out(self, problem: &dyn LocalProblem) -> Result<TrainStats> {
        let Self { weights, memory, phase, proximal, contrast, seed } = self;
        match (&contrast, &proximal) {
            (None, _) => problem.train(weights, memory, &phase, proximal.as_ref(), seed),
            (Some(contrast), None) => problem.train_contrasting(weights, memory, &phase, contrast, seed),
            (Some(_), Some(_)) => {
                Err(Error::invalid("a phase has a proximal term and one on embeddings", "let the method choose one of them"))
            }
        }
    }
}

impl<'a> HostWork<'a> {
    /// The client begins.
    pub fn begin(job: &'a Job<'a>) -> Result<Self> {
        let Started { state, update } = job.begin()?;
        let workspace = Workspace::new(job.received, Cow::Owned(state.into_host()?));
        let steps = update.carried_out();
        Ok(Self { job, workspace, update, steps, under_way: None, stats: UpdateStats::default() })
    }

    /// Carries out assignments up to the next training phase, and gives that phase; nothing when all steps are done.
    pub fn next_phase(&mut self) -> Result<Option<ReadyPhase<'_>>> {
        for step in self.steps.by_ref() {
            match step {
                Step::Assign { slot, value } => {
                    let value = self.workspace.evaluate(&value)?;
                    self.workspace.assign(slot, value);
                }
                Step::Mix(step) => self.workspace.mix(&step)?,
                Step::ForEachBatch(_) => unreachable!("it is carried out step by step"),
                Step::Train(phase) => {
                    let proximal = phase.proximal.as_ref().map(|term| self.workspace.proximal(term)).transpose()?;
                    let contrast = phase.contrast.as_ref().map(|term| self.workspace.contrast(term)).transpose()?;
                    let seed = phase.seed(self.job.seed);
                    self.under_way = Some((*phase).clone());
                    let (weights, memory) = self.workspace.trained(phase.slot)?;
                    return Ok(Some(ReadyPhase { weights, memory, phase: *phase, proximal, contrast, seed }));
                }
            }
        }
        Ok(None)
    }

    /// The phase that was ready has been carried out.
    pub fn trained(&mut self, stats: TrainStats) {
        if let Some(phase) = self.under_way.take() {
            self.stats.add(&phase, stats);
        }
    }

    /// All steps are done: what the client was to do, its state, and what came of it, to [end](Job::end) the job with.
    pub fn finish(self) -> Result<(LocalUpdate, ClientState, Done)> {
        let sent = self.workspace.evaluate(&self.update.sent)?.into();
        let state = self.workspace.into_state();
        let done = Done { stats: self.stats.all(), sent, gap: gap(&state.own, self.job.received) };
        Ok((self.update, state, done))
    }

    /// All steps are done, and the state is kept as plain numbers.
    pub fn end(self) -> Result<Reply> {
        let job = self.job;
        let (update, state, done) = self.finish()?;
        job.end(&update, state.into(), done)
    }
}

#[cfg(test)]
mod tests {
    use fedeq_models::Part;

    use super::*;
    use crate::params::{Array, Params};
    use crate::work::{dual, nothing, own, received, second, temporary};

    fn named(values: &[(&str, f32)]) -> Params {
        values.iter().map(|(name, value)| ((*name).to_owned(), Array::new(vec![1], vec![*value]))).collect()
    }

    fn state() -> ClientState {
        let own = Weights { params: named(&[("theta", 5.0), ("head.w", 7.0)]), statistics: named(&[("mean", 0.5)]) };
        ClientState { own, dual: named(&[("theta", 2.0)]), ..ClientState::default() }
    }

    fn sent() -> Weights {
        Weights { params: named(&[("theta", 3.0)]), statistics: named(&[("mean", 0.25)]) }
    }

    #[test]
    fn expressions_read_like_mathematics() {
        let (state, sent) = (state(), sent());
        let workspace = Workspace::new(&sent, Cow::Borrowed(&state));
        let value = |expression: Expression| workspace.evaluate(&expression).expect("sound");
        let theta_i = || own().only(Part::Shared);
        // Statistics come from the left side; a dual has none.
        let expected = |theta: f32, mean: &[(&str, f32)]| Weights { params: named(&[("theta", theta)]), statistics: named(mean) };
        assert_eq!(value(dual() + 0.5 * (theta_i() - received())), expected(2.0 + 0.5 * (5.0 - 3.0), &[]));
        assert_eq!(value(theta_i() + 4.0 * dual()), expected(5.0 + 4.0 * 2.0, &[("mean", 0.5)]));
        assert_eq!(value(received() + dual()), expected(3.0 + 2.0, &[("mean", 0.25)]));
        assert_eq!(value(own().with(received())), state.own.with(&sent));
        assert_eq!(value(nothing()), Weights::default());
    }

    #[test]
    fn an_assignment_changes_its_slot_and_nothing_that_others_hold() {
        let (state, sent) = (state(), sent());
        let mut workspace = Workspace::new(&sent, Cow::Borrowed(&state));
        for slot in [Slot::Temporary("kept"), Slot::Second, Slot::Dual] {
            workspace.assign(slot, sent.clone());
        }
        assert_eq!(workspace.evaluate(&temporary("kept")).expect("kept"), sent);
        let after = workspace.into_state();
        assert_eq!((after.second.as_ref(), &after.dual, &after.own), (Some(&sent), &sent.params, &state.own));
        assert_eq!(state, self::state());
    }

    #[test]
    fn a_method_that_reads_or_trains_what_is_not_there_is_refused() {
        let (state, sent) = (state(), sent());
        let mut workspace = Workspace::new(&sent, Cow::Borrowed(&state));
        for (wrong, words) in [
            (second(), "`second`, which is empty"),
            (temporary("x"), "`x`, which is empty"),
            (own() - received(), "without `head.w`"),
        ] {
            let error = workspace.evaluate(&wrong).expect_err("not there").to_string();
            assert!(error.contains(words), "{error}");
        }
        let wrong = ProximalTerm::augmented(1.0, received(), own());
        assert!(workspace.proximal(&wrong).is_err(), "the anchor has no head");
        assert!([Slot::Dual, Slot::Second, Slot::Temporary("x")].into_iter().all(|slot| workspace.trained(slot).is_err()));
        assert!(workspace.trained(Slot::Own).is_ok());
    }
}
