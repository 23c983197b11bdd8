//! To whom a parameter belongs.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// To whom a parameter belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The representation `theta`, on which all clients agree.
    Shared,
    /// The head `w`, which stays with its client in FeDEQ, FedRep and FedPer; methods that share whole models send it too.
    Personal,
}

/// The first name in the path of every personal parameter.
pub const PERSONAL: &str = "head";

impl Part {
    /// Everything under `head` is personal, the rest is shared.
    ///
    /// ```
    /// use fedeq_models::Part;
    /// assert_eq!(Part::of("cell.conv_a.weight"), Part::Shared);
    /// assert_eq!(Part::of("head.weight"), Part::Personal);
    /// ```
    pub fn of(path: &str) -> Self {
        if path.split('.').next() == Some(PERSONAL) { Self::Personal } else { Self::Shared }
    }
}

/// Whether a parameter is the scale or the offset of a normalisation, by its path: its layer's name begins or ends with `norm`. Of networks of ours
/// [`Parameter::normalises`](crate::graph::Parameter::normalises) says it, and a network whose names say something else cannot be built.
///
/// ```
/// use fedeq_models::is_normalisation;
/// assert!(is_normalisation("stem.norm.scale") && is_normalisation("cell.norm_2.offset"));
/// assert!(!is_normalisation("cell.conv_a.weight"));
/// ```
pub fn is_normalisation(path: &str) -> bool {
    let layer = path.rsplit('.').nth(1).unwrap_or_default();
    layer.starts_with("norm") || layer.ends_with("norm")
}
