//! Searches: points drawn at random from axes, and rounds after which only the better ones are trained further.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fedeq_core::{Error, Result};
use fedeq_data::Seed;
use rand_chacha::rand_core::Rng;

use super::grid::SweepAxis;
use crate::experiment::{Accepts, Override, SettingInfo};

/// An axis to draw from.
///
/// ```
/// use fedeq_run::sweep::{SearchAxis, draw};
/// let axes: Vec<SearchAxis> = vec!["training.learning_rate=log:0.001..0.1".parse()?, "method=fedeq,fedrep".parse()?];
/// let drawn = draw(&axes, 4, 0)?;
/// assert_eq!((drawn.len(), drawn[0].values.len()), (2, 4));
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SearchAxis {
    key: String,
    domain: Domain,
    /// The axis that it goes together with: what is drawn there says which of its values it has.
    with: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Domain {
    /// Each as likely as any other.
    List(Vec<Override>),
    /// Numbers between two ends, which may be drawn themselves.
    Between { low: f64, high: f64, by_magnitude: bool, is_whole: bool },
}

impl std::str::FromStr for SearchAxis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (key, range) = text.split_once('=').unwrap_or((text, ""));
        let (range, by_magnitude) = range.trim().strip_prefix("log:").map_or((range.trim(), false), |range| (range, true));
        let Some((low, high)) = range.split_once("..") else {
            return Ok(text.parse::<SweepAxis>()?.into());
        };
        let key = key.trim().to_owned();
        let malformed = || {
            let problem = format!("`{text}` is no range to draw from");
            Error::invalid(
                problem,
                "write `key=0.1..0.9`, or `key=log:0.001..0.1` to draw magnitudes alike; both ends are included",
            )
        };
        let number = |text: &str| text.trim().trim_start_matches('=').parse::<f64>().ok().filter(|number| number.is_finite());
        let (Some(low), Some(high)) = (number(low), number(high)) else { return Err(malformed()) };
        if low >= high || (by_magnitude && low <= 0.0) {
            return Err(malformed());
        }
        let is_whole = match SettingInfo::named(&key).next().map(|setting| &setting.accepts) {
            Some(Accepts::Whole(_)) => true,
            Some(Accepts::Number(_)) => false,
            _ => {
                let problem = format!("`{key}` is no number, so nothing lies between `{low}` and `{high}`");
                return Err(Error::invalid(problem, "list its values: `key=value,value`"));
            }
        };
        Ok(Self { key, domain: Domain::Between { low, high, by_magnitude, is_whole }, with: None })
    }
}

impl fmt::Display for SearchAxis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}=", self.key)?;
        match &self.domain {
            Domain::List(values) => {
                let values: Vec<String> = values.iter().map(|value| value.value.to_string()).collect();
                formatter.write_str(&values.join(","))
            }
            Domain::Between { low, high, by_magnitude, .. } => {
                write!(formatter, "{}{low}..{high}", if *by_magnitude { "log:" } else { "" })
            }
        }
    }
}

impl From<SweepAxis> for SearchAxis {
    fn from(SweepAxis { key, values, with }: SweepAxis) -> Self {
        Self { key, domain: Domain::List(values), with }
    }
}

impl SearchAxis {
    /// Whether it has no values of its own, so that only a search makes anything of it.
    pub fn is_range(&self) -> bool {
        matches!(self.domain, Domain::Between { .. })
    }

    /// Its values in turn, where it has some.
    pub fn list(&self) -> Option<SweepAxis> {
        let Domain::List(values) = &self.domain else { return None };
        Some(SweepAxis { key: self.key.clone(), values: values.clone(), with: self.with.clone() })
    }

    /// The value at a number from 0 up to 1.
    fn at(&self, uniform: f64) -> Override {
        match &self.domain {
            Domain::List(values) => values[((uniform * values.len() as f64) as usize).min(values.len() - 1)].clone(),
            Domain::Between { low, high, by_magnitude, is_whole: true } => {
                let number = between(*low, high + 1.0, *by_magnitude, uniform).floor().clamp(*low, *high);
                Override::new(&self.key, number as i64)
            }
            Domain::Between { low, high, by_magnitude, is_whole: false } => {
                let number = between(*low, *high, *by_magnitude, uniform);
                // Three digits are enough to search by, and short enough to read.
                let rounded: f64 = format!("{number:.2e}").parse().unwrap_or(number);
                Override::new(&self.key, rounded.clamp(*low, *high))
            }
        }
    }
}

fn between(low: f64, high: f64, by_magnitude: bool, share: f64) -> f64 {
    if !by_magnitude {
        return low + share * (high - low);
    }
    libm::exp(libm::log(low) + share * (libm::log(high) - libm::log(low)))
}

/// A number from 0 up to 1 of 53 random bits, on every platform the same.
fn uniform(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A value of every axis; those that go together have the values of the same place.
fn point(axes: &[SearchAxis], rng: &mut impl Rng) -> Vec<Override> {
    let mut drawn: BTreeMap<&str, f64> = BTreeMap::new();
    let mut values = Vec::new();
    for axis in axes {
        let tied = axis.with.as_deref().and_then(|leader| drawn.get(leader)).copied();
        let number = tied.unwrap_or_else(|| uniform(rng));
        drawn.insert(&axis.key, number);
        values.push(axis.at(number));
    }
    values
}

/// So many different points, each an axis' value, drawn by a seed: axes that all go together. Fewer where there are no more.
pub fn draw(axes: &[SearchAxis], points: usize, seed: u64) -> Result<Vec<SweepAxis>> {
    let Some(first) = axes.first() else {
        return Err(Error::invalid("there is nothing to search", "name settings and values with `--grid`"));
    };
    let (mut drawn, mut seen): (Vec<Vec<Override>>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
    for attempt in 0..(100 * points as u64) {
        if drawn.len() == points {
            break;
        }
        let mut rng = Seed::new(seed).derive("search", [attempt]).rng();
        let point = point(axes, &mut rng);
        if seen.insert(point.iter().map(|value| format!("{value}\n")).collect()) {
            drawn.push(point);
        }
    }
    let axis = |at: usize| SweepAxis {
        key: axes[at].key.clone(),
        values: drawn.iter().map(|point| point[at].clone()).collect(),
        with: (at > 0).then(|| first.key.clone()),
    };
    Ok((0..axes.len()).map(axis).collect())
}

/// Successive halving: all points are trained for a few rounds, the better ones of them further, and so on.
///
/// ```
/// use fedeq_run::sweep::Halving;
/// let halving = Halving::new(9, 3, 90, 10)?;
/// assert_eq!(halving.rungs, [(10, 9), (30, 3), (90, 1)]);
/// assert_eq!(halving.rounds(), 9 * 10 + 3 * 20 + 60); // In place of 9 * 90.
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halving {
    /// Until which round how many points are trained.
    pub rungs: Vec<(u64, usize)>,
}

impl Halving {
    /// For so many points: one of `keep` is kept each time, until one is left; points are evaluated every so many rounds.
    pub fn new(points: usize, keep: u64, rounds: u64, evaluate_every: u64) -> Result<Self> {
        if evaluate_every == 0 || evaluate_every > rounds {
            let problem =
                format!("`plan.evaluate_every` is `{evaluate_every}`: there is nothing to choose by before round {rounds}");
            return Err(Error::invalid(problem, "evaluate more often, such as `--set plan.evaluate_every=5`"));
        }
        let keep = keep.max(2);
        let mut rungs = vec![(rounds, 1usize)];
        let (mut round, mut kept) = (rounds, 1usize);
        while kept < points {
            let earlier = (round / keep / evaluate_every).max(1) * evaluate_every;
            kept = kept.saturating_mul(keep as usize).min(points);
            if earlier >= round {
                // No earlier evaluation: all the others are there from here on.
                if let Some(first) = rungs.first_mut() {
                    first.1 = points;
                }
                break;
            }
            round = earlier;
            rungs.insert(0, (round, kept));
        }
        if let Some(first) = rungs.first_mut() {
            first.1 = points;
        }
        Ok(Self { rungs })
    }

    /// Rounds of all points together.
    pub fn rounds(&self) -> u64 {
        let mut before = 0;
        let each = |(round, points): &(u64, usize)| {
            let more = (round - before) * *points as u64;
            before = *round;
            more
        };
        self.rungs.iter().map(each).sum()
    }

    /// The most points whose rounds all together are no more than a budget; at least one.
    pub fn within(budget: u64, keep: u64, rounds: u64, evaluate_every: u64) -> Result<Self> {
        let mut best = Self::new(1, keep, rounds, evaluate_every)?;
        for points in 2..=MOST_POINTS {
            let larger = Self::new(points, keep, rounds, evaluate_every)?;
            if larger.rounds() > budget {
                break;
            }
            best = larger;
        }
        if best.rounds() > budget {
            let problem = format!("a budget of `{budget}` rounds is less than the `{rounds}` of one run");
            return Err(Error::invalid(problem, format!("give at least {rounds}, or set fewer `plan.rounds`")));
        }
        Ok(best)
    }
}

/// More points than this are a slip.
pub const MOST_POINTS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(texts: &[&str]) -> Vec<SearchAxis> {
        texts.iter().map(|text| text.parse().expect("an axis")).collect()
    }

    #[test]
    fn drawn_points_are_the_same_for_the_same_seed_within_their_bounds_and_different() {
        let axes = axes(&["training.learning_rate=log:0.001..0.1", "training.epochs=1..3", "method=fedeq,fedrep"]);
        let drawn = draw(&axes, 200, 7).expect("drawn");
        assert_eq!(drawn, draw(&axes, 200, 7).expect("drawn"));
        assert_ne!(drawn, draw(&axes, 200, 8).expect("drawn"));
        let rates: Vec<f64> = drawn[0].values.iter().map(|value| value.value.as_float().expect("a number")).collect();
        assert!(rates.iter().all(|rate| (0.001..=0.1).contains(rate)));
        // By magnitude: half of them are below the geometric mean; five standard errors are 0.18.
        let below = rates.iter().filter(|rate| **rate < 0.01).count() as f64 / 200.0;
        assert!((below - 0.5).abs() < 0.18, "{below}");
        let epochs: BTreeSet<i64> = drawn[1].values.iter().map(|value| value.value.as_integer().expect("whole")).collect();
        assert_eq!(epochs, BTreeSet::from([1, 2, 3]));
        assert!(drawn[1..].iter().all(|axis| axis.with.as_deref() == Some("training.learning_rate")));
    }

    #[test]
    fn axes_that_go_together_are_drawn_together_and_leave_the_others_as_they_are() {
        let texts = ["method=fedeq,fedrep", "training.learning_rate=log:0.001..0.1"];
        let alone = draw(&axes(&texts), 50, 3).expect("drawn");
        let leader: SweepAxis = texts[0].parse().expect("an axis");
        let model = SweepAxis::going_with("model=deq-mlp,mlp", &[leader]).expect("it goes with it");
        let tied = draw(&[axes(&texts), vec![model.into()]].concat(), 50, 3).expect("drawn");
        let written = |axis: &SweepAxis| axis.values.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!([written(&tied[0]), written(&tied[1])], [written(&alone[0]), written(&alone[1])]);
        let pairs: BTreeSet<(String, String)> = written(&tied[0]).into_iter().zip(written(&tied[2])).collect();
        let both = [("method=fedeq", "model=deq-mlp"), ("method=fedrep", "model=mlp")];
        assert_eq!(pairs, BTreeSet::from(both.map(|(method, model)| (method.to_owned(), model.to_owned()))));
    }

    #[test]
    fn a_small_space_is_drawn_as_a_whole() {
        assert_eq!(draw(&axes(&["method=fedeq,fedrep"]), 10, 0).expect("drawn")[0].values.len(), 2);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in
            ["training.learning_rate=0.1..0.01", "training.learning_rate=log:0..1", "method=1..2", "seed=a..b", "no.key=1..2"]
        {
            assert!(text.parse::<SearchAxis>().is_err(), "{text}");
        }
    }

    #[test]
    fn halving_keeps_to_its_budget_and_to_rounds_that_are_evaluated() {
        for budget in [60, 100, 500, 5_000] {
            let halving = Halving::within(budget, 3, 60, 5).expect("enough");
            assert!(halving.rounds() <= budget, "{halving:?}");
            assert!(
                halving.rungs.iter().all(|(round, _)| round % 5 == 0) && halving.rungs.is_sorted_by(|a, b| a.0 < b.0),
                "{halving:?}"
            );
            assert!(halving.rungs.is_sorted_by(|a, b| a.1 >= b.1));
        }
        assert!(Halving::within(59, 3, 60, 5).is_err() && Halving::new(9, 3, 60, 0).is_err());
    }
}
