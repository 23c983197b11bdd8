//! What is wrong with an experiment file, where, and what was perhaps meant.
use fedeq_core::Error;
use toml::{Table, Value};

use super::layers::{TAGS, leaves, put};
use super::registry::{Accepts, SettingInfo, accepted_at};
use crate::closest::closest;

/// Why an experiment was refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    error: Box<Error>,
    /// The key that there is not, where that is the reason.
    unknown: Option<Vec<String>>,
}

impl Refusal {
    /// Whether the reason is that this key, or one that it is part of, does not apply.
    pub(crate) fn is_about(&self, path: &[String]) -> bool {
        self.unknown.as_ref().is_some_and(|unknown| path.starts_with(unknown))
    }

    /// The key that there is not, where that is the reason.
    pub(crate) fn unknown(&self) -> Option<&[String]> {
        self.unknown.as_deref()
    }
}

impl Refusal {
    /// The same of a key that stands in the file, where the command chose what does not have it.
    pub(super) fn about_file(self) -> Self {
        let hint = match self.unknown.as_deref() {
            Some([section, _]) => format!(
                "{}; it stands in the file: take it out there, or replace the whole section with `--set '{section}={{ name = \"NAME\" }}'`",
                self.error.hint()
            ),
            _ => format!("{}; it stands in the file: take it out there", self.error.hint()),
        };
        Self { error: Error::invalid(self.error.to_string(), hint).into(), ..self }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error: error.into(), unknown: None }
    }
}

impl From<fedeq_data::Error> for Refusal {
    fn from(error: fedeq_data::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        *refusal.error
    }
}

/// Turns a reader's complaint into one that names the whole path.
///
/// The complaint alone does not say where it arose, so each setting is tried on its own until one gives rise to the same. `kinds_with` names
/// the kinds that have a key.
pub(super) fn refuse(
    complaint: &str,
    settings: &Table,
    defaults: &Table,
    attempt: impl Fn(&Table) -> Option<toml::de::Error>,
    kinds_with: impl Fn(&[String], &Value) -> Vec<String>,
) -> Refusal {
    let is_culprit = |(path, value): &(Vec<String>, Value)| {
        let mut alone = Table::new();
        put(&mut alone, path, value);
        attempt(&alone).is_some_and(|error| error.message() == complaint)
    };
    let culprit = leaves(settings).into_iter().find(is_culprit);
    let (mut path, value) = culprit.map_or((Vec::new(), None), |(path, value)| (path, Some(value)));
    let kinds = value.as_ref().map_or(Vec::new(), |value| kinds_with(&path, value));
    let mut quoted = complaint.split('`').skip(1).step_by(2);
    let offender = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    if complaint.starts_with("unknown field") {
        match path.iter().position(|key| key == offender) {
            Some(at) => path.truncate(at + 1),
            None => path.push(offender.to_owned()),
        }
        let error = unknown_key(&path, &known, kind_at(defaults, &path), &kinds);
        return Refusal { error: error.into(), unknown: Some(path) };
    }
    if complaint.starts_with("unknown variant") {
        path.retain(|key| key != offender);
        return unknown_name(&path.join("."), &Value::String(offender.into()), &known).into();
    }
    wrong_value(complaint, &path, value).into()
}

/// What the section that a key stands in is, where it is one of several kinds.
fn kind_at<'a>(defaults: &'a Table, path: &[String]) -> Option<(String, &'a str)> {
    let (_, above) = path.split_last()?;
    let section = above.iter().try_fold(defaults, |table, key| table.get(key).and_then(Value::as_table))?;
    let kind = TAGS.iter().find_map(|tag| section.get(*tag)).and_then(Value::as_str)?;
    Some((above.join("."), kind))
}

fn unknown_key(path: &[String], known: &[&str], kind: Option<(String, &str)>, others: &[String]) -> Error {
    let (key, above) = path.split_last().map_or(("", &[][..]), |(key, above)| (key.as_str(), above));
    let full = |key: &str| above.iter().map(String::as_str).chain([key]).collect::<Vec<_>>().join(".");
    let elsewhere = SettingInfo::elsewhere(&path.join("."));
    let hint = match closest(key, known.iter().copied()) {
        _ if !others.is_empty() => {
            format!("leave it out, or set {}", others.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(" or "))
        }
        Some(near) => format!("did you mean `{}`?", full(near)),
        None if !elsewhere.is_empty() => format!("did you mean `{}`?", elsewhere.join("` or `")),
        None if known.is_empty() => "leave it out: nothing can be set here".into(),
        None => format!("choose one of {}", known.join(", ")),
    };
    let place = kind.map_or(String::new(), |(section, kind)| format!(" where `{section}` is `{kind}`"));
    Error::invalid(format!("there is no key `{}`{place}", path.join(".")), hint)
}

/// There is nothing of that name; perhaps it was mistyped.
pub(super) fn unknown_name(path: &str, value: &Value, known: &[&str]) -> Error {
    let text = text_of(value);
    let hint = match closest(&text, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? there are {}", known.join(", ")),
        None => format!("choose one of {}", known.join(", ")),
    };
    Error::invalid(format!("`{path}` cannot be `{text}`"), hint)
}

/// A value that cannot stand where it does.
pub(super) fn out_of_bounds(path: &[String], value: &Value, accepts: &Accepts) -> Error {
    Error::invalid(format!("`{}` is `{}`", path.join("."), text_of(value)), format!("give {}", accepts.words()))
}

/// A value of another kind than is wanted, or out of range.
fn wrong_value(complaint: &str, path: &[String], value: Option<Value>) -> Error {
    if complaint.starts_with("wanted exactly 1 element") {
        return Error::invalid(
            format!("`{}` is not one of several kinds", path.join(".")),
            "name one of them: `{ kind = value }`",
        );
    }
    if let Some(field) = complaint.strip_prefix("missing field ").map(|field| field.trim_matches('`')) {
        let section = path.split_last().map_or(String::new(), |(_, section)| section.join("."));
        return Error::invalid(format!("`{section}` does not say its `{field}`"), format!("set `{section}.{field}` as well"));
    }
    match (value, accepted_at(path)) {
        (Some(value), Some(accepts)) => out_of_bounds(path, &value, accepts),
        _ => {
            let place = if path.is_empty() { String::new() } else { format!("`{}`: ", path.join(".")) };
            Error::invalid(format!("{place}{complaint}"), "write a value of the kind expected")
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
