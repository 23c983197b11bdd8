//! Tables, as Markdown and as data of a page.
use serde::Serialize;

/// Rows of cells under a heading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ReportTable {
    pub(super) heading: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// How many columns, from the first, hold words; the others hold numbers.
    pub(super) words: usize,
    /// Which cells stand out: row and column.
    pub(super) best: Vec<(usize, usize)>,
}

impl ReportTable {
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
        assert!(table().markdown().contains("| c\\|d | **2** |\n"));
        assert!(table().markdown().starts_with("| name | value |\n| --- | ---: |\n"));
    }
}
