//! Numbers for names, in order of their first appearance.
use super::classes::ClassNames;
use crate::{Labels, Result};
use std::collections::HashMap;

/// The names seen so far and the number of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Roster {
    /// The number of `name`, which may be new.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        match self.numbers.get(name) {
            Some(&number) => number,
            None => self.append(name),
        }
    }

    /// The number of `name` if it is new, and nothing if it is not.
    pub(super) fn number_new(&mut self, name: &str) -> Option<u32> {
        (!self.has(name)).then(|| self.append(name))
    }

    /// Whether `name` has a number.
    pub(super) fn has(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The names, in order of their numbers.
    pub(super) fn into_names(self) -> Vec<String> {
        self.names
    }

    /// Labels whose classes are these names, numbered as in `known` or, where it was not said which classes there are, in order.
    ///
    /// `of` is the number each sample's class got here.
    pub(super) fn into_classes(self, of: &[u32], known: Option<&ClassNames>) -> Result<Labels> {
        let classes = known.cloned().map_or_else(|| ClassNames::in_order(self.names.clone()), Ok)?;
        let numbers = classes.numbers(&self.names)?;
        let values = of.iter().map(|&number| numbers[number as usize]).collect();
        Ok(Labels::Classes { names: classes.into(), values })
    }

    fn append(&mut self, name: &str) -> u32 {
        let number = self.names.len() as u32;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }
}
