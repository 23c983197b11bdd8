//! `key=value`, as a person types it.
use std::fmt;
use std::str::FromStr;

use fedeq_core::Error;
use toml::{Table, Value};

/// One setting that goes over whatever a file says: a dotted path and a value.
///
/// The value is read as TOML and, where it is none, taken as text: `plan.rounds=3`, `method=fedrep`,
/// `data.unseen={ fraction = 0.1 }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The keys on the way.
    pub path: Vec<String>,
    /// What is to stand there.
    pub value: Value,
}

impl FromStr for Override {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || Error::invalid(format!("`{text}` is not a setting"), "write `key=value`, such as `plan.rounds=20`");
        let (path, value) = text.split_once('=').ok_or_else(malformed)?;
        let path: Vec<String> = path.trim().split('.').map(|key| key.trim().to_owned()).collect();
        if path.iter().any(String::is_empty) {
            return Err(malformed());
        }
        Ok(Self { path, value: value_of(value.trim()) })
    }
}

fn value_of(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>().ok().filter(|table| table.len() == 1);
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

impl fmt::Display for Override {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A plain word needs no quotes where it can be nothing else.
        let is_plain = |word: &str| word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter));
        match &self.value {
            Value::String(word) if !word.is_empty() && is_plain(word) && value_of(word).is_str() => {
                write!(formatter, "{}={word}", self.path.join("."))
            }
            value => write!(formatter, "{}={value}", self.path.join(".")),
        }
    }
}

impl Override {
    /// Shorthand for code.
    pub fn new(path: &str, value: impl Into<Value>) -> Self {
        Self { path: path.split('.').map(str::to_owned).collect(), value: value.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_else_text() {
        let value = |text: &str| text.parse::<Override>().expect("a setting").value;
        assert_eq!(value("plan.rounds=3"), Value::Integer(3));
        assert_eq!(value("method = fedrep"), Value::String("fedrep".into()));
        assert_eq!(value("model=\"deq-mlp\""), Value::String("deq-mlp".into()));
        assert!(matches!(value("data.unseen={ fraction = 0.1 }"), Value::Table(_)));
        assert_eq!(value("data.folder=/a=b"), Value::String("/a=b".into()));
    }

    #[test]
    fn a_setting_is_written_as_it_can_be_read() {
        for text in ["plan.rounds=3", "method=fedrep", "seed=\"3\"", "data.folder=\"my data\"", "data.unseen={ fraction = 0.1 }"]
        {
            assert_eq!(text.parse::<Override>().expect("a setting").to_string(), text);
        }
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        assert!(["rounds", "=3", "plan..rounds=3"].iter().all(|text| text.parse::<Override>().is_err()));
    }
}
