//! Runs side by side, and pictures of them.
use std::path::PathBuf;

use fedeq_core::{Error, Result, View};
use fedeq_python_macros::sheltered;
use fedeq_report::comparison::{ComparisonTable, legend, verdicts};
use fedeq_report::figure::Figure;
use fedeq_report::report::{Report, ReportOptions};
use fedeq_run::compare::{Comparison as Compared, gather};
use pyo3::prelude::*;

use crate::error::{refused, without_python};

/// Finished runs side by side: groups of those that differ only in their seed.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct Compare {
    comparison: Compared,
    /// What was left out, and why.
    #[pyo3(get)]
    left_out: Vec<String>,
}

#[sheltered]
#[pymethods]
impl Compare {
    /// Run folders, or folders that hold them; `view` is `local` or `shared`.
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>, view: Option<&str>) -> PyResult<Self> {
        let view = view.map(view_of).transpose().map_err(|error| refused(py, &error))?.unwrap_or_default();
        without_python(py, || Self::of(&paths, view))
    }

    /// All of it, as JSON.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        let written = serde_json::to_string(&self.comparison);
        written.map_err(|error| refused(py, &Error::invalid(error.to_string(), "report this")))
    }

    /// As a table, for a terminal.
    fn text(&self) -> String {
        ComparisonTable::of(&self.comparison).text(None).0
    }

    /// As a table, for a notebook.
    fn html(&self) -> String {
        ComparisonTable::of(&self.comparison).html()
    }

    /// As a table for a page.
    fn markdown(&self) -> String {
        ComparisonTable::of(&self.comparison).markdown()
    }

    /// As a table for a paper.
    fn latex(&self) -> String {
        ComparisonTable::of(&self.comparison).latex()
    }

    /// What the table means, and which differences are sure.
    fn notes(&self) -> Vec<String> {
        legend(&self.comparison).into_iter().chain(verdicts(&self.comparison)).collect()
    }
}

impl Compare {
    fn of(paths: &[PathBuf], view: View) -> Result<Self> {
        let gathered = gather(paths)?;
        let unfinished = gathered.unfinished.iter().map(|path| format!("`{}` is not finished", path.display()));
        let repeated =
            gathered.repeated.iter().map(|path| format!("`{}` repeats an experiment with the same seed", path.display()));
        let left_out = unfinished.chain(repeated).collect();
        Ok(Self { comparison: Compared::of(&gathered.runs, view)?, left_out })
    }
}

/// The names of the pictures of some runs, finished or not, and one of them as SVG and PNG.
#[sheltered]
#[pyfunction]
pub(crate) fn figure(py: Python<'_>, paths: Vec<PathBuf>, name: &str, view: Option<&str>) -> PyResult<(String, Vec<u8>)> {
    let view = view.map(view_of).transpose().map_err(|error| refused(py, &error))?;
    without_python(py, || {
        let figures = Report::read(&paths, &ReportOptions { view, ..ReportOptions::default() })?.figures();
        let chosen = figures.iter().find(|figure| figure.name == name).ok_or_else(|| unknown(name, &figures))?;
        Ok((chosen.svg()?, chosen.png()?))
    })
}

fn unknown(name: &str, figures: &[Figure]) -> Error {
    let names: Vec<String> = figures.iter().map(|figure| format!("`{}`", figure.name)).collect();
    Error::invalid(format!("there is no figure `{name}` of these runs"), format!("choose one of {}", names.join(", ")))
}

fn view_of(name: &str) -> Result<View> {
    let names = || View::ALL.map(|view| format!("`{}`", view.name())).join(" or ");
    let known = View::ALL.into_iter().find(|view| view.name() == name);
    known.ok_or_else(|| Error::invalid(format!("there is no view `{name}`"), format!("choose {}", names())))
}
