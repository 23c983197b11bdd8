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

/// How lines of a method are told apart beside their shades: lengths of dashes and gaps in turn.
pub(super) const DASHES: [&str; 4] = ["", "7 4", "2 3", "10 3 2 3"];

/// The colour that a method has everywhere.
pub(super) fn of_method(method: &str) -> Colour {
    let text = fedeq_viewer::method_colour(method).light;
    let part = |at: usize| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
    Colour([part(1), part(3), part(5)])
}

/// The colour of one of several lines of a method: the first has the method's own, those after it lighter and deeper ones in turn, the further the more.
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
        assert_eq!(of_method("fedeq").hex(), fedeq_viewer::method_colour("fedeq").light);
    }

    /// The cases are the page's too: `browser/cases.json`.
    #[test]
    fn several_lines_of_a_method_have_the_shades_that_they_have_on_the_page() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../browser/cases.json");
        let cases: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).expect("cases")).expect("JSON");
        for case in cases["shades"].as_array().expect("a list") {
            let expected: Vec<&str> =
                case["shades"].as_array().expect("a list").iter().filter_map(serde_json::Value::as_str).collect();
            let colour = of_method(case["method"].as_str().expect("a method"));
            let shades: Vec<String> = (0..expected.len()).map(|place| shade(colour, place, expected.len()).hex()).collect();
            assert_eq!(shades, expected);
        }
    }
}
