//! From a number to a colour that people with any colour vision can order.
use image::Rgb;

use super::style::EMPTY;

/// From a pale green over teal to a dark blue: evenly darker, and told apart without seeing red or green.
const STEPS: [[u8; 3]; 8] = [
    [214, 239, 178],
    [164, 220, 186],
    [110, 198, 190],
    [65, 170, 196],
    [34, 138, 187],
    [34, 94, 168],
    [37, 52, 148],
    [8, 29, 88],
];

/// The colour of `count` where the largest is `most`: the more, the darker; nothing at all is nearly white.
pub(super) fn of_count(count: usize, most: usize) -> Rgb<u8> {
    if count == 0 { EMPTY } else { of_share(count as f64 / most.max(1) as f64) }
}

/// The colour of a share between 0 and 1.
pub fn of_share(share: f64) -> Rgb<u8> {
    let position = share.clamp(0.0, 1.0) * (STEPS.len() - 1) as f64;
    let below = (position.floor() as usize).min(STEPS.len() - 2);
    let part = position - below as f64;
    let mix = |channel: usize| {
        let (from, to) = (f64::from(STEPS[below][channel]), f64::from(STEPS[below + 1][channel]));
        (from + (to - from) * part).round() as u8
    };
    Rgb([mix(0), mix(1), mix(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance as the eye weighs it, without gamma.
    fn brightness(Rgb([red, green, blue]): Rgb<u8>) -> f64 {
        0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue)
    }

    #[test]
    fn more_is_always_darker() {
        let brightness: Vec<f64> = (0..=100).map(|count| brightness(of_count(count, 100))).collect();
        assert!(brightness.is_sorted_by(|lighter, darker| lighter > darker));
    }
}
