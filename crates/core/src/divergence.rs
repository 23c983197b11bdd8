//! What to say when training diverges: which number, and what to lower.
use crate::algorithm::Algorithm;
use crate::error::{Error, Result};
use crate::message::{Request, Scores, Theory};
use crate::stats::{Score, SolveTally};
use crate::training::Training;
use crate::work::{Phase, Trains};

/// Where `learning rate * strength` reaches this, a step towards the anchor lands farther from it than it began.
const OVERSHOOTS: f64 = 2.0;

/// Local training diverged in some phase. `first` are the solves of the phase's first batch, before any step was taken in it.
pub fn diverged_in_phase(what: String, phase: &Phase, first: &SolveTally) -> Error {
    let remedy = if first.not_finite > 0 {
        "check `model.equilibrium.solver`: solves fail already before the first step; if its settings are the usual ones, lower \
         `training.learning_rate`"
            .into()
    } else {
        let setting = if phase.trains == Trains::Personal { "training.personal_learning_rate" } else { "training.learning_rate" };
        lower(setting, phase.learning_rate)
    };
    Error::Diverged { problem: what, remedy }
}

/// What is left when nothing of the phase is known: the learning rate.
pub(crate) fn after(what: String, training: &Training) -> Error {
    Error::Diverged { problem: what, remedy: lower("training.learning_rate", training.learning_rate) }
}

fn lower(setting: &str, value: f64) -> String {
    format!("lower `{setting}`, which is `{value}`")
}

/// Blames the method's penalty where it diverges by itself, whatever the loss: weights that were flung far away may fail in any phase.
pub(crate) fn blame_penalty(error: Error, algorithm: &dyn Algorithm, training: &Training, request: &Request) -> Error {
    let rate = training.learning_rate;
    match (error, algorithm.penalty(request.rho)) {
        (Error::Diverged { problem, .. }, Some((setting, strength))) if rate * strength >= OVERSHOOTS => {
            let most = OVERSHOOTS / rate;
            let remedy = format!(
                "lower `{setting}`, which is `{strength}`: with `training.learning_rate = {rate}` it must be below {most}, or the \
                 proximal term diverges by itself"
            );
            Error::Diverged { problem, remedy }
        }
        (error, _) => error,
    }
}

/// Refuses scores that are not finite: JSON has no word for them.
pub(crate) fn ensure_finite(scores: &Scores, training: &Training) -> Result<()> {
    let loss = |score: &Option<Score>| score.map_or(0.0, |score| score.loss);
    let Theory { lagrangian, stationarity, head_gradient } = scores.theory.clone().unwrap_or_default();
    let numbers = [
        ("the test loss with theta_i", scores.local.loss),
        ("the test loss with theta", loss(&scores.shared)),
        ("the validation loss", loss(&scores.validation)),
        ("the distance between theta_i and theta", scores.gap),
        ("the norm of the dual", scores.dual_norm),
        ("the Lagrangian", lagrangian),
        ("the gradient of theta_i", stationarity),
        ("the gradient of the head", head_gradient),
    ];
    match numbers.into_iter().find(|(_, number)| !number.is_finite()) {
        Some((name, number)) => Err(after(format!("{name} is `{number}`"), training)),
        None => Ok(()),
    }
}
