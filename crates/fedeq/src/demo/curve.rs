//! Accuracy over rounds as an SVG picture.
use super::entry::Entry;

/// Told apart with any colour vision (after Okabe and Ito), in the order of the entries.
const COLOURS: [&str; 4] = ["#999999", "#e69f00", "#56b4e9", "#d55e00"];

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 20.0;
/// Room for the names beside the ends of the lines.
const RIGHT: f64 = 110.0;
const BOTTOM: f64 = 50.0;
/// Names are at least so far from each other.
const LEADING: f64 = 17.0;

/// The picture.
pub(super) fn svg(entries: &[Entry]) -> String {
    let rounds = entries.iter().flat_map(|entry| &entry.curve).map(|(round, _)| *round).max().unwrap_or(1).max(1);
    let lines: String = entries.iter().zip(COLOURS).map(|(entry, colour)| line(entry, colour, rounds)).collect();
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Accuracy over rounds\">\n{}{}{lines}{}</svg>\n",
        levels(),
        ticks(rounds),
        names(entries)
    )
}

fn x(round: u64, rounds: u64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * round as f64 / rounds as f64
}

fn y(accuracy: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * accuracy
}

fn levels() -> String {
    let level = |percent: u32| {
        let y = y(f64::from(percent) / 100.0);
        let line = format!("<line class=\"level\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>", WIDTH - RIGHT);
        format!("{line}<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>\n", LEFT - 8.0, y + 5.0)
    };
    (0..=100).step_by(20).map(level).collect()
}

fn ticks(rounds: u64) -> String {
    let step = rounds.div_ceil(10).max(1);
    let below = HEIGHT - BOTTOM + 20.0;
    let tick = |round: u64| format!("<text x=\"{:.1}\" y=\"{below}\" text-anchor=\"middle\">{round}</text>\n", x(round, rounds));
    let ticks: String = (0..=rounds).step_by(step as usize).map(tick).collect();
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    format!("{ticks}<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">rounds</text>\n", HEIGHT - 8.0)
}

fn line(entry: &Entry, colour: &str, rounds: u64) -> String {
    let point = |&(round, accuracy): &(u64, f64)| format!("{:.1},{:.1}", x(round, rounds), y(accuracy));
    let points: Vec<String> = entry.curve.iter().map(point).collect();
    format!("<polyline points=\"{}\" stroke=\"{colour}\"/>\n", points.join(" "))
}

/// Every name beside the end of its line, moved down where the one above would cover it.
fn names(entries: &[Entry]) -> String {
    let mut ends: Vec<(f64, &str, &str)> = entries
        .iter()
        .zip(COLOURS)
        .filter_map(|(entry, colour)| entry.curve.last().map(|(_, accuracy)| (y(*accuracy), entry.name(), colour)))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lowest = f64::NEG_INFINITY;
    let place = |(end, name, colour): (f64, &str, &str)| {
        lowest = end.max(lowest + LEADING);
        format!("<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>\n", WIDTH - RIGHT + 8.0, lowest + 5.0)
    };
    ends.into_iter().map(place).collect()
}
