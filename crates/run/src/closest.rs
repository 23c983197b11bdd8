//! What a person may have meant.

/// The known name nearest to a mistyped one, if any is near, or else the first that contains it.
pub fn closest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&typed, &name.to_lowercase());
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = known.iter().copied().min_by_key(|name| distance(name))?;
    // A third of the letters may be wrong; beyond that it is a different word.
    if distance(nearest) <= typed.chars().count().div_ceil(3) {
        return Some(nearest);
    }
    known.into_iter().find(|name| name.to_lowercase().contains(&typed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["digits", "cifar10", "cifar100"];
        assert_eq!(closest("CIFAR-10", known), Some("cifar10"));
        assert_eq!(closest("digist", known), Some("digits"));
        assert_eq!(closest("imagenet", known), None);
        assert_eq!(
            closest("hamlet", ["MACBETH_MACBETH", "HAMLET_PRINCE_OF_DENMARK_HAMLET"]),
            Some("HAMLET_PRINCE_OF_DENMARK_HAMLET")
        );
    }
}
