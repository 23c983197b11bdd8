//! The results as a page to keep.
use std::path::{Path, PathBuf};

use fedeq_core::{Result, View, write_atomically};

use super::method_result::MethodResult;
use super::verdict::verdict;
use fedeq_report::report::{Report, ReportOptions};

const INTRODUCTION: &str = "\
Thirty clients hold hand-written digits: at most three different ones each, and about nine samples to learn from. Four methods learn from them, each with several seeds. The folders beside this \
file hold the runs: experiment, metrics, checkpoints and every client's model.";

/// Writes `report.html`, which needs no other file, into the folder of some runs; returns its path.
pub fn write_report(folder: &Path, runs: &[PathBuf], entries: &[MethodResult]) -> Result<PathBuf> {
    let mut report = Report::read(runs, &ReportOptions { view: Some(View::Shared), ..ReportOptions::default() })?;
    report.title = "Four methods on digits".into();
    report.words = vec![INTRODUCTION.into(), verdict(entries).join(" ")];
    let path = folder.join("report.html");
    write_atomically(&path, report.html()?.as_bytes())?;
    Ok(path)
}
