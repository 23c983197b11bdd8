//! Columns of text, aligned.

/// Rows of cells under a heading.
#[derive(Clone, Debug)]
pub struct TextTable {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

/// To which side a column's cells are pushed.
#[derive(Clone, Copy, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

impl TextTable {
    /// An empty table with these headings.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let heading = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { align: columns.iter().map(|(_, align)| *align).collect(), rows: vec![heading] }
    }

    /// Adds a row; it has as many cells as there are headings.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The whole table, one line a row.
    pub fn text(&self) -> String {
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.align.len()).map(|column| width(column).unwrap_or(0)).collect();
        self.rows.iter().map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cells = row.iter().zip(&self.align).zip(widths).map(|((cell, align), &width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    }
}

/// One fact a line: a name, and what there is to say, aligned.
pub fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("  {name:<width$}  {value}\n")).collect()
}
