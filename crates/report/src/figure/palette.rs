//! Colours of series and methods.
use crate::drawing::Colour;
use fedeq_viewer::{MethodColour, method_colour};

/// Told apart with any colour vision (after Okabe and Ito, without their yellow, too pale for a line on white).
const SERIES: [Colour; 8] = [
    Colour([0, 114, 178]),
    Colour([213, 94, 0]),
    Colour([0, 158, 115]),
    Colour([204, 121, 167]),
    Colour([230, 159, 0]),
    Colour([86, 180, 233]),
    Colour([127, 127, 127]),
    Colour([92, 64, 51]),
];

/// How lines of a method are told apart beside their shades: lengths of dashes and gaps in turn.
pub(super) const DASHES: [&str; 4] = ["", "7 4", "2 3", "10 3 2 3"];

/// The colour that a method has everywhere, and whether its lines are drawn broader than those of others.
pub(super) fn of_method(method: &str) -> (Colour, bool) {
    let MethodColour { light, strong, .. } = method_colour(method);
    (parsed(light), strong)
}

fn parsed(text: &str) -> Colour {
    let part = |at: usize| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
    Colour([part(1), part(3), part(5)])
}

/// The colour of one of several lines of a method that are in an order, by how far it is from the first of them, from 0 to 1: from light to deep.
pub(super) fn graded(colour: Colour, part: f64) -> Colour {
    let far = (2.0 * part - 1.0).abs();
    if part < 0.5 { mixed(colour, 255.0, 0.6 * far) } else { mixed(colour, 0.0, 0.55 * far) }
}

/// The colour of one of several lines of a method that are in none: the first has the method's own, those after it lighter and deeper ones in turn, the further the more.
pub(super) fn shade(colour: Colour, place: usize, alike: usize) -> Colour {
    if place == 0 {
        return colour;
    }
    let part = place.div_ceil(2) as f64 / (alike - 1).div_ceil(2) as f64;
    if place % 2 == 1 { mixed(colour, 255.0, 0.45 * part) } else { mixed(colour, 0.0, 0.5 * part) }
}

fn mixed(Colour(channels): Colour, towards: f64, part: f64) -> Colour {
    Colour(channels.map(|value| (f64::from(value) + (towards - f64::from(value)) * part).round() as u8))
}

/// A colour of the palette; after the last comes the first again.
pub(super) fn series(index: usize) -> Colour {
    SERIES[index % SERIES.len()]
}

/// Whether a colour of the palette has been used before, so that something else must tell it apart.
pub(super) fn is_repeated(index: usize) -> bool {
    index >= SERIES.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_the_colour_that_it_has_on_the_page() {
        for method in fedeq_core::Method::NAMES {
            let (colour, strong) = of_method(method);
            assert_eq!((colour.hex().as_str(), strong), (method_colour(method).light, method == "fedeq"));
        }
    }
}
