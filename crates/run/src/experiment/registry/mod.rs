//! Every setting there is, made from the structs that read them.
//!
//! The structs of an experiment are read by serde and described by schemars, both from the same fields and attributes: what stands here is what
//! the reader accepts. Help, `docs/settings.md`, completion, hints of errors and the expansion of short forms all come from
//! here.
//!
//! # To add a setting
//! 1. Add a field, with a default, to the struct that reads it (a new struct or enum also derives `JsonSchema`).
//! 2. Its doc comment's first sentence is what `fedeq settings` says about it; it is written for who sets it.
//! 3. `#[schemars(range(min = 1, max = MOST))]` are its bounds, `#[schemars(extend("exclusiveMinimum" = 0))]` one that is not included; a
//!    setting outside of them is refused when an experiment is read. Take the constant that `validate` takes.
//!    Of a field with `skip_serializing_if` schemars knows no default: `#[schemars(extend("default" = ..))]` says it.
//! 4. `fedeq settings --format markdown > docs/settings.md`.
//! 5. `cargo test --workspace --test registry` proves that the reader takes it, with that default and those bounds.
//!
//! # Layout
//! - this file: what is known of a setting, and how it is found
//! - `accepts`: which values may stand there, in words and as a check
//! - `walk`: from the schema of an experiment to settings
//! - `given`: which values the presets give them
mod accepts;
mod given;
mod walk;

use std::sync::LazyLock;

use serde::Serialize;
use toml::{Table, Value};

pub use accepts::{Accepts, Bound, Holds, NamedChoice, Range};
pub use given::{Given, GivenWhere};

use crate::closest::closest;
use walk::Found;

/// What is known of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettingInfo {
    /// Its dotted path.
    pub key: String,
    /// The same, key by key.
    #[serde(skip)]
    path: Vec<String>,
    /// What may be written in its place: `method` for `method.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    /// What it is, in one sentence.
    pub about: String,
    /// What may stand there.
    #[serde(flatten)]
    pub accepts: Accepts,
    /// Whether it may be left open, so that there is no value at all.
    pub optional: bool,
    /// What must be chosen for it to mean something: one of these values for each of these keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_with: Vec<Condition>,
    /// Whether it stands in a section, or below a choice, that need not be there.
    #[serde(skip)]
    is_inside: bool,
    /// Its value where such a section is there and does not say it.
    #[serde(skip)]
    section_default: Option<Value>,
}

/// A choice that a setting depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// Its key, in its short form: `method`.
    pub key: String,
    /// Which of its values have the setting.
    pub values: Vec<String>,
}

/// A place where one of several kinds stands, each with settings of its own below its name: `model.equilibrium.solver`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kinds {
    pub(super) path: Vec<String>,
    /// The kinds that may be named without any settings, though they have some.
    pub(super) nameable: Vec<String>,
}

/// A section whose kind is said by one of its own keys: `method.name`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tagged {
    pub(super) path: Vec<String>,
    pub(super) tag: String,
}

static FOUND: LazyLock<Found> = LazyLock::new(walk::settings);

impl SettingInfo {
    /// Every setting, section by section.
    pub fn all() -> &'static [Self] {
        &FOUND.settings
    }

    /// The settings of that key; several where those of different kinds differ.
    pub fn named(key: &str) -> impl Iterator<Item = &'static Self> {
        Self::all().iter().filter(move |setting| setting.key == key || setting.short.as_deref() == Some(key))
    }

    /// Those whose keys begin with a prefix, as people type it; else those whose keys contain it.
    pub fn matching(prefix: &str) -> Vec<&'static Self> {
        let prefix = prefix.trim_end_matches('.');
        let is_below = |key: &str| key == prefix || key.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
        let is_named = |setting: &&Self| is_below(&setting.key) || setting.short.as_deref() == Some(prefix);
        let below: Vec<&Self> = Self::all().iter().filter(is_named).collect();
        if prefix.is_empty() || !below.is_empty() {
            return if prefix.is_empty() { Self::all().iter().collect() } else { below };
        }
        let beginning: Vec<&Self> = Self::all().iter().filter(|setting| setting.key.starts_with(prefix)).collect();
        if !beginning.is_empty() {
            return beginning;
        }
        Self::all().iter().filter(|setting| setting.key.contains(prefix)).collect()
    }

    /// The keys that were perhaps meant by one that there is not: those with the same last word in other sections, or else the nearest.
    pub fn elsewhere(key: &str) -> Vec<&'static str> {
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let ending = |word: &str| -> Vec<&'static str> {
            let mut keys: Vec<&str> =
                Self::all().iter().map(|setting| setting.key.as_str()).filter(|key| last(key) == word).collect();
            keys.dedup();
            keys
        };
        let same = ending(&last(key));
        if !same.is_empty() || key.contains('.') {
            return same;
        }
        let words: Vec<String> = Self::all().iter().map(|setting| last(&setting.key)).collect();
        closest(key, words.iter().map(String::as_str)).map_or(Vec::new(), ending)
    }

    /// As people write it: the short form where there is one.
    pub fn written(&self) -> &str {
        self.short.as_deref().unwrap_or(&self.key)
    }

    /// Whether the experiment of a table, in which everything stands, has it.
    fn applies_to(&self, experiment: &Table) -> bool {
        self.only_with.iter().all(|condition| {
            let key = Self::named(&condition.key).next().map_or(condition.key.as_str(), |setting| setting.key.as_str());
            value_at(experiment, key)
                .and_then(Value::as_str)
                .is_some_and(|kind| condition.values.iter().any(|known| known == kind))
        })
    }

    /// Its value where none is given, in the experiment of `fedeq run` with what it needs; nothing if there is none.
    pub fn default(&self) -> Option<Value> {
        if self.is_inside { self.section_default.clone() } else { given::reference(self) }
    }

    /// Its value in an experiment that has it and does not say it: files leave out what is usual.
    fn unsaid(&self) -> Option<Value> {
        if self.is_inside || self.optional { None } else { self.section_default.clone() }
    }

    /// The other values that presets give it, and where.
    pub fn given(&self) -> Vec<Given> {
        given::others(self)
    }
}

/// The setting that a value of an experiment belongs to.
pub(super) fn setting_at(path: &[String], experiment: &Table) -> Option<&'static SettingInfo> {
    let key = path.join(".");
    SettingInfo::named(&key).find(|setting| setting.applies_to(experiment))
}

/// What may stand at a path, whatever else is chosen.
pub(super) fn accepted_at(path: &[String]) -> Option<&'static Accepts> {
    SettingInfo::named(&path.join(".")).next().map(|setting| &setting.accepts)
}

/// Values of sections and kinds that need not be there, by their paths, as an experiment's choices have them. A struct's own defaults are others where what stands around
/// it gives it some: a solve for a gradient takes more steps than another.
pub(super) fn inner_defaults(experiment: &Table) -> impl Iterator<Item = (&'static [String], &'static Value)> {
    let plain =
        |setting: &&SettingInfo| !matches!(setting.accepts, Accepts::Choice { .. } | Accepts::Section) && !setting.optional;
    let is_value_of_kind = |setting: &SettingInfo| {
        kinds().iter().any(|kinds| setting.path.starts_with(&kinds.path) && setting.path.len() == kinds.path.len() + 1)
    };
    SettingInfo::all()
        .iter()
        .filter(|setting| setting.is_inside)
        .filter(plain)
        .filter(move |setting| !is_value_of_kind(setting) && setting.applies_to(experiment))
        .filter_map(|setting| Some((setting.path.as_slice(), setting.section_default.as_ref()?)))
}

/// What an experiment has without saying it, by its paths: the usual values, which files leave out. What may be left open and is has no value.
pub(super) fn unsaid(experiment: &Table) -> impl Iterator<Item = (&'static [String], Value)> {
    let of_sections = SettingInfo::all().iter().filter(move |setting| setting.applies_to(experiment));
    let of_sections = of_sections.filter_map(|setting| Some((setting.path.as_slice(), setting.unsaid()?)));
    let is_section = move |path: &[String]| value_at(experiment, &path.join(".")).is_some_and(Value::is_table);
    let of_inner = inner_defaults(experiment).filter(move |(path, _)| is_section(&path[..path.len() - 1]));
    let all = of_sections.chain(of_inner.map(|(path, value)| (path, value.clone())));
    all.filter(move |(path, _)| value_at(experiment, &path.join(".")).is_none())
}

/// All places where one of several kinds stands below its name.
pub(super) fn kinds() -> &'static [Kinds] {
    &FOUND.kinds
}

/// All sections whose kind is said by one of their keys.
pub(super) fn tagged() -> &'static [Tagged] {
    &FOUND.tagged
}

/// What stands at a dotted path.
fn value_at<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let (way, last) = key.rsplit_once('.').map_or((None, key), |(way, last)| (Some(way), last));
    way.into_iter()
        .flat_map(|way| way.split('.'))
        .try_fold(table, |table, key| table.get(key).and_then(Value::as_table))?
        .get(last)
}
