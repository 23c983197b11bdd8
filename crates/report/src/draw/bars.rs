//! How much each client holds: one bar a client, the largest first.
use super::layout::{Heading, ticks};
use super::picture::{ASIDE, DataPicture, LEADING, MARGIN, PLAIN, length};
use crate::drawing::{Anchor, GRID, of_share};
use fedeq_run::number;

/// What a bar chart shows.
pub struct BarChart {
    /// What stands above.
    pub heading: Heading,
    /// What is counted, above the axis.
    pub unit: String,
    /// What the bars are, below the axis.
    pub what: String,
    /// The height of every bar.
    pub counts: Vec<usize>,
}

/// Room for what is counted, above the highest bar.
const HEAD: u32 = Heading::HEIGHT + 50;
const HEIGHT: u32 = 640;
const WIDTH: u32 = 1300;

/// Draws the chart.
pub fn bars(chart: &BarChart) -> DataPicture {
    let most = chart.counts.iter().copied().max().unwrap_or(0).max(1);
    let left = MARGIN + length(&number::count(most), PLAIN) + 20;
    let mut picture = DataPicture::new(chart.heading.width().max(left + WIDTH + MARGIN), HEAD + HEIGHT + 2 * LEADING + MARGIN);
    chart.heading.draw(&mut picture);
    picture.text([MARGIN, HEAD - LEADING], &chart.unit, ASIDE, Anchor::Start);
    draw_levels(&mut picture, most, left);
    draw_bars(&mut picture, &chart.counts, most, left);
    picture.text([left + WIDTH / 2, HEAD + HEIGHT + LEADING], &chart.what, ASIDE, Anchor::Middle);
    picture
}

fn draw_levels(picture: &mut DataPicture, most: usize, left: u32) {
    for tick in ticks(most, 6) {
        let y = HEAD + HEIGHT - height(tick, most);
        picture.rectangle([left, y], [WIDTH, 2], GRID);
        picture.text([left - 14, y], &number::count(tick), PLAIN, Anchor::End);
    }
}

fn draw_bars(picture: &mut DataPicture, counts: &[usize], most: usize, left: u32) {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let edge = |index: usize| left + (index as u64 * u64::from(WIDTH) / sorted.len() as u64) as u32;
    for (index, &count) in sorted.iter().enumerate() {
        let width = edge(index + 1) - edge(index);
        let gap = if width >= 6 { 2 } else { 0 };
        let tall = height(count, most);
        picture.rectangle([edge(index), HEAD + HEIGHT - tall], [width - gap, tall], of_share(0.7));
    }
}

fn height(count: usize, most: usize) -> u32 {
    (count as f64 / most as f64 * f64::from(HEIGHT)).round() as u32
}
