//! Grids as text.
use fedeq_core::Result;

use super::cell::ExperimentCell;
use super::grid::{GridEntry, Ours, ResultGrid, grids};
use super::metric::{Digits, Metric};
use super::results::Results;
use super::spec::Spec;
use fedeq_run::number::count;
use fedeq_run::statistics::{BEST, Difference, Sample};

/// The tables as Markdown: ours, the paper's and the difference in each cell, the best of a column in bold; and what they mean. `everything` says whether rows and
/// columns of which nothing was run are shown as well.
pub(super) fn markdown_tables(spec: &Spec, cells: &[ExperimentCell], results: &Results, everything: bool) -> Result<String> {
    let grids = all(spec, cells, results)?;
    let mut sentences = sentences(&grids, results, "Bold:");
    let mut tables = Vec::new();
    for grid in grids {
        let (shorter, is_less) = if everything { (grid, false) } else { grid.without_missing() };
        if is_less && !sentences.iter().any(|sentence| sentence == LEFT_OUT) {
            sentences.push(LEFT_OUT.into());
        }
        if everything || !shorter.rows.is_empty() {
            tables.push(markdown(&shorter, results.seeds()));
        }
    }
    let legend = sentences.into_iter().map(|sentence| format!("{sentence}.\n"));
    Ok(tables.into_iter().chain(legend).collect::<Vec<_>>().join("\n"))
}

/// What stands under the tables on a terminal: which models are evaluated, and what `*` marks.
pub fn legend(spec: &Spec, cells: &[ExperimentCell], results: &Results) -> Result<Vec<String>> {
    Ok(sentences(&all(spec, cells, results)?, results, "*"))
}

fn sentences(grids: &[ResultGrid], results: &Results, mark: &str) -> Vec<String> {
    let entries = || grids.iter().flat_map(|grid| &grid.rows).flat_map(|(_, entries)| entries);
    let mut sentences = Vec::new();
    if entries().any(|entry| entry.metric.is_accuracy()) {
        sentences.push(VIEWS.to_owned());
    }
    if grids.iter().any(ResultGrid::has_several_views) {
        sentences.push(SEVERAL_VIEWS.to_owned());
    }
    if entries().any(|entry| entry.ended.is_some()) {
        sentences.push(ENDED.to_owned());
    }
    if grids.iter().any(ResultGrid::has_differences) {
        sentences.push(DIFFERENCES.to_owned());
    }
    sentences.push(match results.seeds() {
        0 | 1 => "One seed: nothing is marked as best".into(),
        seeds => format!(
            "± is the standard deviation over {seeds} seeds, or over n where a cell has fewer. {mark} {BEST}; a cell with one seed is not compared"
        ),
    });
    sentences
}

const VIEWS: &str = "Accuracy on test samples, mean over clients. `local`: a client's own model after its last training; `shared`: the server's model with the client's own head \
(of Local, which shares nothing, its one model). Ditto, FedAvg+FT and kNN-Per are FedAvg in `shared`: what makes them personal is left out";

const SEVERAL_VIEWS: &str =
    "Where a row names its view, rows are evaluated by different models: nothing of such a table is compared, marked or tested";

const ENDED: &str =
    "`until N`: training ended after round N, before its plan did, since the accuracy on validation samples stood still";

const LEFT_OUT: &str = "Rows and columns of which nothing was run are left out";

const DIFFERENCES: &str = "Differences are means over the seeds that both have, paired, with their 95 % confidence intervals by Student's t and the p-value of \
no difference, not corrected for the number of comparisons";

/// A table for a terminal; `*` marks the best of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridText {
    /// What it shows.
    pub title: String,
    /// What stands over the columns.
    pub heading: Vec<String>,
    /// As many cells a row as there are headings.
    pub rows: Vec<Vec<String>>,
}

/// The tables for a terminal.
pub fn text_tables(spec: &Spec, cells: &[ExperimentCell], results: &Results) -> Result<Vec<GridText>> {
    let entry = |entry: &GridEntry| plain(entry, results.seeds());
    let row = |(name, entries): &(String, Vec<GridEntry>)| {
        [with_view(name, entries)].into_iter().chain(entries.iter().map(entry)).collect()
    };
    let table = |grid: ResultGrid| GridText {
        rows: grid.rows.iter().map(row).collect(),
        heading: [grid.corner].into_iter().chain(grid.columns).collect(),
        title: grid.title,
    };
    Ok(all(spec, cells, results)?.into_iter().filter(|grid| !grid.is_left_out()).map(table).collect())
}

fn all(spec: &Spec, cells: &[ExperimentCell], results: &Results) -> Result<Vec<ResultGrid>> {
    let scale = spec.scale(results.scale)?;
    Ok(spec.part.iter().flat_map(|part| grids(spec, scale, part, cells, results)).collect())
}

/// The name of a row, with the model by which it is evaluated where that depends on the method.
fn with_view(name: &str, entries: &[GridEntry]) -> String {
    let mut views = entries.iter().filter_map(|entry| entry.view);
    match views.next() {
        Some(first) if views.all(|view| view == first) => format!("{name} ({})", first.name()),
        _ => name.to_owned(),
    }
}

fn markdown(grid: &ResultGrid, seeds: usize) -> String {
    if grid.is_left_out() {
        return format!("**{}**: not at this scale.\n", grid.title);
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let heading = line([grid.corner.clone()].into_iter().chain(grid.columns.iter().cloned()).collect());
    let rule = format!("|---|{}\n", "---|".repeat(grid.columns.len()));
    let entry = |entry: &GridEntry| marked(entry, seeds);
    let row = |(name, entries): &(String, Vec<GridEntry>)| {
        line([with_view(name, entries)].into_iter().chain(entries.iter().map(entry)).collect())
    };
    let rows: String = grid.rows.iter().map(row).collect();
    let legend = if grid.has_paper { " (ours; the paper's and the difference)" } else { "" };
    format!("**{}**{legend}\n\n{heading}{rule}{rows}", grid.title)
}

/// A cell of a Markdown table.
fn marked(entry: &GridEntry, seeds: usize) -> String {
    let ours = ours(entry, seeds);
    let ours = if entry.is_best { format!("**{ours}**") } else { ours };
    beside_paper(entry, ours, "<br>")
}

/// A cell of a table on a terminal.
fn plain(entry: &GridEntry, seeds: usize) -> String {
    let star = if entry.is_best { "*" } else { "" };
    beside_paper(entry, format!("{star}{}", ours(entry, seeds)), " ")
}

fn beside_paper(entry: &GridEntry, ours: String, between: &str) -> String {
    match (entry.paper, entry.ours) {
        (Some(paper), Ours::Measured(sample)) => format!("{ours}{between}({paper:.2}, {:+.1})", sample.mean - paper),
        (Some(paper), _) => format!("{ours}{between}({paper:.2})"),
        (None, _) => ours,
    }
}

/// Says how many seeds a cell has, where others have more.
fn ours(entry: &GridEntry, seeds: usize) -> String {
    match entry.ours {
        Ours::Measured(sample) => {
            let few = (sample.count < seeds).then(|| format!("n = {}", sample.count));
            let ended = entry
                .ended
                .map(|[first, last]| if first == last { format!("until {first}") } else { format!("until {first} to {last}") });
            let remarks: Vec<String> = few.into_iter().chain(ended).collect();
            let remarks = if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join(", ")) };
            spread(&sample, entry.metric) + &remarks
        }
        Ours::Apart(difference) => apart(&difference),
        Ours::Nothing => "-".into(),
        Ours::NotRun => "not run".into(),
        Ours::LeftOut => "not at this scale".into(),
    }
}

/// `+1.2 [-0.3, +2.7], p = 0.090`
fn apart(difference: &Difference) -> String {
    let [low, high] = difference.interval();
    format!("{:+.1} [{low:+.1}, {high:+.1}], {}", difference.means, difference.chance())
}

/// `87.1 ± 0.4`; the mean alone for one seed, or where all seeds agree to what is shown.
fn spread(sample: &Sample, metric: Metric) -> String {
    let mean = number(sample.mean, metric.digits());
    let deviation = number(sample.deviation, metric.digits());
    let has_spread = sample.count > 1 && deviation != number(0.0, metric.digits());
    if has_spread { format!("{mean} ± {deviation}") } else { mean }
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
    let before = libm::log10(size).floor() as i32;
    format!("{value:.*}", (2 - before).max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedeq_core::View;
    use fedeq_run::statistics::{BySeed, compare};

    fn entry(ours: Ours, paper: Option<f64>, is_best: bool) -> GridEntry {
        GridEntry { metric: Metric::Accuracy, ours, by_seed: BySeed::new(), view: None, ended: None, paper, is_best }
    }

    #[test]
    fn a_cell_has_ours_the_papers_and_the_difference() {
        let ours = Ours::Measured(Sample { count: 3, mean: 87.13, deviation: 0.44 });
        assert_eq!(marked(&entry(ours, Some(85.0), true), 3), "**87.1 ± 0.4**<br>(85.00, +2.1)");
        assert_eq!(plain(&entry(ours, None, true), 3), "*87.1 ± 0.4");
        assert_eq!(plain(&entry(ours, None, false), 5), "87.1 ± 0.4 (n = 3)", "others have more seeds");
        let early = GridEntry { ended: Some([41, 41]), ..entry(ours, None, false) };
        assert_eq!(plain(&early, 5), "87.1 ± 0.4 (n = 3, until 41)", "training ended before its plan did");
        assert_eq!(plain(&GridEntry { ended: Some([41, 61]), ..early }, 3), "87.1 ± 0.4 (until 41 to 61)");
        assert_eq!(plain(&entry(Ours::NotRun, Some(85.0), false), 3), "not run (85.00)");
    }

    #[test]
    fn a_row_names_the_model_it_is_evaluated_by_where_that_depends_on_the_method() {
        let by = |view| GridEntry { view, ..entry(Ours::NotRun, None, false) };
        let name = |views: &[Option<View>]| with_view("FeDEQ", &views.iter().map(|view| by(*view)).collect::<Vec<_>>());
        assert_eq!(name(&[None, Some(View::Local), Some(View::Local)]), "FeDEQ (local)");
        assert_eq!([name(&[None]), name(&[Some(View::Local), Some(View::Shared)])], ["FeDEQ"; 2]);
    }

    #[test]
    fn a_difference_has_its_interval_and_its_chance() {
        let series = |numbers: [f64; 3]| -> BySeed { (0..).zip(numbers).collect() };
        let difference = compare(&series([71.0, 77.0, 75.0]), &series([70.0, 75.0, 72.0]), true).expect("enough seeds");
        assert_eq!(plain(&entry(Ours::Apart(difference), None, false), 5), "+2.0 [-0.5, +4.5], p = 0.074");
    }

    #[test]
    fn small_and_large_numbers_keep_three_digits() {
        assert_eq!([0.0, 0.012_34, 12.34, 1234.0, 1.234e-5].map(significant), ["0", "0.0123", "12.3", "1234", "1.23e-5"]);
    }
}
