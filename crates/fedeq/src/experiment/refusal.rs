//! What is wrong with an experiment file, where, and what was perhaps meant.
use fedeq_core::Error;
use toml::{Table, Value};

use super::overlay::{leaves, put};
use crate::closest::closest;

/// Turns a reader's complaint into one that names the whole path.
///
/// The complaint alone does not say where it arose, so each setting is tried on its own until one gives rise to the same.
pub(super) fn refuse(complaint: &str, wishes: &Table, attempt: impl Fn(&Table) -> Option<toml::de::Error>) -> Error {
    let is_culprit = |(path, value): &(Vec<String>, Value)| {
        let mut alone = Table::new();
        put(&mut alone, path, value);
        attempt(&alone).is_some_and(|error| error.message() == complaint)
    };
    let path = leaves(wishes).into_iter().find(is_culprit).map(|(path, _)| path).unwrap_or_default();
    explain(complaint, path)
}

fn explain(complaint: &str, mut path: Vec<String>) -> Error {
    let mut quoted = complaint.split('`').skip(1).step_by(2);
    let offender = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    if complaint.starts_with("unknown field") {
        match path.iter().position(|key| key == offender) {
            Some(at) => path.truncate(at + 1),
            None => path.push(offender.to_owned()),
        }
        return unknown_key(&path, &known);
    }
    if complaint.starts_with("unknown variant") {
        path.retain(|key| key != offender);
        return unknown_name(&path.join("."), &Value::String(offender.into()), &known);
    }
    let place = if path.is_empty() { String::new() } else { format!("`{}`: ", path.join(".")) };
    Error::invalid(format!("{place}{complaint}"), "write a value of the kind expected")
}

fn unknown_key(path: &[String], known: &[&str]) -> Error {
    let (key, above) = path.split_last().map_or(("", &[][..]), |(key, above)| (key.as_str(), above));
    let full = |key: &str| above.iter().map(String::as_str).chain([key]).collect::<Vec<_>>().join(".");
    let hint = match closest(key, known.iter().copied()) {
        Some(near) => format!("did you mean `{}`?", full(near)),
        None if known.is_empty() => "leave it out: nothing can be set here".into(),
        None => format!("choose one of {}", known.join(", ")),
    };
    Error::invalid(format!("there is no key `{}`", path.join(".")), hint)
}

/// There is nothing of that name; perhaps it was mistyped.
pub(super) fn unknown_name(path: &str, value: &Value, known: &[&str]) -> Error {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let hint = match closest(&text, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? there are {}", known.join(", ")),
        None => format!("choose one of {}", known.join(", ")),
    };
    Error::invalid(format!("`{path}` cannot be `{text}`"), hint)
}
