//! How much each client holds: one bar a client, the largest first.
use std::io;

use super::canvas::{Canvas, LEADING, LINE, MARGIN, PLAIN, of_share};
use super::layout::{Heading, ticks};
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
pub fn bars(chart: &BarChart) -> io::Result<Canvas> {
    let most = chart.counts.iter().copied().max().unwrap_or(0).max(1);
    let left = MARGIN + PLAIN.length(&number::count(most)) + 20;
    let mut canvas = Canvas::new(chart.heading.width().max(left + WIDTH + MARGIN), HEAD + HEIGHT + 2 * LEADING + MARGIN);
    chart.heading.draw(&mut canvas)?;
    canvas.text([MARGIN, HEAD - LEADING], &chart.unit, PLAIN.grey())?;
    draw_levels(&mut canvas, most, left)?;
    draw_bars(&mut canvas, &chart.counts, most, left);
    canvas.text([left + WIDTH / 2, HEAD + HEIGHT + LEADING], &chart.what, PLAIN.grey().centred())?;
    Ok(canvas)
}

fn draw_levels(canvas: &mut Canvas, most: usize, left: u32) -> io::Result<()> {
    for tick in ticks(most, 6) {
        let y = HEAD + HEIGHT - height(tick, most);
        canvas.rectangle([left, y], [WIDTH, 2], LINE);
        canvas.text([left - 14, y], &number::count(tick), PLAIN.ending())?;
    }
    Ok(())
}

fn draw_bars(canvas: &mut Canvas, counts: &[usize], most: usize, left: u32) {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let edge = |index: usize| left + (index as u64 * u64::from(WIDTH) / sorted.len() as u64) as u32;
    for (index, &count) in sorted.iter().enumerate() {
        let width = edge(index + 1) - edge(index);
        let gap = if width >= 6 { 2 } else { 0 };
        let tall = height(count, most);
        canvas.rectangle([edge(index), HEAD + HEIGHT - tall], [width - gap, tall], of_share(0.7));
    }
}

fn height(count: usize, most: usize) -> u32 {
    (count as f64 / most as f64 * f64::from(HEIGHT)).round() as u32
}
