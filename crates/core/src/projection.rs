//! Keeping the cell of an equilibrium network contractive.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::training::positive;

/// Where the matrix `B` of a cell `z = phi(B z + C x + b)` is put back to, at the start and after every gradient step. Which parameter that is, and whether there is
/// one, is a property of the network.
///
/// In an experiment file: `training.projection = { ball = 0.95 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Projection {
    /// Onto `{B : ||B||_inf <= radius}`, as in the paper: below 1 the cell is a contraction.
    Ball(#[schemars(extend("exclusiveMinimum" = 0))] f64),
    /// Every row of the stored matrix, which is `B` transposed, onto the l1 sphere of that radius: what the authors' code does, with 1.
    Sphere(#[schemars(extend("exclusiveMinimum" = 0))] f64),
}

impl Projection {
    /// Refuses radii that mean nothing.
    pub fn validate(self) -> Result<()> {
        let (Self::Ball(radius) | Self::Sphere(radius)) = self;
        positive("training.projection", radius)
    }
}
