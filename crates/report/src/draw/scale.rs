//! Round numbers along an axis.

/// Ticks from 0 up to `most`, at steps of 1, 2 or 5 times a power of ten, about `wanted` of them.
pub(super) fn ticks(most: usize, wanted: usize) -> Vec<usize> {
    let step = step(most, wanted);
    (0..=most).step_by(step).collect()
}

/// The smallest round step that gives no more than `wanted` intervals.
pub(super) fn step(most: usize, wanted: usize) -> usize {
    let round = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10usize.pow(power)));
    round.into_iter().find(|step| most / step <= wanted.max(1)).unwrap_or(most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_not_too_many() {
        assert_eq!(ticks(250, 5), [0, 50, 100, 150, 200, 250]);
        assert_eq!(ticks(7, 5), [0, 2, 4, 6]);
        assert_eq!(ticks(0, 5), [0]);
        assert_eq!(step(1_129, 10), 200);
    }
}
