//! One colour a method, on every page and in every picture; FeDEQ's is the strongest.
use serde::Serialize;

/// The colour of a method on light and on dark paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MethodColour {
    /// On light paper.
    pub light: &'static str,
    /// On dark paper.
    pub dark: &'static str,
}

const fn colour(light: &'static str, dark: &'static str) -> MethodColour {
    MethodColour { light, dark }
}

/// Colours that can be told apart with any colour vision come first.
const NAMED: [(&str, MethodColour); 15] = [
    ("fedeq", colour("#0047d6", "#5aa9ff")),
    ("fedavg", colour("#c65300", "#ff9a52")),
    ("fedrep", colour("#00875f", "#3fd0a2")),
    ("ditto", colour("#b3569b", "#e79cc6")),
    ("local", colour("#6b7379", "#a9b3ba")),
    ("fedper", colour("#967200", "#e6c84a")),
    ("fedavg-ft", colour("#a3382f", "#f28b82")),
    ("knn-per", colour("#7a4fc9", "#b79cf2")),
    ("fedprox", colour("#2b8f9e", "#6fd0de")),
    ("scaffold", colour("#7f5539", "#c9a083")),
    ("pfedme", colour("#5f7f00", "#b5d24a")),
    ("apfl", colour("#c2185b", "#f48fb1")),
    ("fedbn", colour("#455a9c", "#9fb0e8")),
    ("feddyn", colour("#8e6c88", "#c9a9c4")),
    ("moon", colour("#3f7d4e", "#8fce9d")),
];

/// The colour of a method, by its name in settings. One that has none of its own shares that of another, always the same.
pub fn method_colour(method: &str) -> MethodColour {
    let others = NAMED.len() - 1;
    let letters = method.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let own = NAMED.iter().find(|(name, _)| *name == method);
    own.map_or(NAMED[1 + letters % others].1, |(_, colour)| *colour)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_method_there_is_has_a_colour_of_its_own() {
        let known = fedeq_core::Method::NAMES;
        let colours: BTreeSet<&str> = known.iter().map(|name| method_colour(name).light).collect();
        assert!(colours.len() >= known.len().min(NAMED.len()), "{colours:?}");
        assert!(NAMED.iter().all(|(name, _)| known.contains(name)), "only methods have one");
        assert_ne!(method_colour("new"), method_colour("fedeq"), "no other method has FeDEQ's");
    }
}
