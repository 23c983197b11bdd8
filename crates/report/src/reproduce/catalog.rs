//! The embedded experiments by name.
use fedeq_core::{Error, Result};

use super::spec::Spec;
use fedeq_run::closest::closest;

/// Names the experiments and embeds their specifications.
macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        /// Every experiment, in the order of the paper; our own come last.
        pub const NAMES: &[&str] = &[$($name),*];

        const TEXTS: &[&str] = &[$(include_str!(concat!("../../../../experiments/", $name, "/spec.toml"))),*];
    };
}

embedded![
    "table-1",
    "table-2",
    "fig-projection",
    "fig-size",
    "fig-memory",
    "fig-rho",
    "fig-epochs",
    "fig-theory",
    "fig-communication",
    "fig-compression",
    "fig-solver",
    "fig-async",
    "fig-start",
    "fig-dual",
    "same-network",
    "equilibrium-or-not",
    "presets",
    "fig-shakespeare",
    "fig-robust",
    "fig-privacy",
];

/// The experiment of that name.
pub fn find(name: &str) -> Result<Spec> {
    match NAMES.iter().zip(TEXTS).find(|(known, _)| **known == name) {
        Some((_, text)) => Spec::parse(name, text),
        None => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let hint = match closest(name, NAMES.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? `fedeq reproduce --list` names them all"),
        None => format!("choose one of {}", NAMES.join(", ")),
    };
    Error::invalid(format!("there is no experiment `{name}`"), hint)
}
