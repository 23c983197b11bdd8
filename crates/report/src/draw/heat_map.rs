//! Who holds which labels: one line a client, one column a class, the more samples the darker.
use super::layout::{Heading, step, ticks};
use super::picture::{ASIDE, DataPicture, LEADING, MARGIN, PLAIN, length, shorten};
use crate::drawing::{Anchor, INK, of_share};
use fedeq_run::number;

/// What a heat map shows.
pub struct HeatMap {
    /// What stands above.
    pub heading: Heading,
    /// What is counted, beside the colour bar.
    pub unit: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, from top to bottom.
    pub lines: Vec<HeatMapRow>,
    /// Lines from here on stand apart, under this name.
    pub apart: Option<(usize, String)>,
}

/// One client.
pub struct HeatMapRow {
    /// What stands to the left of it.
    pub name: String,
    /// One count a column.
    pub counts: Vec<usize>,
}

const HEAD: u32 = Heading::HEIGHT;
/// Cells share about this much room, in either direction, as far as they are neither too small nor too large.
const ROOM: u32 = 1300;
const LARGEST_CELL: u32 = 52;
const SMALLEST_CELL: u32 = 2;
const LONGEST_LABEL: u32 = 340;
/// Room that a column's name leaves to its neighbours'.
const BESIDE_NAME: u32 = 6;
const BAR: [u32; 2] = [32, 420];
/// Between the lines that belong together and those that stand apart.
const APART: u32 = 60;

/// Draws the map.
pub fn heat_map(map: &HeatMap) -> DataPicture {
    let layout = Layout::of(map);
    let mut picture = DataPicture::new(layout.width, layout.height);
    map.heading.draw(&mut picture);
    draw_cells(&mut picture, map, &layout);
    draw_line_labels(&mut picture, map, &layout);
    draw_column_labels(&mut picture, map, &layout);
    draw_colour_bar(&mut picture, map, &layout);
    picture
}

fn draw_cells(picture: &mut DataPicture, map: &HeatMap, layout: &Layout) {
    let most = map.most();
    let [width, height] = layout.cell;
    // A hair of white between cells, where they are large enough to spare it.
    let gap = |side: u32| if side >= 8 { 1 } else { 0 };
    for (row, line) in map.lines.iter().enumerate() {
        for (column, &count) in line.counts.iter().enumerate() {
            let corner = [layout.x(column), layout.y(row)];
            picture.rectangle(corner, [width - gap(width), height - gap(height)], of_share(count as f64 / most as f64));
        }
    }
}

fn draw_line_labels(picture: &mut DataPicture, map: &HeatMap, layout: &Layout) {
    let every = layout.every(layout.cell[1]);
    let apart = map.apart_from();
    for (row, line) in map.lines.iter().enumerate() {
        // The rhythm starts anew where lines stand apart, so that the first of them has its name.
        let position = if row >= apart { row - apart } else { row };
        if position.is_multiple_of(every) {
            let at = [layout.left - 14, layout.y(row) + layout.cell[1] / 2];
            picture.text(at, &shorten(&line.name, PLAIN, LONGEST_LABEL), PLAIN, Anchor::End);
        }
    }
    if let Some((row, name)) = &map.apart {
        picture.text([layout.left, layout.y(*row) - APART / 3], name, ASIDE, Anchor::Start);
    }
}

fn draw_column_labels(picture: &mut DataPicture, map: &HeatMap, layout: &Layout) {
    let every = if layout.upright { layout.every(layout.cell[0]) } else { 1 };
    let bottom = layout.y(map.lines.len().saturating_sub(1)) + layout.cell[1];
    for (column, name) in map.columns.iter().enumerate().step_by(every) {
        let middle = layout.x(column) + layout.cell[0] / 2;
        let name = shorten(name, PLAIN, LONGEST_LABEL);
        if layout.upright {
            picture.text([middle, bottom + 14], &name, PLAIN, Anchor::UpwardEnd);
        } else {
            picture.text([middle, bottom + 26], &name, PLAIN, Anchor::Middle);
        }
    }
}

fn draw_colour_bar(picture: &mut DataPicture, map: &HeatMap, layout: &Layout) {
    let most = map.most();
    let [width, height] = BAR;
    let [x, y] = [layout.bar, HEAD + LEADING];
    for offset in 0..height {
        let share = 1.0 - f64::from(offset) / f64::from(height - 1);
        picture.rectangle([x, y + offset], [width, 1], of_share(share));
    }
    picture.text([x, HEAD + 6], &map.unit, ASIDE, Anchor::Start);
    for tick in ticks(most, 5).into_iter().skip(1) {
        let level = y + height - 1 - (tick as f64 / most as f64 * f64::from(height - 1)).round() as u32;
        picture.rectangle([x + width, level], [8, 2], INK);
        picture.text([x + width + 16, level], &number::count(tick), PLAIN, Anchor::Start);
    }
    let none = y + height + 24;
    picture.rectangle([x, none], [width, width], of_share(0.0));
    picture.text([x + width + 16, none + width / 2], "none", PLAIN, Anchor::Start);
}

impl HeatMap {
    fn most(&self) -> usize {
        self.lines.iter().flat_map(|line| &line.counts).copied().max().unwrap_or(0).max(1)
    }

    fn apart_from(&self) -> usize {
        self.apart.as_ref().map_or(usize::MAX, |(row, _)| *row)
    }
}

/// Where everything goes.
struct Layout {
    cell: [u32; 2],
    left: u32,
    bar: u32,
    /// Whether column names run upwards.
    upright: bool,
    apart: usize,
    width: u32,
    height: u32,
}

impl Layout {
    fn of(map: &HeatMap) -> Self {
        let longest = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|name| length(name, PLAIN)).max().unwrap_or(0).min(LONGEST_LABEL)
        };
        let names = longest(&mut map.columns.iter());
        let cell = cell(map, names);
        let upright = names + BESIDE_NAME > cell[0];
        let left = MARGIN + longest(&mut map.lines.iter().map(|line| &line.name)) + 14;
        let right = left + map.columns.len() as u32 * cell[0];
        let bar = right + MARGIN;
        let legend = bar + BAR[0] + 140.max(length(&map.unit, PLAIN).saturating_sub(BAR[0]));
        let below = if upright { names + 14 } else { LEADING };
        let apart = map.apart_from();
        let rows = map.lines.len() as u32 * cell[1] + if apart == usize::MAX { 0 } else { APART };
        let height = HEAD + (rows + below + 10).max(LEADING + BAR[1] + 80) + MARGIN;
        Self { cell, left, bar, upright, apart, width: map.heading.width().max(legend + MARGIN), height }
    }

    fn x(&self, column: usize) -> u32 {
        self.left + column as u32 * self.cell[0]
    }

    fn y(&self, row: usize) -> u32 {
        HEAD + row as u32 * self.cell[1] + if row >= self.apart { APART } else { 0 }
    }

    /// Every how many cells there is room for a name.
    fn every(&self, side: u32) -> usize {
        let most = (LEADING - 2).div_ceil(side) as usize;
        step(most, 1)
    }
}

/// The more there are, the smaller; but wide enough for names of a letter or two.
fn cell(map: &HeatMap, longest_name: u32) -> [u32; 2] {
    let side = |count: usize| (ROOM / count.max(1) as u32).clamp(SMALLEST_CELL, LARGEST_CELL);
    let for_name = if longest_name <= LEADING { longest_name + BESIDE_NAME } else { 0 };
    [side(map.columns.len()).max(for_name), side(map.lines.len())]
}
