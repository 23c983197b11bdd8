//! Everything that is shown of an experiment.
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Result};

use super::cell::{ExperimentCell, cells};
use super::chart::write_figures;
use super::readme::write_readme;
use super::results::Results;
use super::spec::{ScaleName, Spec};
use fedeq_run::experiment::Override;

/// Writes tables, figures and the README of an experiment's folder from the results that lie there, at both scales.
pub fn publish(spec: &Spec, wishes: &[Override], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
    let mut shown: Vec<(Results, Vec<String>)> = Vec::new();
    for scale in ScaleName::ALL {
        let cells: Vec<ExperimentCell> = cells(spec, scale, wishes)?;
        let results = Results::load(folder, &spec.name, scale, &cells)?;
        if !results.cells.is_empty() {
            let figures = write_figures(spec, &cells, &results, folder)?;
            shown.push((results, figures));
        }
    }
    let shown: Vec<(&Results, &[String])> = shown.iter().map(|(results, figures)| (results, figures.as_slice())).collect();
    write_readme(spec, wishes, &shown, folder)
}
