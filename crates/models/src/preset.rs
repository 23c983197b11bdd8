//! Presets by name. What each of them decides is decided where the setting is: of a method in its file.
use fedeq_equilibrium::{Adjoint, Anderson, Equilibrium, LinearSolver, Ridge, Solver, Stop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes [`Preset`] of lines `Variant = "name"`.
macro_rules! presets {
    ($($(#[$attribute:meta])+ $variant:ident = $name:literal,)+) => {
        /// How an experiment fills in what it leaves out.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum Preset {
            $($(#[$attribute])+ #[serde(rename = $name)] $variant,)+
        }

        impl Preset {
            /// Every name.
            pub const NAMES: [&str; [$($name),+].len()] = [$($name),+];

            /// The preset of that name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

presets! {
    /// `paper`, with the theta-step started from the received theta: measured to learn far better where clients take part seldom; and with larger injections into the
    /// DEQ-Transformer, which learns far sooner by them.
    #[default]
    Recommended = "recommended",
    /// Algorithm 1 exactly as in the paper.
    Paper = "paper",
    /// What the authors' code does.
    Reference = "reference",
}

/// What the authors' code solves by for images: jaxopt's Anderson acceleration with a history of five, and an implicit gradient to a relative tolerance of 1e-3.
pub(crate) fn reference_images() -> Equilibrium {
    let anderson = Anderson { memory: 4, ridge: Ridge::Absolute(1e-4), mixing: 1.0, delay: 4, restart: None };
    Equilibrium {
        solver: Solver::Anderson(anderson),
        stop: Stop::absolute(1e-3, 20),
        adjoint: Adjoint::Implicit { solver: LinearSolver::Gmres { memory: 20 }, stop: Stop::relative(1e-3, 50) },
        ..Equilibrium::default()
    }
}

/// What it solves by for text: Broyden's method both ways. Its tolerance is 1e-6 a number; a state of 16 symbols has 16 x 64 of them.
pub(crate) fn reference_text() -> Equilibrium {
    Equilibrium {
        solver: Solver::broyden(20),
        stop: Stop::absolute(3.2e-5, 20),
        adjoint: Adjoint::Implicit { solver: LinearSolver::Broyden { memory: 20 }, stop: Stop::relative(2e-10, 20) },
        ..Equilibrium::default()
    }
}
