//! Which values a setting may have, in words and as a check.
use serde::{Serialize, Serializer};
use toml::Value;

use crate::number::count;

/// What may stand at a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Accepts {
    /// A whole number, at least 0.
    Whole(Range),
    /// Any number.
    Number(Range),
    /// `true` or `false`.
    Flag,
    /// Any text.
    Text,
    /// Several of the same.
    List {
        /// What each of them may be.
        of: Box<Accepts>,
        /// At most so many.
        #[serde(skip_serializing_if = "Option::is_none")]
        most: Option<u64>,
    },
    /// One of some names.
    Choice {
        /// All of them.
        values: Vec<NamedChoice>,
    },
    /// A section: settings of its own, each of which may be left out.
    Section,
}

/// One of several names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedChoice {
    /// As it is written.
    pub name: String,
    /// What it means, in one sentence.
    pub about: String,
    /// What it takes beside its name.
    pub holds: Holds,
}

/// What a choice takes beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// Nothing: `rule=median`.
    Nothing,
    /// A value: `ball=0.9` below the key.
    Value,
    /// Settings that all may be left out: `rule=krum`, or `rule.krum.liars=0.1`.
    Settings,
    /// Settings of which some must be given: `adjoint.implicit.solver.gmres.memory=10`.
    NeededSettings,
}

/// The numbers between two bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// The lower one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<Bound>,
    /// The upper one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<Bound>,
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Where it ends.
    pub value: f64,
    /// Whether that number itself is one of them.
    pub included: bool,
}

impl Serialize for Bound {
    /// A plain number, or `{ above/below: number }` where it is not included.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Excluded {
            excluded: f64,
        }
        if !self.included {
            return Excluded { excluded: self.value }.serialize(serializer);
        }
        let is_whole = self.value.fract() == 0.0 && self.value.abs() < 1e15;
        if is_whole { (self.value as i64).serialize(serializer) } else { self.value.serialize(serializer) }
    }
}

impl Range {
    fn contains(&self, value: f64) -> bool {
        let above = self.least.is_none_or(|bound| value > bound.value || (bound.included && value == bound.value));
        let below = self.most.is_none_or(|bound| value < bound.value || (bound.included && value == bound.value));
        above && below
    }

    /// `from 1 to 1,000,000`, `above 0`, `at least 0 and below 1`; nothing where every number is one of them.
    fn words(&self) -> Option<String> {
        match (self.least, self.most) {
            (Some(Bound { value: least, included: true }), Some(Bound { value: most, included: true })) => {
                Some(format!("from {} to {}", number(least), number(most)))
            }
            (least, most) => {
                let least =
                    least.map(|bound| format!("{} {}", if bound.included { "at least" } else { "above" }, number(bound.value)));
                let most =
                    most.map(|bound| format!("{} {}", if bound.included { "at most" } else { "below" }, number(bound.value)));
                let ends: Vec<String> = least.into_iter().chain(most).collect();
                (!ends.is_empty()).then(|| ends.join(" and "))
            }
        }
    }
}

impl Accepts {
    /// As one says what to give: `a whole number from 1 to 1,000,000`.
    pub fn words(&self) -> String {
        match self {
            // TOML knows no larger numbers.
            Self::Whole(Range { least, most: None }) => {
                format!("a whole number from {}, below 2^63", number(least.map_or(0.0, |bound| bound.value)))
            }
            Self::Whole(range) => format!("a whole number {}", range.words().unwrap_or_default()),
            Self::Number(range) => range.words().map_or_else(
                || "a number".into(),
                |range| format!("a number {}{range}", if range.starts_with("at ") { "of " } else { "" }),
            ),
            Self::Flag => "`true` or `false`".into(),
            Self::Text => "a text".into(),
            Self::List { of, most } => {
                let most = most.map_or(String::new(), |most| format!("at most {} times ", count(most as usize)));
                format!("a list `[.., ..]`: {most}{}", of.words())
            }
            Self::Choice { values } => one_of(&values.iter().map(NamedChoice::written).collect::<Vec<_>>()),
            Self::Section => "settings: `{ key = value }`".into(),
        }
    }

    /// The same in a table: `whole number from 1 to 1,000,000`.
    pub fn brief(&self) -> String {
        let words = self.words();
        words.strip_prefix("a ").map_or(words.clone(), str::to_owned)
    }

    /// Whether a value of the right type is one of them; what is of another type is for the reader to refuse.
    pub(in crate::experiment) fn includes(&self, value: &Value) -> bool {
        let numeric = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
        match (self, value) {
            (Self::Whole(range) | Self::Number(range), _) => numeric.is_none_or(|numeric| range.contains(numeric)),
            (Self::List { of, most }, Value::Array(all)) => {
                most.is_none_or(|most| all.len() as u64 <= most) && all.iter().all(|value| of.includes(value))
            }
            _ => true,
        }
    }

    /// A value of this kind; of a kind that has settings of its own, which are settings too, its name alone.
    pub fn chosen(&self, value: &Value) -> Value {
        let (Self::Choice { values }, Value::Table(table)) = (self, value) else { return value.clone() };
        let has_settings = |kind: &&String| {
            let choice = values.iter().find(|choice| choice.name == **kind);
            choice.is_some_and(|choice| matches!(choice.holds, Holds::Settings | Holds::NeededSettings))
        };
        table.keys().next().filter(has_settings).map_or_else(|| value.clone(), |kind| Value::String(kind.clone()))
    }

    /// The names, where it is one of some.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Choice { values } => values.iter().map(|choice| choice.name.as_str()).collect(),
            Self::Flag => vec!["true", "false"],
            _ => Vec::new(),
        }
    }
}

impl NamedChoice {
    /// As it is written in a file: a name, or a table where it takes a value.
    fn written(&self) -> String {
        match self.holds {
            Holds::Nothing | Holds::Settings => format!("`{}`", self.name),
            Holds::Value => format!("`{{ {} = .. }}`", self.name),
            Holds::NeededSettings => format!("`{{ {} = {{ .. }} }}`", self.name),
        }
    }
}

/// `a`, `b` or `c`.
fn one_of(names: &[String]) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// A number as people write it: `1,000,000`, `0.9`, `1e-6`.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        _ if value.fract() == 0.0 && value.abs() < 1e15 => count(value as usize),
        _ if value.abs() < 1e-3 => format!("{value:e}"),
        _ => value.to_string(),
    }
}
