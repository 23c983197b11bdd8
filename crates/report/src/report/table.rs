//! Tables, as HTML and as Markdown.
use crate::html::escaped;

/// Rows of cells under a heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReportTable {
    pub(super) heading: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// How many columns, from the first, hold words; the others hold numbers.
    pub(super) words: usize,
    /// Which cells stand out: row and column.
    pub(super) best: Vec<(usize, usize)>,
}

impl ReportTable {
    /// Scrolls sideways where the screen is narrow; its first column stays.
    pub(super) fn html(&self) -> String {
        let cell = |tag: &str, row: Option<usize>, (column, text): (usize, &String)| {
            let class = if column < self.words { "" } else { " class=\"number\"" };
            let is_best = row.is_some_and(|row| self.best.contains(&(row, column)));
            let text = if is_best { format!("<strong>{}</strong>", escaped(text)) } else { escaped(text) };
            format!("<{tag}{class}>{text}</{tag}>")
        };
        let heading: String = self.heading.iter().enumerate().map(|place| cell("th", None, place)).collect();
        let row = |(row, cells): (usize, &Vec<String>)| {
            let cells: String = cells.iter().enumerate().map(|place| cell("td", Some(row), place)).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().enumerate().map(row).collect();
        format!(
            "<div class=\"wide\" tabindex=\"0\">\n<table>\n<thead><tr>{heading}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
        )
    }

    pub(super) fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let safe = |text: &String| text.replace('|', "\\|").replace(['\n', '\r'], " ");
        let rule = (0..self.heading.len()).map(|column| if column < self.words { "---" } else { "---:" }.to_owned()).collect();
        let row = |(row, cells): (usize, &Vec<String>)| {
            let cell = |(column, text): (usize, &String)| {
                if self.best.contains(&(row, column)) { format!("**{}**", safe(text)) } else { safe(text) }
            };
            line(cells.iter().enumerate().map(cell).collect())
        };
        let rows: String = self.rows.iter().enumerate().map(row).collect();
        line(self.heading.iter().map(safe).collect()) + &line(rule) + &rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ReportTable {
        let rows = vec![vec!["a<b".into(), "1".into()], vec!["c|d".into(), "2".into()]];
        ReportTable { heading: vec!["name".into(), "value".into()], rows, words: 1, best: vec![(1, 1)] }
    }

    #[test]
    fn what_is_written_in_a_cell_cannot_leave_it() {
        assert!(table().html().contains("<td>a&lt;b</td><td class=\"number\">1</td>"));
        assert!(table().markdown().contains("| c\\|d | **2** |\n"));
        assert!(table().markdown().starts_with("| name | value |\n| --- | ---: |\n"));
    }
}
