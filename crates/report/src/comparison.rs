//! A comparison in words, and as a table: for a terminal, a Markdown page, a notebook or a paper in LaTeX.
use fedeq_core::View;
use fedeq_run::compare::{Comparison, Contrast, Group, Qualities};
use fedeq_run::number::{bytes, count};
use fedeq_run::statistics::{BEST_CORRECTED, Sample, p_value};

use crate::html;
use crate::text_table::{Align, TextTable};

/// Columns with a cell for every group.
#[derive(Clone, Debug)]
pub struct ComparisonTable {
    columns: Vec<Column>,
    rows: usize,
}

#[derive(Clone, Debug)]
struct Column {
    name: &'static str,
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
        let view = comparison.view;
        let plain = |name, align, dispensable, text: &dyn Fn(&Group) -> String| {
            let cell = |group: &Group| Cell { text: text(group), is_best: false };
            Column { name, align, cells: comparison.groups.iter().map(cell).collect(), dispensable }
        };
        let accuracy = |name, shown: View| {
            let cell = |(place, group): (usize, &Group)| {
                let is_best = shown == view && comparison.best.contains(&place);
                Cell { text: percents(&group.measures.quality(shown).mean), is_best }
            };
            Column { name, align: Align::Right, cells: comparison.groups.iter().enumerate().map(cell).collect(), dispensable: 0 }
        };
        let of_view = |part: fn(&Qualities) -> Sample| move |group: &Group| percents(&part(group.measures.quality(view)));
        let mut columns = vec![
            plain("method", Align::Left, 0, &|group| group.method.clone()),
            plain("model", Align::Left, 2, &|group| group.model.clone()),
            plain("data", Align::Left, 1, &|group| group.data.clone()),
            plain("rounds", Align::Right, 5, &|group| count(group.rounds as usize)),
            plain("seeds", Align::Right, 3, &|group| count(group.seeds.len())),
            accuracy("local %", View::Local),
            accuracy("shared %", View::Shared),
            plain("by samples %", Align::Right, 7, &of_view(|quality| quality.weighted)),
            plain("worst tenth %", Align::Right, 4, &of_view(|quality| quality.worst_decile)),
            plain("sent", Align::Right, 6, &|group| bytes(group.measures.bytes.mean as u64)),
            plain("parameters shared + own", Align::Right, 9, &|group| {
                format!("{} + {}", count(group.shared_parameters), count(group.personal_parameters))
            }),
            plain("seconds", Align::Right, 8, &|group| format!("{:.1}", group.measures.seconds.mean)),
        ];
        if comparison.groups.iter().any(|group| group.measures.epsilon.is_some()) {
            let epsilon =
                |group: &Group| group.measures.epsilon.map_or_else(String::new, |epsilon| format!("{:.2}", epsilon.mean));
            columns.push(plain("epsilon", Align::Right, 0, &epsilon));
        }
        if comparison.groups.iter().any(|group| !group.settings.is_empty()) {
            columns.push(plain("settings", Align::Left, 0, &|group| {
                group.settings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
            }));
        }
        Self { columns, rows: comparison.groups.len() }
    }

    /// For a terminal; where it is too narrow for all columns, some are left out, and which is said.
    pub fn text(mut self, width: Option<usize>) -> (String, Vec<&'static str>) {
        let mut left_out = Vec::new();
        loop {
            let text = self.aligned();
            let is_wide = width.is_some_and(|width| text.lines().any(|line| line.chars().count() > width));
            let most = (0..self.columns.len()).max_by_key(|at| self.columns[*at].dispensable);
            match most.filter(|at| is_wide && self.columns[*at].dispensable > 0) {
                Some(at) => left_out.push(self.columns.remove(at).name),
                None => return (text, left_out),
            }
        }
    }

    fn aligned(&self) -> String {
        let headings: Vec<(&str, Align)> = self.columns.iter().map(|column| (column.name, column.align)).collect();
        let mut table = TextTable::new(&headings);
        let star = |cell: &Cell| format!("{}{}", if cell.is_best { "*" } else { "" }, cell.text);
        self.lines(star).into_iter().for_each(|row| table.row(row));
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
        let mut text = line(self.columns.iter().map(|column| column.name.to_owned()).collect());
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
        let headings = row("th", self.columns.iter().map(|column| html::escaped(column.name)).collect());
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
        let headings = line(self.columns.iter().map(|column| escaped(column.name)).collect());
        let rows: String = self.lines(bold).into_iter().map(line).collect();
        format!(
            "% needs \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{letters}}}\n  \\toprule\n{headings}  \\midrule\n{rows}  \\bottomrule\n\\end{{tabular}}\n"
        )
    }
}

/// What the columns of both views mean, wherever they stand.
pub const VIEWS: &str = "local: a client's own model after its last training; shared: the server's model with the client's own head (of a method that shares nothing, its one model)";

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
        lines.push("not like for like: the numbers of rounds differ".into());
    }
    if !comparison.contrasts.is_empty() {
        lines.push(
            "effect: the difference in units of what scatters, of pairs (Cohen's d_z) or of both together (Hedges' g)".into(),
        );
    }
    lines
}

/// How sure it is that lines differ, a sentence a pair.
pub fn verdicts(comparison: &Comparison) -> Vec<String> {
    comparison.contrasts.iter().map(|contrast| sentence(contrast, &comparison.groups)).collect()
}

fn sentence(contrast: &Contrast, groups: &[Group]) -> String {
    let Contrast { better, other, difference, corrected } = contrast;
    let points = 100.0 * difference.means;
    // Over the seeds that both have, the one with the higher mean over its own may be behind.
    let side = if points < 0.0 { "below" } else { "above" };
    let (better, other) = (groups[*better].title(), groups[*other].title());
    let verdict = if contrast.is_significant() { "" } else { ", so they cannot be told apart" };
    let effect = difference.effect.map_or_else(String::new, |effect| format!(", effect {effect:.2}"));
    let (points, p, test) = (points.abs(), p_value(*corrected), difference.test.words());
    format!("{better} is {points:.1} points {side} {other} ({p}, {test}{effect}){verdict}")
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
        return "not told".into();
    }
    let mean = format!("{:.1}", 100.0 * sample.mean);
    if sample.count < 2 { mean } else { format!("{mean} ± {:.1}", 100.0 * sample.deviation) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latex_gets_no_letter_that_means_something_else_to_it() {
        assert_eq!(escaped("a_b & 5 % ± {c}\\"), "a\\_b \\& 5 \\% $\\pm$ \\{c\\}\\textbackslash{}");
    }
}
