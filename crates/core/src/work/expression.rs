//! Small expressions over a client's models.
use std::ops::{Add, Mul, Sub};

use fedeq_models::Part;

/// What a client keeps, or keeps for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// Its own model, `theta_i` and `w_i`.
    Own,
    /// The dual `lambda_i`: parameters without statistics.
    Dual,
    /// Its second model, where the method keeps one.
    Second,
    /// A value that lasts until the end of the update.
    Temporary(&'static str),
}

/// A value made of what was received and what the client keeps. A tree of a few nodes, which an engine evaluates where the numbers are.
///
/// Sums act on parameters, for the names that the left side has, and take their statistics from the left side. So `own() - received()` has the client's
/// statistics, and `dual() + rho * (own() - received())` has none, like the dual.
///
/// ```
/// use fedeq_core::{dual, own, received};
/// use fedeq_models::Part;
///
/// let rho = 0.1;
/// let dual_step = dual() + rho * (own().only(Part::Shared) - received());
/// let consensus_term = own().only(Part::Shared) + (1.0 / rho) * dual();
/// assert_ne!(dual_step, consensus_term);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Expression {
    /// No parameters and no statistics.
    #[default]
    Nothing,
    /// What the server sent.
    Received,
    /// What a slot holds.
    Slot(Slot),
    /// The first, with whatever the second holds in its place.
    With(Box<Self>, Box<Self>),
    /// The parameters of one part, with all statistics.
    Only(Part, Box<Self>),
    /// The parameters of a model, without what is sent beside it.
    Model(Box<Self>),
    /// What is sent beside a model, under the names of the model's parameters and without statistics.
    Control(Box<Self>),
    /// The first, with the parameters of the second beside it.
    Beside(Box<Self>, Box<Self>),
    /// The parameters that do not belong to normalisations, without statistics.
    WithoutNorms(Box<Self>),
    /// The first plus so many times the second, computed as `a + factor * b` for each number.
    Plus(Box<Self>, f32, Box<Self>),
}

/// What the server sent: `theta`, or the whole model where all of it is shared.
pub fn received() -> Expression {
    Expression::Received
}

/// The client's own model: `theta_i` and `w_i`.
pub fn own() -> Expression {
    Expression::Slot(Slot::Own)
}

/// The client's dual, `lambda_i`.
pub fn dual() -> Expression {
    Expression::Slot(Slot::Dual)
}

/// The client's second model.
pub fn second() -> Expression {
    Expression::Slot(Slot::Second)
}

/// What was [kept](super::LocalUpdate::keep) under a name.
pub fn temporary(name: &'static str) -> Expression {
    Expression::Slot(Slot::Temporary(name))
}

/// No parameters and no statistics.
pub fn nothing() -> Expression {
    Expression::Nothing
}

impl Expression {
    /// This model with whatever `other` holds in place of its own.
    pub fn with(self, other: Self) -> Self {
        Self::With(self.into(), other.into())
    }

    /// Only the parameters of one part, with all statistics.
    pub fn only(self, part: Part) -> Self {
        Self::Only(part, self.into())
    }

    /// The model alone, where [something](crate::Algorithm::sends_control) is sent beside it.
    pub fn model(self) -> Self {
        Self::Model(self.into())
    }

    /// What is [sent beside](crate::Algorithm::sends_control) a model.
    pub fn control(self) -> Self {
        Self::Control(self.into())
    }

    /// This model with `control` beside it.
    pub fn beside(self, control: Self) -> Self {
        Self::Beside(self.into(), control.into())
    }

    /// The parameters that do not belong to normalisations, without statistics.
    pub fn without_norms(self) -> Self {
        Self::WithoutNorms(self.into())
    }
}

/// A multiple of an expression, to be added to another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    factor: f32,
    of: Expression,
}

impl Mul<Expression> for f64 {
    type Output = Scaled;

    fn mul(self, of: Expression) -> Scaled {
        Scaled { factor: self as f32, of }
    }
}

impl Add<Scaled> for Expression {
    type Output = Self;

    fn add(self, Scaled { factor, of }: Scaled) -> Self {
        Self::Plus(self.into(), factor, of.into())
    }
}

impl Add for Expression {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self + 1.0 * other
    }
}

impl Sub for Expression {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -1.0 * other
    }
}
