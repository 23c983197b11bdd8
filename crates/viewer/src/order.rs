//! By what lines of one method are put in order: their shades go from light to deep in it. The page does the same (`assets/colour.js`), and both are tested by
//! `browser/cases.json`.
use std::collections::{BTreeMap, BTreeSet};

/// A line of a picture: its method, by its name in settings, and every setting of its runs but the seed.
pub type LineSettings<'a> = (&'a str, &'a BTreeMap<String, String>);

/// The number by which each line is put in order among those of its method: the setting in which they differ that is a number everywhere and takes the most values.
/// Nothing where there is none, or no other line of the method.
pub fn orders(lines: &[LineSettings<'_>]) -> Vec<Option<f64>> {
    let of_method =
        |method: &str| lines.iter().filter(|(other, _)| *other == method).map(|(_, settings)| *settings).collect::<Vec<_>>();
    let methods: BTreeSet<&str> = lines.iter().map(|(method, _)| *method).collect();
    let keys: BTreeMap<&str, Option<&str>> = methods.into_iter().map(|method| (method, key_of(&of_method(method)))).collect();
    lines.iter().map(|(method, settings)| keys[method].and_then(|key| number(settings, key))).collect()
}

/// The setting by which some lines can be put in order.
fn key_of<'a>(alike: &[&'a BTreeMap<String, String>]) -> Option<&'a str> {
    let keys: BTreeSet<&str> = alike.iter().flat_map(|settings| settings.keys()).map(String::as_str).collect();
    let mut best = (1, None);
    for key in keys {
        let values = values_of(alike, key).map_or(0, |values| values.len());
        // Of several that take as many values, the first by its name.
        if values > best.0 {
            best = (values, Some(key));
        }
    }
    best.1
}

/// The values that a setting takes, if all are numbers.
fn values_of(alike: &[&BTreeMap<String, String>], key: &str) -> Option<BTreeSet<u64>> {
    // `-0` is `0`.
    alike.iter().map(|settings| Some((number(settings, key)? + 0.0).to_bits())).collect()
}

fn number(settings: &BTreeMap<String, String>, key: &str) -> Option<f64> {
    let value = settings.get(key)?;
    let plain = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    plain.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn lines_are_ordered_by_the_number_that_takes_the_most_values() {
        let lines = [("0.1", "2"), ("3.0", "1"), ("0.5", "1")].map(|(rho, epochs)| settings(&[("rho", rho), ("epochs", epochs)]));
        let of = |method| lines.iter().map(|line| (method, line)).collect::<Vec<_>>();
        assert_eq!(orders(&of("fedeq")), [Some(0.1), Some(3.0), Some(0.5)]);
        assert_eq!(orders(&of("fedeq")[..1]), [None], "one alone");
    }

    #[test]
    fn what_is_a_word_somewhere_or_the_same_everywhere_is_no_order() {
        let lines =
            [("3", "5"), ("\"auto\"", "5"), ("4", "5")].map(|(depth, rounds)| settings(&[("depth", depth), ("rounds", rounds)]));
        assert_eq!(orders(&lines.iter().map(|line| ("fedeq", line)).collect::<Vec<_>>()), [None; 3]);
        let missing = [settings(&[("rho", "1")]), settings(&[])];
        assert_eq!(orders(&missing.iter().map(|line| ("fedeq", line)).collect::<Vec<_>>()), [None; 2]);
    }

    #[test]
    fn methods_are_ordered_one_by_one() {
        let lines = [("fedeq", "1"), ("fedavg", "1"), ("fedeq", "2")].map(|(method, rho)| (method, settings(&[("rho", rho)])));
        let lines: Vec<LineSettings<'_>> = lines.iter().map(|(method, settings)| (*method, settings)).collect();
        assert_eq!(orders(&lines), [Some(1.0), None, Some(2.0)]);
    }
}
