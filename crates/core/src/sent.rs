//! What a client sends, wherever its engine holds it.
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::params::Params;
use crate::weights::Weights;

/// Weights that a client sends: as plain numbers, in the form in which an engine holds them, or as a codec wrote them.
///
/// The server wants their mean, which an engine can take where they are. They become plain numbers when they are asked for.
#[derive(Clone)]
pub struct SentWeights(SentForm);

/// What is known of the layout of compressed weights.
static NOTHING: OnceLock<Weights> = OnceLock::new();

#[derive(Clone)]
enum SentForm {
    Here(Weights),
    ByEngine {
        like: Weights,
        held: Arc<dyn EngineWeights>,
    },
    /// Of a client that began with other parameters than the server has.
    From {
        weights: Weights,
        origin: Params,
    },
    /// On its way: what a codec wrote.
    Compressed(Arc<Vec<u8>>),
    /// The client alone has them: they are part of a sum.
    Masked,
}

/// Weights in the form in which an engine holds them.
pub trait EngineWeights: Any + Send + Sync {
    /// The same as plain numbers.
    fn to_host(&self) -> Result<Weights>;

    /// Whether every number is finite.
    fn is_finite(&self) -> bool;

    /// The weighted mean of these, in the order given, with the very bits of [`Weights::mean`]; nothing where some are not held by this engine.
    fn mean(&self, items: &[(&dyn EngineWeights, f64)]) -> Option<Result<Weights>>;
}

impl Default for SentWeights {
    fn default() -> Self {
        Weights::default().into()
    }
}

impl From<Weights> for SentWeights {
    fn from(weights: Weights) -> Self {
        Self(SentForm::Here(weights))
    }
}

impl SentWeights {
    /// Weights that an engine holds. `like` are any weights of the same names and shapes.
    pub fn by_engine(like: Weights, held: Arc<dyn EngineWeights>) -> Self {
        Self(SentForm::ByEngine { like, held })
    }

    /// What a codec wrote: they become numbers again at the server, which knows what they are to be added to.
    pub(crate) fn compressed(bytes: Vec<u8>) -> Self {
        Self(SentForm::Compressed(Arc::new(bytes)))
    }

    /// The same, of a client that began with these parameters: what the server adds up is how far it came from there.
    pub(crate) fn moved_from(self, origin: Params) -> Result<Self> {
        Ok(Self(SentForm::From { weights: self.to_host()?.into_owned(), origin }))
    }

    /// What the client began with, where that is not what the server has.
    pub(crate) fn origin(&self) -> Option<&Params> {
        match &self.0 {
            SentForm::From { origin, .. } => Some(origin),
            SentForm::Here(_) | SentForm::ByEngine { .. } | SentForm::Compressed(_) | SentForm::Masked => None,
        }
    }

    /// Weights that the server never sees: it learns their sum with those of others.
    pub fn masked() -> Self {
        Self(SentForm::Masked)
    }

    /// Whether the server never sees them.
    pub(crate) fn is_masked(&self) -> bool {
        matches!(self.0, SentForm::Masked)
    }

    /// What a codec wrote, if they are on their way.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            SentForm::Compressed(bytes) => Some(bytes),
            SentForm::Here(_) | SentForm::From { .. } | SentForm::ByEngine { .. } | SentForm::Masked => None,
        }
    }

    /// Weights of the same names and shapes: these themselves where they are plain numbers, and none where they are compressed.
    pub fn like(&self) -> &Weights {
        match &self.0 {
            SentForm::Here(weights) | SentForm::From { weights, .. } => weights,
            SentForm::ByEngine { like, .. } => like,
            SentForm::Compressed(_) | SentForm::Masked => NOTHING.get_or_init(Weights::default),
        }
    }

    /// The weights as plain numbers.
    pub fn to_host(&self) -> Result<Cow<'_, Weights>> {
        match &self.0 {
            SentForm::Here(weights) | SentForm::From { weights, .. } => Ok(Cow::Borrowed(weights)),
            SentForm::ByEngine { held, .. } => held.to_host().map(Cow::Owned),
            SentForm::Compressed(_) => Err(Error::message("its weights are still compressed")),
            // What is sent of them.
            SentForm::Masked => Ok(Cow::Borrowed(NOTHING.get_or_init(Weights::default))),
        }
    }

    /// How far they are from `theta`. What an engine of this process holds stays where it is: `measured` is what that engine found.
    pub(crate) fn gap(&self, theta: &Params, measured: f64) -> Result<f64> {
        if self.held().is_some() {
            return Ok(measured);
        }
        let sent = self.to_host()?;
        Ok(match self.origin() {
            Some(origin) => theta.plus(1.0, &sent.params.minus(origin)).minus(theta).norm(),
            None => sent.params.minus(theta).norm(),
        })
    }

    /// Whether every number is finite.
    pub fn is_finite(&self) -> bool {
        match &self.0 {
            SentForm::Here(weights) | SentForm::From { weights, .. } => weights.is_finite(),
            SentForm::ByEngine { held, .. } => held.is_finite(),
            SentForm::Compressed(_) | SentForm::Masked => true,
        }
    }

    /// Refuses another layout than that of `expected`, and numbers that are not finite.
    pub fn ensure_like(&self, expected: &Weights) -> Result<()> {
        if self.is_masked() {
            return Ok(());
        }
        self.like().ensure_like(expected)?;
        match &self.0 {
            SentForm::ByEngine { held, .. } if !held.is_finite() => Err(Error::message("it holds values that are not finite")),
            _ => Ok(()),
        }
    }

    /// The weighted mean, in the order given: by the engine that holds them, if one holds them all.
    pub fn mean(items: &[(&Self, f64)]) -> Result<Weights> {
        let held: Option<Vec<(&dyn EngineWeights, f64)>> =
            items.iter().map(|(item, weight)| Some((item.held()?, *weight))).collect();
        if let Some(mean) = held.and_then(|held| held.first()?.0.mean(&held)) {
            return mean;
        }
        let here = items.iter().map(|(item, weight)| Ok((item.to_host()?, *weight))).collect::<Result<Vec<_>>>()?;
        Ok(Weights::mean(here.iter().map(|(item, weight)| (item.as_ref(), *weight)).collect::<Vec<_>>()))
    }

    fn held(&self) -> Option<&dyn EngineWeights> {
        match &self.0 {
            SentForm::Here(_) | SentForm::From { .. } | SentForm::Compressed(_) | SentForm::Masked => None,
            SentForm::ByEngine { held, .. } => Some(held.as_ref()),
        }
    }
}

/// Whether they are the same numbers, wherever they are; those that cannot be had are no one's equal.
impl PartialEq for SentWeights {
    fn eq(&self, other: &Self) -> bool {
        match (self.bytes(), other.bytes()) {
            (Some(this), Some(other)) => this == other,
            _ => matches!((self.to_host(), other.to_host()), (Ok(this), Ok(other)) if this == other),
        }
    }
}

impl fmt::Debug for SentWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SentForm::Here(weights) | SentForm::From { weights, .. } => weights.fmt(f),
            SentForm::ByEngine { .. } => f.write_str("weights that an engine holds"),
            SentForm::Compressed(bytes) => write!(f, "weights in {} bytes", bytes.len()),
            SentForm::Masked => f.write_str("weights under masks"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Array;

    /// Knows the mean of its own kind, and says so by a sign.
    struct Signed(Weights);

    impl EngineWeights for Signed {
        fn to_host(&self) -> Result<Weights> {
            Ok(self.0.clone())
        }

        fn is_finite(&self) -> bool {
            self.0.is_finite()
        }

        fn mean(&self, items: &[(&dyn EngineWeights, f64)]) -> Option<Result<Weights>> {
            let mut own = Vec::new();
            for (item, weight) in items {
                let item: &dyn Any = *item;
                own.push((&item.downcast_ref::<Self>()?.0, *weight));
            }
            let mean = Weights::mean(own);
            Some(Ok(Weights { params: mean.params.map(|value| -value), ..mean }))
        }
    }

    fn weights(value: f32) -> Weights {
        let params: Params = [("theta".to_owned(), Array::new(vec![1], vec![value]))].into_iter().collect();
        Weights { params, ..Weights::default() }
    }

    fn held(value: f32) -> SentWeights {
        SentWeights::by_engine(weights(0.0), Arc::new(Signed(weights(value))))
    }

    #[test]
    fn the_mean_is_the_engines_where_it_holds_all_of_them() {
        let (a, b, here) = (held(1.0), held(3.0), SentWeights::from(weights(3.0)));
        assert_eq!(SentWeights::mean(&[(&a, 1.0), (&b, 1.0)]).expect("sound"), weights(-2.0));
        assert_eq!(SentWeights::mean(&[(&a, 1.0), (&here, 3.0)]).expect("sound"), weights(2.5));
        assert_eq!(b, here);
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused_wherever_they_are() {
        for bad in [held(f32::NAN), SentWeights::from(weights(f32::INFINITY))] {
            assert!(!bad.is_finite() && bad.ensure_like(&weights(0.0)).is_err());
        }
        assert!(held(1.0).ensure_like(&weights(0.0)).is_ok());
        assert!(held(1.0).ensure_like(&Weights::default()).is_err(), "another layout");
    }
}
