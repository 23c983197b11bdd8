//! Colours that all pictures share.

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(pub(crate) [u8; 3]);

/// Behind everything.
pub(crate) const PAPER: Colour = Colour([255, 255, 255]);
/// Titles and what stands beside marks.
pub(crate) const INK: Colour = Colour([31, 41, 51]);
/// What is said beside.
pub(crate) const GREY: Colour = Colour([95, 107, 120]);
/// The lines of the grid.
pub(crate) const GRID: Colour = Colour([222, 226, 230]);
/// A cell with nothing in it.
const EMPTY: Colour = Colour([241, 243, 245]);

impl Colour {
    /// As SVG writes it.
    pub(crate) fn hex(self) -> String {
        let Self([red, green, blue]) = self;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }
}

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

/// The colour of a share between 0 and 1: the more, the darker; nothing at all is nearly white.
pub(crate) fn of_share(share: f64) -> Colour {
    if share <= 0.0 {
        return EMPTY;
    }
    let position = share.clamp(0.0, 1.0) * (STEPS.len() - 1) as f64;
    let below = (position.floor() as usize).min(STEPS.len() - 2);
    let part = position - below as f64;
    let mix = |channel: usize| {
        let (from, to) = (f64::from(STEPS[below][channel]), f64::from(STEPS[below + 1][channel]));
        (from + (to - from) * part).round() as u8
    };
    Colour([mix(0), mix(1), mix(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance as the eye weighs it, without gamma.
    fn brightness(Colour([red, green, blue]): Colour) -> f64 {
        0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue)
    }

    #[test]
    fn more_is_always_darker() {
        let brightness: Vec<f64> = (0..=100).map(|percent| brightness(of_share(f64::from(percent) / 100.0))).collect();
        assert!(brightness.is_sorted_by(|lighter, darker| lighter > darker));
    }
}
