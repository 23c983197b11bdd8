//! Cells by name.
use std::convert::Infallible;
use std::str::FromStr;

/// A name in which `*` stands for any letters and `?` for any one.
///
/// ```
/// use fedeq_report::reproduce::Pattern;
/// let pattern: Pattern = "fedeq-*".parse().unwrap();
/// assert!(pattern.matches("fedeq-cifar10") && !pattern.matches("fedrep-cifar10"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<char>);

impl FromStr for Pattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.chars().collect()))
    }
}

impl Pattern {
    /// Whether a name fits.
    pub fn matches(&self, name: &str) -> bool {
        fits(&self.0, &name.chars().collect::<Vec<_>>())
    }
}

fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => (0..=name.len()).any(|skipped| fits(rest, &name[skipped..])),
        (Some((wanted, rest)), Some((letter, others))) => (*wanted == '?' || wanted == letter) && fits(rest, others),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything_and_question_marks_for_one_letter() {
        let matches = |pattern: &str, name: &str| pattern.parse::<Pattern>().expect("never fails").matches(name);
        assert!(matches("*", "") && matches("*-0.0?", "rho-0.01") && matches("a*b*c", "aXbYc"));
        assert!(!matches("rho", "rho-1") && !matches("?", "") && !matches("a*b", "abc"));
    }
}
