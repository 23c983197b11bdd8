//! What came out of cells and grid points.
use serde::Serialize;

use super::grid::{SweepAxis, SweepCell};
use crate::compare::{Measures, Qualities};
use crate::run::RunSummary;
use crate::statistics::Sample;

/// A cell and what came out of it.
#[derive(Clone, Debug)]
pub struct CellOutcome {
    /// The cell.
    pub cell: SweepCell,
    /// What came out, or why nothing did.
    pub result: std::result::Result<RunSummary, String>,
}

/// One combination of values, over its seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GridPoint {
    /// The value on every axis, in their order.
    pub values: Vec<String>,
    /// The seeds that came to an end.
    pub seeds: Vec<u64>,
    /// How many did not.
    pub failed: usize,
    /// What came out; nothing if no seed came to an end.
    pub measures: Option<Measures>,
}

/// The cells of each combination put together, in the order of the grid.
pub fn points(outcomes: &[CellOutcome]) -> Vec<GridPoint> {
    outcomes.chunk_by(|a, b| a.cell.values == b.cell.values).map(point).collect()
}

fn point(outcomes: &[CellOutcome]) -> GridPoint {
    let done: Vec<(u64, &RunSummary)> =
        outcomes.iter().filter_map(|outcome| Some((outcome.cell.experiment.seed, outcome.result.as_ref().ok()?))).collect();
    let summaries: Vec<&RunSummary> = done.iter().map(|(_, summary)| *summary).collect();
    GridPoint {
        values: outcomes.first().map(|outcome| outcome.cell.values.clone()).unwrap_or_default(),
        seeds: done.iter().map(|(seed, _)| *seed).collect(),
        failed: outcomes.len() - done.len(),
        measures: (!summaries.is_empty()).then(|| Measures::of(&summaries)),
    }
}

const MEASURES: [&str; 9] = [
    "local_mean",
    "local_weighted",
    "local_worst_decile",
    "shared_mean",
    "shared_weighted",
    "shared_worst_decile",
    "bytes",
    "seconds",
    "problem",
];

/// One line a cell, for other programs: the value on every axis, seed, run folder, what came out or the problem.
pub fn csv_of(axes: &[SweepAxis], outcomes: &[CellOutcome]) -> String {
    let keys = axes.iter().map(|axis| axis.key.as_str());
    let heading: Vec<&str> = keys.chain(["seed", "run"]).chain(MEASURES).collect();
    let rows = outcomes.iter().map(|outcome| row(outcome) + "\n");
    heading.join(",") + "\n" + &rows.collect::<String>()
}

fn row(outcome: &CellOutcome) -> String {
    let CellOutcome { cell, result } = outcome;
    let run = cell.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut fields = cell.values.clone();
    fields.extend([cell.experiment.seed.to_string(), run]);
    match result {
        Ok(summary) => fields.extend(numbers(summary).into_iter().chain([String::new()])),
        Err(problem) => fields.extend(vec![String::new(); MEASURES.len() - 1].into_iter().chain([problem.clone()])),
    }
    fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",")
}

fn numbers(summary: &RunSummary) -> [String; MEASURES.len() - 1] {
    let Measures { local, shared, bytes, seconds, .. } = Measures::of(&[summary]);
    let shared = |part: fn(&Qualities) -> Sample| shared.as_ref().map_or(String::new(), |shared| part(shared).mean.to_string());
    [
        local.mean.mean.to_string(),
        local.weighted.mean.to_string(),
        local.worst_decile.mean.to_string(),
        shared(|shared| shared.mean),
        shared(|shared| shared.weighted),
        shared(|shared| shared.worst_decile),
        bytes.mean.to_string(),
        seconds.mean.to_string(),
    ]
}

/// A field of a CSV file.
fn quoted(field: &str) -> String {
    let is_plain = !field.contains([',', '"', '\n', '\r']);
    if is_plain { field.to_owned() } else { format!("\"{}\"", field.replace('"', "\"\"")) }
}
