//! What sets contestants apart, and by how much.
use serde::Serialize;

use crate::statistics::{BySeed, Difference, SIGNIFICANCE, compare, holm};

/// Two groups whose mean accuracies are compared over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Contrast {
    /// The place of the group with the higher mean.
    pub better: usize,
    /// The other one's.
    pub other: usize,
    /// The test of their accuracies.
    pub difference: Difference,
    /// Its p-value, corrected for the number of tests on the same data set by Holm's method.
    pub corrected: f64,
}

impl Contrast {
    /// Whether chance alone would hardly do it, with as many tests as there are.
    pub fn is_significant(&self) -> bool {
        self.corrected < SIGNIFICANCE
    }
}

/// A group among others: only groups on the same data set are set against each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contestant {
    /// The data set.
    pub data: String,
    /// How it is divided among clients, the seed aside: the same division and seed are the same clients.
    pub division: String,
    /// A number a seed, of runs that are finished.
    pub scores: BySeed,
}

/// On every data set the best mean against every other, where both have at least two seeds.
pub fn contrasts(contestants: &[Contestant]) -> Vec<Contrast> {
    by_data(contestants).iter().flat_map(|places| against_best(contestants, places)).collect()
}

/// On every data set the best of those with several seeds, and all that a test cannot tell from it; nothing where there is nothing to test.
pub fn best(contestants: &[Contestant]) -> Vec<usize> {
    let best_of = |places: &Vec<usize>| {
        let tested: Vec<usize> = places.iter().copied().filter(|place| contestants[*place].scores.len() > 1).collect();
        let contrasts = against_best(contestants, &tested);
        let Some(best) = contrasts.first().map(|contrast| contrast.better) else { return Vec::new() };
        let is_as_good = |place: &usize| {
            *place == best || contrasts.iter().any(|contrast| contrast.other == *place && !contrast.is_significant())
        };
        tested.into_iter().filter(is_as_good).collect()
    };
    by_data(contestants).iter().flat_map(best_of).collect()
}

fn against_best(contestants: &[Contestant], places: &[usize]) -> Vec<Contrast> {
    let mean = |place: usize| {
        let scores = &contestants[place].scores;
        scores.values().sum::<f64>() / scores.len() as f64
    };
    let tested = || places.iter().copied().filter(|place| !contestants[*place].scores.is_empty());
    let Some(better) = tested().rev().max_by(|a, b| mean(*a).total_cmp(&mean(*b))) else { return Vec::new() };
    let against = |other: usize| {
        let (first, second) = (&contestants[better], &contestants[other]);
        let difference = compare(&first.scores, &second.scores, first.division == second.division)?;
        Some(Contrast { better, other, difference, corrected: difference.p })
    };
    let mut contrasts: Vec<Contrast> = tested().filter(|other| *other != better).filter_map(against).collect();
    let corrected = holm(&contrasts.iter().map(|contrast| contrast.difference.p).collect::<Vec<_>>());
    contrasts.iter_mut().zip(corrected).for_each(|(contrast, corrected)| contrast.corrected = corrected);
    contrasts
}

/// The places of each data set, in the order in which they come.
fn by_data(contestants: &[Contestant]) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for (place, contestant) in contestants.iter().enumerate() {
        match found.iter_mut().find(|places| contestants[places[0]].data == contestant.data) {
            Some(places) => places.push(place),
            None => found.push(vec![place]),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Test;

    fn contestant(data: &str, division: &str, scores: [f64; 3]) -> Contestant {
        Contestant { data: data.into(), division: division.into(), scores: (0..).zip(scores).collect() }
    }

    #[test]
    fn what_learned_from_other_data_is_not_compared() {
        let all = [contestant("digits", "", [0.9, 0.91, 0.92]), contestant("cifar10", "", [0.4, 0.5, 0.45])];
        assert_eq!((contrasts(&all), best(&all)), (vec![], vec![]));
    }

    #[test]
    fn seeds_are_paired_only_where_they_divide_the_data_alike() {
        let scores = [0.9, 0.91, 0.92];
        let all =
            [contestant("digits", "two", scores), contestant("digits", "two", [0.8; 3]), contestant("digits", "five", [0.7; 3])];
        let tests: Vec<Test> = contrasts(&all).iter().map(|contrast| contrast.difference.test).collect();
        assert_eq!(tests, [Test::Paired { pairs: 3 }, Test::Welch { counts: [3, 3] }]);
        assert_eq!(best(&all), [0]);
    }
}
