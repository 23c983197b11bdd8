//! The switches of the models.
use fedeq_equilibrium::{Adjoint, Anderson, Equilibrium, LinearSolver, Ridge, Solver, Stop};
use fedeq_models::{DeqMlpOptions, DeqResNetOptions, DeqTransformerOptions, ModelConfig, Reach};

use super::Preset;

/// The model as a preset has it.
pub(super) fn tuned(model: ModelConfig, preset: Preset) -> ModelConfig {
    let is_reference = preset == Preset::Reference;
    match model {
        ModelConfig::DeqMlp(options) if is_reference => {
            ModelConfig::DeqMlp(DeqMlpOptions { bias: false, equilibrium: reference_images(), ..options })
        }
        ModelConfig::DeqMlp(options) => ModelConfig::DeqMlp(DeqMlpOptions { bias: true, ..options }),
        ModelConfig::DeqResNetXs(options) if is_reference => ModelConfig::DeqResNetXs(reference_resnet(options)),
        ModelConfig::DeqResNetS(options) if is_reference => ModelConfig::DeqResNetS(reference_resnet(options)),
        ModelConfig::DeqResNetM(options) if is_reference => ModelConfig::DeqResNetM(reference_resnet(options)),
        ModelConfig::DeqTransformer(options) if is_reference => {
            ModelConfig::DeqTransformer(DeqTransformerOptions { equilibrium: reference_text(), ..options })
        }
        unchanged => unchanged,
    }
}

/// Whether it solves for a fixed point, and so can be started warm.
pub(crate) fn has_equilibrium(model: &ModelConfig) -> bool {
    model.name().starts_with("deq-")
}

fn reference_resnet(options: DeqResNetOptions) -> DeqResNetOptions {
    DeqResNetOptions { cell_norm: Reach::RowWise, equilibrium: reference_images(), ..options }
}

/// jaxopt's Anderson acceleration with a history of five, and an implicit gradient to a relative tolerance of 1e-3.
fn reference_images() -> Equilibrium {
    let anderson = Anderson { memory: 4, ridge: Ridge::Absolute(1e-4), mixing: 1.0, delay: 4, restart: None };
    Equilibrium {
        solver: Solver::Anderson(anderson),
        stop: Stop::absolute(1e-3, 20),
        adjoint: Adjoint::Implicit { solver: LinearSolver::Gmres { memory: 20 }, stop: Stop::relative(1e-3, 50) },
        ..Equilibrium::default()
    }
}

/// Broyden's method both ways. The authors' tolerance is 1e-6 a number; a state of 16 symbols has 16 x 64 of them.
fn reference_text() -> Equilibrium {
    Equilibrium {
        solver: Solver::broyden(20),
        stop: Stop::absolute(3.2e-5, 20),
        adjoint: Adjoint::Implicit { solver: LinearSolver::Broyden { memory: 20 }, stop: Stop::relative(2e-10, 20) },
        ..Equilibrium::default()
    }
}
