//! To whom a parameter belongs.
use serde::{Deserialize, Serialize};

/// To whom a parameter belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The representation `theta`, on which all clients agree.
    Shared,
    /// The head `w`, which never leaves its client.
    Personal,
}

/// The first name in the path of every personal parameter.
pub(crate) const PERSONAL: &str = "player";

impl Part {
    /// Everything under `player` is personal, the rest is shared.
    ///
    /// ```
    /// use fedeq_models::Part;
    /// assert_eq!(Part::of("cell.conv_a.weight"), Part::Shared);
    /// assert_eq!(Part::of("player.weight"), Part::Personal);
    /// ```
    pub fn of(path: &str) -> Self {
        if path.split('.').next() == Some(PERSONAL) { Self::Personal } else { Self::Shared }
    }
}
