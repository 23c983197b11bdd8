//! A comparison in words, and as a table: for a terminal, a Markdown page, a notebook or a paper in LaTeX.
use fedeq_core::{Method, View};
use fedeq_run::compare::{Comparison, Contrast, Group, Qualities};
use fedeq_run::number::{bytes, count};
use fedeq_run::statistics::{BEST_CORRECTED, Sample, p_value};

use crate::html;
use crate::text_table::{Align, TextTable};

/// The columns there are, by the names that choose them.
pub const COLUMNS: [&str; 14] = [
    "method",
    "model",
    "data",
    "rounds",
    "seeds",
    "local",
    "shared",
    "by-samples",
    "worst-tenth",
    "sent",
    "parameters",
    "seconds",
    "epsilon",
    "settings",
];

/// Columns with a cell for every group.
#[derive(Clone, Debug)]
pub struct ComparisonTable {
    columns: Vec<Column>,
    rows: usize,
}

#[derive(Clone, Debug)]
struct Column {
    /// One of [`COLUMNS`].
    key: &'static str,
    heading: &'static str,
    align: Align,
    cells: Vec<Cell>,
    /// Columns with the highest are left out first where there is no room; those with 0 never.
    dispensable: u8,
}

#[derive(Clone, Debug)]
struct Cell {
    text: String,
    is_best: bool,
}

impl ComparisonTable {
    /// The columns there is something to say in.
    pub fn of(comparison: &Comparison) -> Self {
        let mut table = Self::whole(comparison);
        table.columns.retain(|column| column.cells.iter().any(|cell| !cell.text.is_empty()));
        table
    }

    /// Some of [`COLUMNS`], in this order. Those that are asked for are never left out.
    pub fn only(comparison: &Comparison, keys: &[String]) -> Self {
        let Self { columns, rows } = Self::whole(comparison);
        let chosen = |key: &String| columns.iter().find(|column| column.key == *key).cloned();
        let columns = keys.iter().filter_map(chosen).map(|column| Column { dispensable: 0, ..column }).collect();
        Self { columns, rows }
    }

    fn whole(comparison: &Comparison) -> Self {
        let view = comparison.view;
        let plain = |key, heading, align, dispensable, text: &dyn Fn(&Group) -> String| {
            let cell = |group: &Group| Cell { text: text(group), is_best: false };
            Column { key, heading, align, cells: comparison.groups.iter().map(cell).collect(), dispensable }
        };
        let accuracy = |key, heading, shown: View| {
            let cell = |(place, group): (usize, &Group)| {
                let is_best = shown == view && comparison.best.contains(&place);
                Cell { text: percents(&group.measures.quality(shown).mean), is_best }
            };
            let cells = comparison.groups.iter().enumerate().map(cell).collect();
            Column { key, heading, align: Align::Right, cells, dispensable: 0 }
        };
        let of_view = |part: fn(&Qualities) -> Sample| move |group: &Group| percents(&part(group.measures.quality(view)));
        let epsilon = |group: &Group| group.measures.epsilon.map_or_else(String::new, |epsilon| format!("{:.2}", epsilon.mean));
        let columns = vec![
            plain("method", "method", Align::Left, 0, &|group| Method::title(&group.method).to_owned()),
            plain("model", "model", Align::Left, 2, &|group| group.model.clone()),
            plain("data", "data", Align::Left, 1, &|group| group.data.clone()),
            plain("rounds", "rounds", Align::Right, 5, &|group| count(group.rounds as usize)),
            plain("seeds", "seeds", Align::Right, 3, &|group| count(group.seeds.len())),
            accuracy("local", "local %", View::Local),
            accuracy("shared", "shared %", View::Shared),
            plain("by-samples", "by samples %", Align::Right, 7, &of_view(|quality| quality.weighted)),
            plain("worst-tenth", "worst tenth %", Align::Right, 4, &of_view(|quality| quality.worst_decile)),
            plain("sent", "sent", Align::Right, 6, &|group| bytes(group.measures.bytes.mean as u64)),
            plain("parameters", "parameters shared + own", Align::Right, 9, &|group| {
                format!("{} + {}", count(group.shared_parameters), count(group.personal_parameters))
            }),
            plain("seconds", "seconds", Align::Right, 8, &|group| format!("{:.1}", group.measures.seconds.mean)),
            plain("epsilon", "epsilon", Align::Right, 0, &epsilon),
            plain(SETTINGS, SETTINGS, Align::Left, 0, &|group| group.differs.join(", ")),
        ];
        Self { columns, rows: comparison.groups.len() }
    }

    /// For a terminal. Where it is too narrow, settings are folded, and where that is not enough, some columns are left out, and which is said.
    pub fn text(mut self, width: Option<usize>) -> (String, Vec<&'static str>) {
        let mut left_out = Vec::new();
        loop {
            let room = width.map_or(usize::MAX, |width| self.room_for_settings(width));
            let text = self.aligned(room.max(MOST_FOLDED));
            let is_wide = width.is_some_and(|width| text.lines().any(|line| line.chars().count() > width));
            let most = (0..self.columns.len()).max_by_key(|at| self.columns[*at].dispensable);
            match most.filter(|at| is_wide && self.columns[*at].dispensable > 0) {
                Some(at) => left_out.push(self.columns.remove(at).heading),
                None => return (if is_wide { self.aligned(room.max(LEAST_ROOM)) } else { text }, left_out),
            }
        }
    }

    /// What the other columns leave of a width.
    fn room_for_settings(&self, width: usize) -> usize {
        let widest = |column: &Column| {
            let cells = column.cells.iter().map(|cell| cell.text.chars().count() + usize::from(cell.is_best));
            cells.chain([column.heading.chars().count()]).max().unwrap_or(0)
        };
        let others: usize = self.columns.iter().filter(|column| column.key != SETTINGS).map(|column| widest(column) + GAP).sum();
        width.saturating_sub(others)
    }

    /// With settings folded to some width.
    fn aligned(&self, room: usize) -> String {
        let headings: Vec<(&str, Align)> = self.columns.iter().map(|column| (column.heading, column.align)).collect();
        let mut table = TextTable::new(&headings);
        for row in 0..self.rows {
            let cells: Vec<Vec<String>> = self.columns.iter().map(|column| column.folded(row, room)).collect();
            let lines = cells.iter().map(Vec::len).max().unwrap_or(0);
            let line = |at: usize| cells.iter().map(|cell| cell.get(at).cloned().unwrap_or_default()).collect::<Vec<_>>();
            (0..lines).for_each(|at| table.row(line(at)));
        }
        table.text()
    }

    fn lines(&self, written: impl Fn(&Cell) -> String) -> Vec<Vec<String>> {
        (0..self.rows).map(|row| self.columns.iter().map(|column| written(&column.cells[row])).collect()).collect()
    }

    /// A table of a Markdown page.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let bold = |cell: &Cell| {
            let text = cell.text.replace('|', "\\|");
            if cell.is_best { format!("**{text}**") } else { text }
        };
        let rule = |column: &Column| if matches!(column.align, Align::Right) { "---:" } else { "---" }.to_owned();
        let mut text = line(self.columns.iter().map(|column| column.heading.to_owned()).collect());
        text += &line(self.columns.iter().map(rule).collect());
        text.extend(self.lines(bold).into_iter().map(line));
        text
    }

    /// A table of a page or a notebook.
    pub fn html(&self) -> String {
        let cell = |cell: &Cell| {
            let text = html::escaped(&cell.text);
            if cell.is_best { format!("<b>{text}</b>") } else { text }
        };
        let row = |tag: &str, cells: Vec<String>| {
            let cells = cells.iter().map(|cell| format!("<{tag}>{cell}</{tag}>")).collect::<String>();
            format!("<tr>{cells}</tr>\n")
        };
        let headings = row("th", self.columns.iter().map(|column| html::escaped(column.heading)).collect());
        let rows: String = self.lines(cell).into_iter().map(|cells| row("td", cells)).collect();
        format!("<table>\n<thead>{headings}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n")
    }

    /// A table for LaTeX, with the rules of the package `booktabs`.
    pub fn latex(&self) -> String {
        let line = |cells: Vec<String>| format!("  {} \\\\\n", cells.join(" & "));
        let bold = |cell: &Cell| {
            let text = escaped(&cell.text);
            if cell.is_best { format!("\\textbf{{{text}}}") } else { text }
        };
        let letters: String =
            self.columns.iter().map(|column| if matches!(column.align, Align::Right) { 'r' } else { 'l' }).collect();
        let headings = line(self.columns.iter().map(|column| escaped(column.heading)).collect());
        let rows: String = self.lines(bold).into_iter().map(line).collect();
        format!(
            "% needs \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{letters}}}\n  \\toprule\n{headings}  \\midrule\n{rows}  \\bottomrule\n\\end{{tabular}}\n"
        )
    }
}

/// The column of what tells groups apart beside their names.
const SETTINGS: &str = "settings";
/// Between columns of text.
const GAP: usize = 2;
/// Other columns are left out before settings are folded to less than this.
const MOST_FOLDED: usize = 24;
/// The least that settings are folded to.
const LEAST_ROOM: usize = 8;

impl Column {
    /// A cell in one line, or several of settings.
    fn folded(&self, row: usize, room: usize) -> Vec<String> {
        let Cell { text, is_best } = &self.cells[row];
        if self.key == SETTINGS {
            return folded(text, room);
        }
        vec![format!("{}{text}", if *is_best { "*" } else { "" })]
    }
}

/// Lines no longer than some width, broken between settings if possible.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for setting in text.split_inclusive(", ") {
        for (at, letter) in setting.chars().enumerate() {
            let length = lines.last().map_or(0, |line| line.chars().count());
            let leaves = at == 0 && length > 0 && length + setting.trim_end().chars().count() > width;
            if leaves || (length >= width && letter != ' ') {
                lines.push(String::new());
            }
            lines.last_mut().into_iter().for_each(|line| line.push(letter));
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// What the columns of both views mean, wherever they stand.
pub const VIEWS: &str = "local: a client's own model after its last training; shared: the server's model with the client's own head (of a method that shares nothing, its one model)";

/// What an effect means, wherever one stands.
pub const EFFECT: &str = "effect: the difference divided by a standard deviation, of the paired differences (Cohen's d_z) or, where they are not paired, the pooled one of both (Hedges' g)";

/// What the table means, and how sure it is, a sentence a line.
pub fn legend(comparison: &Comparison) -> Vec<String> {
    let view = comparison.view.name();
    let other = View::ALL.into_iter().find(|other| *other != comparison.view).map_or("", View::name);
    let mut lines = vec![
        format!("accuracy on test samples, mean over clients; {VIEWS}"),
        format!(
            "compared by `{view}` (`--view {other}` for the other), as are the columns `by samples` (clients count by their samples) and `worst tenth` of the clients"
        ),
    ];
    if comparison.groups.iter().all(|group| group.seeds.len() < 2) {
        lines.push("one seed each: nothing is marked as best; `fedeq sweep --seeds` runs several".into());
    } else {
        lines.push(format!("* {BEST_CORRECTED}; lines with one seed are not compared"));
    }
    let mut rounds: Vec<u64> = comparison.groups.iter().map(|group| group.rounds).collect();
    rounds.sort_unstable();
    rounds.dedup();
    if rounds.len() > 1 {
        lines.push("not directly comparable: the numbers of rounds differ".into());
    }
    if !comparison.contrasts.is_empty() {
        lines.push(EFFECT.into());
    }
    lines
}

/// How sure it is that lines differ, a sentence a pair.
pub fn verdicts(comparison: &Comparison) -> Vec<String> {
    let name = |place: usize| comparison.groups[place].label.as_str();
    let sentence = |contrast: &Contrast| verdict(contrast, name(contrast.better), name(contrast.other), None);
    comparison.contrasts.iter().map(sentence).collect()
}

/// How sure it is that two lines of these names differ, and by which view where that is not said elsewhere.
pub(crate) fn verdict(contrast: &Contrast, better: &str, other: &str, view: Option<View>) -> String {
    let difference = &contrast.difference;
    let points = 100.0 * difference.means;
    // Over the seeds that both have, the one with the higher mean over its own may be behind.
    let side = if points < 0.0 { "below" } else { "above" };
    let verdict = if contrast.is_significant() { "" } else { ", not significantly different" };
    let effect = difference.effect.map_or_else(String::new, |effect| format!(", effect {effect:.2}"));
    let by = view.map_or_else(String::new, |view| format!("by {}; ", view.name()));
    let (points, p, test) = (points.abs(), p_value(contrast.corrected), difference.test.words());
    format!("{better} is {points:.1} points {side} {other} ({by}{p}, {test}{effect}){verdict}")
}

/// Text as LaTeX takes it.
fn escaped(text: &str) -> String {
    let letter = |letter: char| match letter {
        '&' | '%' | '$' | '#' | '_' | '{' | '}' => format!("\\{letter}"),
        '~' => "\\textasciitilde{}".into(),
        '^' => "\\textasciicircum{}".into(),
        '\\' => "\\textbackslash{}".into(),
        '±' => "$\\pm$".into(),
        other => other.to_string(),
    };
    text.chars().map(letter).collect()
}

/// `97.2` or, over several seeds, `97.2 ± 0.4`.
pub fn percents(sample: &Sample) -> String {
    if sample.count == 0 {
        // No client tells its scores.
        return "not reported".into();
    }
    let mean = format!("{:.1}", 100.0 * sample.mean);
    if sample.count < 2 { mean } else { format!("{mean} ± {:.1}", 100.0 * sample.deviation) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_folded_between_them_and_inside_only_where_one_alone_is_too_long() {
        assert_eq!(folded("rho = 0.1, epochs = 3", 80), ["rho = 0.1, epochs = 3"]);
        assert_eq!(folded("rho = 0.1, epochs = 3, x = 1", 12), ["rho = 0.1,", "epochs = 3,", "x = 1"]);
        assert_eq!(folded("compression = int4", 10), ["compressio", "n = int4"]);
        assert_eq!(folded("", 10), [""]);
    }

    #[test]
    fn latex_gets_no_letter_that_means_something_else_to_it() {
        assert_eq!(escaped("a_b & 5 % ± {c}\\"), "a\\_b \\& 5 \\% $\\pm$ \\{c\\}\\textbackslash{}");
    }
}
