//! The classes there are, where not every sample is here to show them.
use crate::{Dataset, Error, Labels, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// The names of all classes, each once. A class's number is its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct ClassNames(Vec<String>);

impl ClassNames {
    /// The names that were found, put in order: by value where every name is a whole number, by letter otherwise.
    pub(super) fn in_order(mut names: Vec<String>) -> Result<Self> {
        sort_naturally(&mut names);
        let remedy = "name another column or tensor as the label, or group its values into classes";
        Self::try_from(names).map_err(|problem| Error::unmeetable(problem, remedy))
    }

    /// Those of a data set, if its labels are classes.
    pub(super) fn of(dataset: &Dataset) -> Option<Self> {
        match &dataset.labels {
            Labels::Classes { names, .. } => Self::try_from(names.clone()).ok(),
            _ => None,
        }
    }

    /// The names, in order of their numbers.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The class of each of `names`, which must be among these.
    pub(super) fn numbers(&self, names: &[String]) -> Result<Vec<u16>> {
        let numbers: HashMap<&String, u16> = self.0.iter().zip(0..).collect();
        let stranger = |name: &String| {
            let problem = format!("`{name}` is not one of the {} classes {}", self.0.len(), self.0.join(", "));
            Error::unmeetable(problem, "give it the name of one of them, or add it to `classes`")
        };
        names.iter().map(|name| numbers.get(name).copied().ok_or_else(|| stranger(name))).collect()
    }
}

impl TryFrom<Vec<String>> for ClassNames {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let most = usize::from(u16::MAX);
        let mut seen = BTreeSet::new();
        let twice = names.iter().find(|name| !seen.insert(*name));
        match (names.len(), twice) {
            (0, _) => Err("there is no class".into()),
            (count, _) if count > most => Err(format!("`{count}` distinct values are too many for classes: at most {most}")),
            (_, Some(name)) => Err(format!("the class `{name}` is there twice")),
            _ => Ok(Self(names)),
        }
    }
}

impl From<ClassNames> for Vec<String> {
    fn from(names: ClassNames) -> Self {
        names.0
    }
}

fn sort_naturally(names: &mut [String]) {
    if names.iter().all(|name| name.parse::<i64>().is_ok()) {
        names.sort_by_cached_key(|name| (name.parse::<i64>().unwrap_or(i64::MAX), name.clone()));
    } else {
        names.sort();
    }
}
