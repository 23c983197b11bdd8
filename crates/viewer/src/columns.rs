//! Tables of numbers, column by column: a third of the size of one object a line, and what charts are drawn from.
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::thinned::Thinned;

/// A journal as a table of bounded length. A number that is not there is NaN.
pub(crate) struct Columns<const N: usize> {
    names: [&'static str; N],
    rows: Thinned<[f64; N]>,
}

impl<const N: usize> Columns<N> {
    pub(crate) fn new(names: [&'static str; N]) -> Self {
        Self { names, rows: Thinned::default() }
    }

    /// Adds a line; tells whether lines were dropped that were kept before.
    pub(crate) fn push(&mut self, row: [Option<f64>; N]) -> bool {
        self.rows.push(row.map(|value| value.unwrap_or(f64::NAN)))
    }

    /// The last value of the first column: the round.
    pub(crate) fn last_round(&self) -> u64 {
        self.rows.last().map_or(0, |row| row[0] as u64)
    }

    /// Lines that are kept, and lines there were.
    pub(crate) fn extent(&self) -> (usize, u64) {
        (self.rows.kept().len(), self.rows.seen())
    }

    /// Every `stride`th line from some place on.
    pub(crate) fn from(&self, told: usize, stride: usize) -> ColumnSlice {
        let kept = self.rows.kept().iter().enumerate().skip(told);
        self.slice(kept.filter(|(place, _)| place % stride == 0).map(|(_, row)| row))
    }

    /// The last line, where it is not among those told.
    pub(crate) fn tail(&self, stride: usize) -> ColumnSlice {
        let kept = self.rows.kept().len();
        let is_told = self.rows.tail().is_none() && kept.saturating_sub(1).is_multiple_of(stride);
        self.slice(self.rows.last().filter(|_| !is_told).into_iter())
    }

    /// At most about so many lines, evenly spaced, and always the last.
    pub(crate) fn at_most(&self, points: usize) -> ColumnSlice {
        let kept = self.rows.kept();
        let stride = kept.len().div_ceil(points.max(1)).max(1);
        let told = kept.iter().step_by(stride);
        let is_last_told = self.rows.tail().is_none() && kept.len().saturating_sub(1).is_multiple_of(stride);
        self.slice(told.chain(self.rows.last().filter(|_| !is_last_told)))
    }

    fn slice<'a>(&self, rows: impl Iterator<Item = &'a [f64; N]>) -> ColumnSlice {
        let rows: Vec<&[f64; N]> = rows.collect();
        let column = |(place, name): (usize, &&'static str)| (*name, rows.iter().map(|row| row[place]).collect::<Vec<f64>>());
        let is_said =
            |(name, values): &(&'static str, Vec<f64>)| *name == "round" || values.iter().any(|value| value.is_finite());
        ColumnSlice(self.names.iter().enumerate().map(column).filter(is_said).collect())
    }
}

/// Some lines of a table, column by column. Columns without a number are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnSlice(Vec<(&'static str, Vec<f64>)>);

impl Serialize for ColumnSlice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, values) in &self.0 {
            map.serialize_entry(name, &values.iter().map(|value| Number(*value)).collect::<Vec<_>>())?;
        }
        map.end()
    }
}

/// A number in few letters: whole ones as they are, others to seven digits.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const LARGEST: f64 = (1u64 << 53) as f64;
        match self.0 {
            value if !value.is_finite() => serializer.serialize_none(),
            value if value.fract() == 0.0 && value.abs() <= LARGEST => serializer.serialize_i64(value as i64),
            // What is too large or too small for seven digits of a short float is told at full length.
            value if (value as f32).is_normal() => serializer.serialize_f32(value as f32),
            value => serializer.serialize_f64(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize) -> Columns<3> {
        let mut columns = Columns::new(["round", "loss", "rho"]);
        (1..=rows).for_each(|round| {
            columns.push([Some(round as f64), (round != 2).then_some(1.0 / round as f64), None]);
        });
        columns
    }

    #[test]
    fn columns_are_told_by_name_and_what_nobody_measured_is_left_out() {
        let told = serde_json::to_string(&table(3).from(0, 1)).expect("JSON");
        assert_eq!(told, r#"{"round":[1,2,3],"loss":[1,null,0.33333334]}"#);
    }

    #[test]
    fn every_line_or_every_second_and_always_the_last() {
        let rounds = |slice: ColumnSlice| slice.0[0].1.clone();
        assert_eq!(rounds(table(6).from(0, 2)), [1.0, 3.0, 5.0]);
        assert_eq!(rounds(table(6).tail(2)), [6.0]);
        assert_eq!((rounds(table(5).from(3, 2)), rounds(table(5).tail(2))), (vec![5.0], vec![]));
    }

    #[test]
    fn a_long_table_is_told_by_a_few_lines_and_always_the_last() {
        let rounds = |points: usize, rows: usize| table(rows).at_most(points).0[0].1.clone();
        assert_eq!(rounds(3, 7), [1.0, 4.0, 7.0]);
        assert_eq!(rounds(3, 8), [1.0, 4.0, 7.0, 8.0]);
        assert_eq!((rounds(9, 2), rounds(1, 1)), (vec![1.0, 2.0], vec![1.0]));
        assert_eq!(rounds(3, 0), [0.0; 0]);
    }

    #[test]
    fn numbers_are_short_but_no_whole_one_is_changed() {
        let text = |value: f64| serde_json::to_string(&Number(value)).expect("JSON");
        assert_eq!(
            [text(123_456_789_012.0), text(0.1 + 0.2), text(f64::NAN), text(1e-60)],
            ["123456789012", "0.3", "null", "1e-60"]
        );
    }
}
