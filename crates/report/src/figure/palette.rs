//! Colours, on paper and on a page that may be light or dark.
use plotters::style::RGBColor;

/// Told apart with any colour vision (after Okabe and Ito, without their yellow, too pale for a line on white).
const SERIES: [[u8; 3]; 8] =
    [[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233], [127, 127, 127], [92, 64, 51]];

/// Behind everything.
pub(super) const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Titles and what stands beside marks.
pub(super) const INK: RGBColor = RGBColor(31, 41, 51);
/// What is said beside.
pub(super) const GREY: RGBColor = RGBColor(95, 107, 120);
/// The lines of the grid.
pub(super) const GRID: RGBColor = RGBColor(222, 226, 230);
/// A cell with nothing in it.
pub(super) const EMPTY: RGBColor = RGBColor(241, 243, 245);
/// Words on a dark cell, whatever the page is.
pub(super) const ON_DARK: RGBColor = RGBColor(254, 254, 254);
/// Words on a pale cell, whatever the page is.
pub(super) const ON_PALE: RGBColor = RGBColor(32, 41, 51);

/// A colour of the palette; after the last comes the first again.
pub(super) fn series(index: usize) -> RGBColor {
    let [red, green, blue] = SERIES[index % SERIES.len()];
    RGBColor(red, green, blue)
}

/// Whether a colour of the palette has been used before, so that something else must tell it apart.
pub(super) fn is_repeated(index: usize) -> bool {
    index >= SERIES.len()
}

/// The colours that a page may replace, each with the name of its CSS variable.
pub(super) fn variables() -> impl Iterator<Item = (String, RGBColor)> {
    let fixed = [("paper", PAPER), ("ink", INK), ("grey", GREY), ("grid", GRID), ("empty", EMPTY)];
    let fixed = fixed.into_iter().map(|(name, colour)| (name.to_owned(), colour));
    fixed.chain((0..SERIES.len()).map(|index| (format!("series-{index}"), series(index))))
}

/// As SVG writes it.
pub(super) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_names_stand_for_one_colour() {
        let colours: Vec<String> = variables().map(|(_, colour)| hex(colour)).chain([hex(ON_DARK), hex(ON_PALE)]).collect();
        assert_eq!(colours.iter().collect::<BTreeSet<_>>().len(), colours.len());
    }
}
