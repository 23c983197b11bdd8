//! Numbers for names, in order of their first appearance.
use crate::{Error, Labels, Result};
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

    /// Labels whose classes are these names put in order: by value where every name is a whole number, by letter otherwise.
    ///
    /// `of` is the number each sample's class got here.
    pub(super) fn into_classes(self, of: &[u32]) -> Result<Labels> {
        if self.names.len() > usize::from(u16::MAX) {
            let problem = format!("the labels have `{}` distinct values, which is too many for classes", self.names.len());
            return Err(Error::unmeetable(
                problem,
                "predict the label as a number (`task = \"numbers\"`), or name another label",
            ));
        }
        let mut names = self.names;
        sort_naturally(&mut names);
        let mut class = vec![0; names.len()];
        for (rank, name) in (0u16..).zip(&names) {
            class[self.numbers[name] as usize] = rank;
        }
        Ok(Labels::Classes { names, values: of.iter().map(|&number| class[number as usize]).collect() })
    }

    fn append(&mut self, name: &str) -> u32 {
        let number = self.names.len() as u32;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }
}

fn sort_naturally(names: &mut [String]) {
    if names.iter().all(|name| name.parse::<i64>().is_ok()) {
        names.sort_by_cached_key(|name| (name.parse::<i64>().unwrap_or(i64::MAX), name.clone()));
    } else {
        names.sort();
    }
}
