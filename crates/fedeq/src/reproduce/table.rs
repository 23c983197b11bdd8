//! Grids as text.
use fedeq_core::Result;

use super::grid::{Entry, Grid, Ours, grids};
use super::metric::{Digits, Metric};
use super::results::Results;
use super::spec::Spec;
use crate::number::count;
use crate::statistics::Sample;

/// The tables as Markdown: ours, the paper's and the difference in each cell, the best of a column in bold.
pub(super) fn markdown_tables(spec: &Spec, results: &Results) -> Result<String> {
    Ok(all(spec, results)?.iter().map(markdown).collect::<Vec<_>>().join("\n"))
}

/// A table for a terminal; `*` marks the best of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTable {
    /// What it shows.
    pub title: String,
    /// What stands over the columns.
    pub heading: Vec<String>,
    /// As many cells a row as there are headings.
    pub rows: Vec<Vec<String>>,
}

/// The tables for a terminal.
pub fn text_tables(spec: &Spec, results: &Results) -> Result<Vec<TextTable>> {
    let row = |(name, entries): &(String, Vec<Entry>)| [name.clone()].into_iter().chain(entries.iter().map(plain)).collect();
    let table = |grid: Grid| TextTable {
        rows: grid.rows.iter().map(row).collect(),
        heading: [grid.corner].into_iter().chain(grid.columns).collect(),
        title: grid.title,
    };
    Ok(all(spec, results)?.into_iter().filter(|grid| !grid.is_left_out()).map(table).collect())
}

fn all(spec: &Spec, results: &Results) -> Result<Vec<Grid>> {
    let scale = spec.scale(results.scale)?;
    Ok(spec.part.iter().flat_map(|part| grids(spec, scale, part, results)).collect())
}

fn markdown(grid: &Grid) -> String {
    if grid.is_left_out() {
        return format!("**{}**: not at this scale.\n", grid.title);
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let heading = line([grid.corner.clone()].into_iter().chain(grid.columns.iter().cloned()).collect());
    let rule = format!("|---|{}\n", "---|".repeat(grid.columns.len()));
    let row =
        |(name, entries): &(String, Vec<Entry>)| line([name.clone()].into_iter().chain(entries.iter().map(marked)).collect());
    let rows: String = grid.rows.iter().map(row).collect();
    let legend = if grid.has_paper { " (ours; the paper's and the difference)" } else { "" };
    format!("**{}**{legend}\n\n{heading}{rule}{rows}", grid.title)
}

/// A cell of a Markdown table.
fn marked(entry: &Entry) -> String {
    let ours = ours(entry);
    let ours = if entry.is_best { format!("**{ours}**") } else { ours };
    beside_paper(entry, ours, "<br>")
}

/// A cell of a table on a terminal.
fn plain(entry: &Entry) -> String {
    let star = if entry.is_best { "*" } else { "" };
    beside_paper(entry, format!("{star}{}", ours(entry)), " ")
}

fn beside_paper(entry: &Entry, ours: String, between: &str) -> String {
    match (entry.paper, entry.ours) {
        (Some(paper), Ours::Measured(sample)) => format!("{ours}{between}({paper:.2}, {:+.1})", sample.mean - paper),
        (Some(paper), _) => format!("{ours}{between}({paper:.2})"),
        (None, _) => ours,
    }
}

fn ours(entry: &Entry) -> String {
    match entry.ours {
        Ours::Measured(sample) => spread(&sample, entry.metric),
        Ours::Nothing => "-".into(),
        Ours::NotRun => "not run".into(),
        Ours::LeftOut => "not at this scale".into(),
    }
}

/// `87.1 ± 0.4`; the mean alone for one seed, or where all seeds agree.
fn spread(sample: &Sample, metric: Metric) -> String {
    let mean = number(sample.mean, metric.digits());
    let has_spread = sample.count > 1 && sample.deviation > 0.0;
    if has_spread { format!("{mean} ± {}", number(sample.deviation, metric.digits())) } else { mean }
}

fn number(value: f64, digits: Digits) -> String {
    match digits {
        Digits::Whole => count(value.round() as usize),
        Digits::One => format!("{value:.1}"),
        Digits::Significant => significant(value),
    }
}

/// Three digits, with an exponent where there would be many zeros.
fn significant(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-3..1e5).contains(&size) {
        return format!("{value:.2e}");
    }
    let before = size.log10().floor() as i32;
    format!("{value:.*}", (2 - before).max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ours: Ours, paper: Option<f64>, is_best: bool) -> Entry {
        Entry { metric: Metric::Accuracy, ours, paper, is_best }
    }

    #[test]
    fn a_cell_has_ours_the_papers_and_the_difference() {
        let ours = Ours::Measured(Sample { count: 3, mean: 87.13, deviation: 0.44 });
        assert_eq!(marked(&entry(ours, Some(85.0), true)), "**87.1 ± 0.4**<br>(85.00, +2.1)");
        assert_eq!(plain(&entry(ours, None, true)), "*87.1 ± 0.4");
        assert_eq!(plain(&entry(Ours::NotRun, Some(85.0), false)), "not run (85.00)");
    }

    #[test]
    fn small_and_large_numbers_keep_three_digits() {
        assert_eq!([0.0, 0.012_34, 12.34, 1234.0, 1.234e-5].map(significant), ["0", "0.0123", "12.3", "1234", "1.23e-5"]);
    }
}
