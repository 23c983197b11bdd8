//! `key=value,value`, as a person types it.
use std::str::FromStr;

use fedeq_core::{Error, Result};

use crate::experiment::Override;

/// A key and the values it takes in turn.
///
/// ```
/// use fedeq_run::sweep::Axis;
/// let axis: Axis = "training.learning_rate=0.05,0.1".parse()?;
/// assert_eq!((axis.key.as_str(), axis.values.len()), ("training.learning_rate", 2));
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The dotted path of a setting.
    pub key: String,
    /// The setting, with each value in turn.
    pub values: Vec<Override>,
}

impl FromStr for Axis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            Error::invalid(format!("`{text}` is not an axis of a grid"), "write `key=value,value`, such as `method=fedeq,fedrep`")
        };
        let (key, values) = text.split_once('=').ok_or_else(malformed)?;
        let values = split(values);
        if values.iter().any(|value| value.trim().is_empty()) {
            return Err(malformed());
        }
        let values = values.iter().map(|value| format!("{key}={value}").parse()).collect::<Result<_>>()?;
        Ok(Self { key: key.trim().to_owned(), values })
    }
}

/// Parts between commas; a comma inside brackets, braces or quotes separates nothing.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut is_quoted) = (Vec::new(), 0, 0i32, false);
    for (at, character) in text.char_indices() {
        match character {
            '"' => is_quoted = !is_quoted,
            '[' | '{' if !is_quoted => depth += 1,
            ']' | '}' if !is_quoted => depth -= 1,
            ',' if !is_quoted && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_inside_brackets_separate_nothing() {
        assert_eq!(split("1,[2,3],{ a = 4, b = 5 },\"6,7\""), ["1", "[2,3]", "{ a = 4, b = 5 }", "\"6,7\""]);
    }

    #[test]
    fn what_is_no_axis_is_refused() {
        assert!(["method", "method=", "plan.rounds=1,,2", "=1"].iter().all(|text| text.parse::<Axis>().is_err()));
    }
}
