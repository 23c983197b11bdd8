//! Colours of series and methods.
use crate::drawing::Colour;

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

/// The colour that a method has everywhere.
pub(super) fn of_method(method: &str) -> Colour {
    let text = fedeq_viewer::method_colour(method).light;
    let part = |at: usize| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
    Colour([part(1), part(3), part(5)])
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
        assert_eq!(of_method("fedeq").hex(), fedeq_viewer::method_colour("fedeq").light);
    }
}
