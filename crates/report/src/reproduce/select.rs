//! Conditions on cells.
use std::collections::BTreeMap;

use serde::Deserialize;

/// Holds where the cell's choice on every named axis is one of those named; `part` stands for the name of the part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Condition(pub(super) BTreeMap<String, OneOrMore>);

/// A name or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Stands for the name of the part.
pub(super) const PART: &str = "part";

impl Condition {
    /// Whether it holds for a cell, given as its choice by axis. An axis that the cell does not have is never met.
    pub(super) fn holds(&self, choices: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(axis, wanted)| choices.get(axis).is_some_and(|choice| wanted.contains(choice)))
    }
}

impl Condition {
    /// Whether every name in it is that of some cell, and it holds for at least one.
    pub(super) fn is_met_entirely(&self, cells: &[BTreeMap<String, String>]) -> bool {
        let is_known = |axis: &str, name: &str| cells.iter().any(|cell| cell.get(axis).is_some_and(|choice| choice == name));
        let are_known = self.0.iter().all(|(axis, wanted)| wanted.names().iter().all(|name| is_known(axis, name)));
        are_known && cells.iter().any(|cell| self.holds(cell))
    }
}

impl OneOrMore {
    fn names(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.names().iter().any(|one| one == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_axis_must_agree() {
        let condition: Condition = toml::from_str("method = 'FeDEQ'\ndata = ['digits', 'femnist']").expect("a condition");
        let cell = |method: &str, data: &str| {
            BTreeMap::from([("method".to_owned(), method.to_owned()), ("data".to_owned(), data.to_owned())])
        };
        assert!(condition.holds(&cell("FeDEQ", "femnist")));
        assert!(!condition.holds(&cell("FedRep", "femnist")) && !condition.holds(&cell("FeDEQ", "cifar10")));
        assert!(Condition::default().holds(&BTreeMap::new()));
    }
}
