//! Seeds, as a person types them: `0,1,2`, `0..3` or `0..=2`.
use std::str::FromStr;

use fedeq_core::{Error, Result};

/// A list of seeds, single ones and ranges.
///
/// ```
/// use fedeq_run::sweep::Seeds;
/// assert_eq!("0..3".parse::<Seeds>()?, Seeds(vec![0, 1, 2]));
/// assert_eq!("7,0..=2".parse::<Seeds>()?, Seeds(vec![7, 0, 1, 2]));
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

/// More seeds than this are a slip.
const MOST: u64 = 10_000;

impl FromStr for Seeds {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            let problem = format!("`{text}` are no seeds");
            Error::invalid(
                problem,
                "write `0,1,2`, or `0..3` for the same (the end is not included), or `0..=2`, for at most 10,000 of them",
            )
        };
        let seeds: Vec<u64> = text
            .split(',')
            .map(|part| range(part).ok_or_else(malformed))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        // Seeds are written as TOML, which knows no larger numbers.
        let is_sound = seeds.len() as u64 <= MOST && seeds.iter().all(|&seed| i64::try_from(seed).is_ok());
        if is_sound { Ok(Self(seeds)) } else { Err(malformed()) }
    }
}

/// The seeds of one part: a number, or a range that is not empty.
fn range(text: &str) -> Option<Vec<u64>> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (from, to) = match (text.split_once("..="), text.split_once("..")) {
        (Some((from, last)), _) => (number(from)?, number(last)?.checked_add(1)?),
        (None, Some((from, to))) => (number(from)?, number(to)?),
        (None, None) => (number(text)?, number(text)?.checked_add(1)?),
    };
    (from < to && to - from <= MOST).then(|| (from..to).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_range_is_left_out_unless_it_is_asked_for() {
        let seeds = |text: &str| text.parse::<Seeds>().expect("seeds").0;
        assert_eq!(seeds("0..3"), [0, 1, 2]);
        assert_eq!(seeds("0..=3"), [0, 1, 2, 3]);
        assert_eq!(seeds(" 5 , 1..2"), [5, 1]);
    }

    #[test]
    fn what_are_no_seeds_is_refused() {
        for text in
            ["", "a", "3..3", "3..1", "0..", "..3", "-1", "0..18446744073709551615", "18446744073709551615", "1,,2", "0..3..5"]
        {
            assert!(text.parse::<Seeds>().is_err(), "{text}");
        }
    }
}
