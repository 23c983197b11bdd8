//! Reports: runs, finished or not, side by side, on a page that needs nothing else.
//!
//! # Layout
//! - `record`: what a run folder says
//! - `line`: runs that differ only in their seed
//! - `client_detail`: the least accurate clients of a run, the labels they hold, and the confusion matrix of one of them
//! - `figures`: every picture
//! - `summary`, `configuration`: every table; `table`: how tables are written
//! - `page`: the whole as data of the page that the dashboard serves, in one file; `markdown`, `spreadsheet`: as Markdown and CSV
mod client_detail;
mod configuration;
mod figures;
mod line;
mod markdown;
mod page;
mod record;
mod spreadsheet;
mod summary;
mod table;

use std::path::{Path, PathBuf};

use fedeq_core::{Error, Method, Result, View};
use serde::Serialize;

pub use client_detail::{Availability, ClientDetail, Label, WorstClient};
pub use fedeq_viewer::Confusion;
pub use line::MethodLine;
pub use record::RunRecord;

use crate::figure::Figure;
use fedeq_run::compare::{Contestant, Contrast, contrasts, folders};
use fedeq_run::present::require_files;

/// Some runs, and what they say together.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it is about.
    pub title: String,
    /// What somebody has to say about it before all else; may be empty.
    pub words: Vec<String>,
    /// By which of their clients' models lines are compared; both are shown.
    pub view: View,
    /// All runs, each experiment once.
    pub runs: Vec<RunRecord>,
    /// The runs by what they have in common but their seed.
    pub lines: Vec<MethodLine>,
    /// For each line what is known about single clients, or why nothing is.
    pub client_details: Vec<Availability<ClientDetail>>,
    /// On every data set, the most accurate line against every other, where both have at least two finished seeds.
    pub contrasts: Vec<Contrast>,
    /// Runs left out because they repeat an experiment with the same seed.
    #[serde(skip)]
    pub repeated: Vec<PathBuf>,
}

/// What somebody asks for beside the runs.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions<'a> {
    /// Whose confusion matrix is shown; of each line the least accurate client's if nobody is named.
    pub client: Option<&'a str>,
    /// Where the data is now, if not where the runs found it.
    pub data: Option<&'a Path>,
    /// By which of their clients' models lines are compared: by their own (local) if nobody says so, and a single line by the model that its method names.
    pub view: Option<View>,
}

impl Report {
    /// Reads the runs at some paths: run folders, or folders that hold run folders.
    pub fn read(paths: &[PathBuf], options: &ReportOptions<'_>) -> Result<Self> {
        let (mut runs, mut repeated, mut seen) = (Vec::new(), Vec::new(), std::collections::BTreeSet::new());
        for folder in paths.iter().map(|path| folders(path)).collect::<Result<Vec<_>>>()?.concat() {
            let record = RunRecord::of(&folder)?;
            if seen.insert(record.experiment.identity()?) { runs.push(record) } else { repeated.push(record.path) }
        }
        if let (Some(place), Some(run)) = (options.data, runs.first())
            && runs.iter().all(|run| run.experiment.data.source.entry().places.is_empty())
        {
            require_files(&run.experiment.data.source, place)?;
        }
        let lines = line::lines(&runs)?;
        let view = options.view.unwrap_or_else(|| usual_view(&lines, &runs));
        let client_details = lines.iter().map(|line| client_detail(line, &runs, options, view)).collect::<Result<Vec<_>>>()?;
        if let Some(client) = options.client {
            ensure_found(client, &client_details)?;
        }
        let contestant = |line: &MethodLine| line.contestant(&runs, |evaluation| evaluation.quality(view).mean);
        let contestants = lines.iter().map(contestant).collect::<Result<Vec<Contestant>>>()?;
        let (title, contrasts) = (title(&lines), contrasts(&contestants));
        Ok(Self { title, words: Vec::new(), view, runs, lines, client_details, contrasts, repeated })
    }

    /// Every picture there is.
    pub fn figures(&self) -> Vec<Figure> {
        figures::all(self)
    }

    /// A page that needs no other file.
    pub fn html(&self) -> Result<String> {
        page::page(self)
    }

    /// Tables as Markdown, and pictures if it is told where they are.
    pub fn markdown(&self, figures: Option<&Path>) -> Result<String> {
        markdown::text(self, figures)
    }

    /// One line a run, for other programs.
    pub fn csv(&self) -> Result<String> {
        spreadsheet::text(self)
    }
}

/// The clients of the first run of a line, one by one; a problem with the run's data is told in the report, for it may lie elsewhere.
fn client_detail(
    line: &MethodLine,
    runs: &[RunRecord],
    options: &ReportOptions<'_>,
    view: View,
) -> Result<Availability<ClientDetail>> {
    let Some(run) = example(line, runs) else { return Ok(Availability::Missing("there is no run".into())) };
    match ClientDetail::of(&runs[run], options, view) {
        Ok(client_detail) => Ok(Availability::Available(client_detail)),
        Err(error @ Error::Damaged { .. }) => Err(error),
        Err(error) => Ok(Availability::Missing(error.to_string())),
    }
}

/// The run of a line whose clients are looked at: the first that is finished.
fn example(line: &MethodLine, runs: &[RunRecord]) -> Option<usize> {
    let members = &line.members;
    members.iter().find(|run| runs[**run].is_finished()).or(members.first()).copied()
}

/// A client that somebody named must be in one of the runs, unless nothing is known about any client.
fn ensure_found(client: &str, client_details: &[Availability<ClientDetail>]) -> Result<()> {
    let known: Vec<&ClientDetail> = client_details.iter().filter_map(Availability::available).collect();
    if known.is_empty() || known.iter().any(|client_detail| client_detail.chosen.is_some()) {
        return Ok(());
    }
    let example = known.iter().find_map(|client_detail| client_detail.worst.first()).map_or("", |worst| worst.name.as_str());
    let hint = format!("name one that is there, such as `{example}`, or leave out `--client`");
    Err(Error::invalid(format!("there is no client `{client}` in these runs"), hint))
}

/// Several lines are compared by the view that all methods have; a single one is shown by the model that its method names.
fn usual_view(lines: &[MethodLine], runs: &[RunRecord]) -> View {
    match lines {
        [line] => line.runs(runs).first().map_or(View::Local, |run| run.headline()),
        _ => View::Local,
    }
}

fn title(lines: &[MethodLine]) -> String {
    let unique = |part: fn(&MethodLine) -> &str| {
        let mut parts: Vec<&str> = Vec::new();
        lines.iter().map(part).for_each(|part| {
            if !parts.contains(&part) {
                parts.push(part)
            }
        });
        parts.join(", ")
    };
    let methods = unique(|line| Method::title(&line.method));
    format!("{methods} on {}", unique(|line| &line.data))
}
