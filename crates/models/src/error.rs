//! What can be wrong with a request for a network, its input or its file.
use std::path::{Path, PathBuf};

use fedeq_equilibrium::InvalidSetting;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, ModelError>;

/// A failure with the offending thing and a remedy.
///
/// `Display` says what is wrong in one sentence; [`ModelError::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The configuration and the task do not go together, or one of them makes no sense.
    #[error("{problem}")]
    Unfitting {
        /// What does not fit, with the offending value in backticks.
        problem: String,
        /// What would fit.
        remedy: String,
    },
    /// A setting of the equilibrium solver makes no sense.
    #[error("equilibrium: {0}")]
    Equilibrium(#[from] InvalidSetting),
    /// A saved network is damaged or belongs to another network.
    #[error("{problem}")]
    Unloadable {
        /// What is wrong with it, with the offending path or value in backticks.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// The operating system refused.
    #[error("`{}`: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted, as a verb phrase: "read it".
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl ModelError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unfitting { remedy, .. } | Self::Unloadable { remedy, .. } => remedy.clone(),
            Self::Equilibrium(setting) => format!("set `{}` to {}", setting.name, setting.expected),
            Self::Io { path, .. } => format!("check that `{}` exists and may be accessed", path.display()),
        }
    }

    pub(crate) fn unfitting(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unfitting { problem: problem.into(), remedy: remedy.into() }
    }

    pub(crate) fn unloadable(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unloadable { problem: problem.into(), remedy: remedy.into() }
    }

    /// Shaped for `map_err`.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}

/// Numbers that a dense layer may give.
pub(crate) const MOST_WIDTH: usize = 16_384;

/// Factors further from 1 would leave nothing of what they multiply, or nothing that is a number.
pub(crate) const LEAST_FACTOR: f64 = 1e-6;
/// Likewise.
pub(crate) const MOST_FACTOR: f64 = 1e6;

/// Refuses a number outside `range`, which `name` is called in a configuration.
pub(crate) fn ensure_within(name: &str, value: usize, range: std::ops::RangeInclusive<usize>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (low, high) = range.into_inner();
    let remedy = format!("choose a {name} between {low} and {}", thousands(high));
    Err(ModelError::unfitting(format!("{name} `{value}` is out of range"), remedy))
}

/// Refuses a factor that would leave nothing of what it multiplies, or nothing that is a number.
pub(crate) fn ensure_factor(name: &str, value: f64) -> Result<()> {
    if (LEAST_FACTOR..=MOST_FACTOR).contains(&value) {
        return Ok(());
    }
    let remedy = format!("choose a number above 0 for `{name}`, from 1e-6 to 1e6; 1 changes nothing");
    Err(ModelError::unfitting(format!("{name} `{value}` is out of range"), remedy))
}

/// Parameters of a network: 1 GB of them, which training needs several times over.
const MOST_PARAMETERS: usize = 1 << 28;

/// Refuses parameters of these shapes that no machine has room for, before anything is allocated for them.
pub(crate) fn ensure_parameters<'a>(shapes: impl Iterator<Item = &'a Vec<usize>>) -> Result<()> {
    let count = |shape: &Vec<usize>| shape.iter().copied().fold(1, usize::saturating_mul);
    let parameters = shapes.map(count).fold(0, usize::saturating_add);
    if parameters <= MOST_PARAMETERS {
        return Ok(());
    }
    let problem = format!("the network would have `{}` parameters", thousands(parameters));
    let remedy = format!("choose smaller widths or smaller inputs: at most {} parameters", thousands(MOST_PARAMETERS));
    Err(ModelError::unfitting(problem, remedy))
}

/// A number as people write it: `16,384`.
fn thousands(number: usize) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}
