//! One colour a method, on every page and in every picture; FeDEQ's is the strongest.
use serde::Serialize;

/// The colour of a method on light and on dark paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MethodColour {
    /// On light paper.
    pub light: &'static str,
    /// On dark paper.
    pub dark: &'static str,
    /// Whether its lines are drawn broader than those of others.
    pub strong: bool,
}

const fn colour(light: &'static str, dark: &'static str) -> MethodColour {
    MethodColour { light, dark, strong: false }
}

/// Colours that can be told apart with any colour vision come first. Every method has one; the paper's is the strongest, and no other method shares it.
const NAMED: &[(&str, MethodColour)] = &[
    ("fedeq", MethodColour { strong: true, ..colour("#0047d6", "#5aa9ff") }),
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

/// The colour of a method, by its name in settings. One that is not known here, of another version of this program, shares that of another, always the same.
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
        let known: BTreeSet<&str> = fedeq_core::Method::NAMES.into_iter().collect();
        let named: BTreeSet<&str> = NAMED.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, known, "give every method a colour in `NAMED`, and nothing else");
        let distinct = |colour_of: fn(&MethodColour) -> &'static str| {
            NAMED.iter().map(|(_, colour)| colour_of(colour)).collect::<BTreeSet<_>>().len()
        };
        let amounts = [distinct(|colour| colour.light), distinct(|colour| colour.dark)];
        assert_eq!(amounts, [known.len(); 2], "two methods share a colour");
    }

    #[test]
    fn one_method_is_drawn_stronger_than_the_others() {
        let strong: Vec<&str> = NAMED.iter().filter(|(_, colour)| colour.strong).map(|(name, _)| *name).collect();
        assert_eq!(strong, ["fedeq"]);
        assert_ne!(method_colour("new"), method_colour("fedeq"), "what is not known does not pass for it");
    }
}
