//! The report as a page that needs no other file: the dashboard's page with the data of these runs inside.
use std::collections::BTreeMap;

use fedeq_core::{Error, Result};
use fedeq_run::number::counted;
use fedeq_run::run::RunFolder;
use fedeq_viewer::news::{Cursor, News, points_each};
use fedeq_viewer::{ClientConfusion, ClientList, ClientRow, ClientViews, RunRow, RunView, client_views, clients, page};
use serde::Serialize;

use super::table::ReportTable;
use super::{Availability, ClientDetail, MethodLine, Report, RunRecord, configuration, example, summary};

/// What is inside the page.
#[derive(Serialize)]
struct PageData<'a> {
    rows: Vec<RunRow>,
    stories: Vec<News>,
    /// The clients of runs by the runs' names.
    clients: BTreeMap<String, Vec<ClientRow>>,
    /// Clients looked at closely, by the runs' names.
    portraits: BTreeMap<String, ClientViews>,
    /// What models of clients confuse, by the runs' names.
    confusions: BTreeMap<String, RunConfusions<'a>>,
    /// Every run's experiment.
    experiments: BTreeMap<String, String>,
    report: Words<'a>,
}

/// What a report has beside its runs.
#[derive(Serialize)]
struct Words<'a> {
    title: &'a str,
    words: &'a [String],
    unfinished: Vec<String>,
    overview: TitledTable,
    /// What was found: tests of significance, privacy, attacks.
    findings: Vec<String>,
    tables: Vec<TitledTable>,
    /// What is not inside, for its size.
    left_out: Vec<String>,
    programs: String,
    commands: String,
}

/// A table with what stands above and below it.
#[derive(Serialize)]
struct TitledTable {
    title: String,
    about: String,
    #[serde(flatten)]
    table: ReportTable,
}

/// Confusion matrices of a run, or why there are none.
#[derive(Serialize)]
struct RunConfusions<'a> {
    clients: Vec<&'a ClientConfusion>,
    problem: Option<&'a str>,
}

/// Clients of all runs together that a page holds; of more, the first runs' are kept.
const MOST_CLIENTS: usize = 40_000;
/// Points a curve of one client, and numbers of all clients together that are looked at closely: about three megabytes.
const POINTS: usize = 100;
const MOST_NUMBERS: usize = 360_000;
/// Cells of all confusion matrices together: about a megabyte.
const MOST_CELLS: usize = 400_000;

/// The whole page.
pub(super) fn page(report: &Report) -> Result<String> {
    let names = names(&report.runs);
    let mut data = PageData {
        rows: Vec::new(),
        stories: Vec::new(),
        clients: BTreeMap::new(),
        portraits: BTreeMap::new(),
        confusions: BTreeMap::new(),
        experiments: BTreeMap::new(),
        report: words(report)?,
    };
    let points = points_each(report.runs.len());
    for (name, run) in names.iter().zip(&report.runs) {
        let view = RunView::once(run.path.clone(), run.state);
        data.rows.push(view.row(name));
        data.stories.push(News::of(name, &view, points, &mut Cursor::default()));
        data.experiments.insert(name.clone(), run.experiment.to_toml()?);
    }
    data.add_clients(&names, &report.runs)?;
    data.add_confusions(&names, report);
    page::standalone(&report.title, &data)
        .map_err(|error| Error::invalid(format!("the page cannot be written: {error}"), "choose another format"))
}

impl<'a> PageData<'a> {
    /// Adds the clients of runs, and the least accurate of each closely: as many as there is room for.
    fn add_clients(&mut self, names: &[String], runs: &[RunRecord]) -> Result<()> {
        let (mut room, mut without, mut shortened) = (MOST_CLIENTS, 0, false);
        for (name, run) in names.iter().zip(runs) {
            let folder = RunFolder::at(run.path.clone());
            // Runs of old have no list of their clients; the page says so.
            let Ok(list) = clients(&folder) else { continue };
            let wanted = closely(&list, run, runs.len());
            shortened |= wanted.len() < list.clients.len();
            self.portraits.insert(name.clone(), client_views(&folder, &wanted, POINTS)?);
            if list.clients.len() > room {
                without += 1;
                continue;
            }
            room -= list.clients.len();
            self.clients.insert(name.clone(), list.clients);
        }
        let mut leave_out = |text: String| self.report.left_out.push(text);
        if without > 0 {
            leave_out(format!("the lists of clients of {}", counted(without, "run")));
        }
        if shortened {
            leave_out("pages of single clients but for the least accurate of each run".into());
        }
        Ok(())
    }

    /// Adds confusion matrices, every line's first before any line's second.
    fn add_confusions(&mut self, names: &[String], report: &'a Report) {
        let found: Vec<(&String, &Availability<ClientDetail>)> = report
            .lines
            .iter()
            .zip(&report.client_details)
            .filter_map(|(line, detail)| Some((&names[example(line, &report.runs)?], detail)))
            .collect();
        for (name, detail) in &found {
            let problem = match detail {
                Availability::Missing(problem) => Some(problem.as_str()),
                Availability::Available(ClientDetail { confusion: Availability::Missing(problem), .. }) => Some(problem.as_str()),
                Availability::Available(_) => None,
            };
            self.confusions.insert((*name).clone(), RunConfusions { clients: Vec::new(), problem });
        }
        let (mut room, mut without) = (MOST_CELLS, 0);
        let most = found.iter().filter_map(|(_, detail)| Some(detail.available()?.confusions.len())).max().unwrap_or(0);
        for place in 0..most {
            for (name, detail) in &found {
                let Some(confusion) = detail.available().and_then(|detail| detail.confusions.get(place)) else { continue };
                let cells = confusion.matrix.classes.len().pow(2);
                match (room.checked_sub(cells), self.confusions.get_mut(*name)) {
                    (Some(left), Some(run)) => {
                        room = left;
                        run.clients.push(confusion);
                    }
                    _ => without += 1,
                }
            }
        }
        if without > 0 {
            self.report.left_out.push(format!("{without} confusion matrices"));
        }
    }
}

/// The clients of a run that are looked at closely: the least accurate, as many as a run's share of the room allows.
fn closely(list: &ClientList, run: &RunRecord, runs: usize) -> Vec<usize> {
    let numbers = 6 * run.evaluations.len().clamp(1, POINTS) + 3 * list.classes;
    let share = MOST_NUMBERS / runs.max(1) / numbers;
    list.least_accurate().into_iter().take(share.max(1)).collect()
}

/// What runs are called on the page: by their folders, and by their paths where two folders share a name.
fn names(runs: &[RunRecord]) -> Vec<String> {
    let is_shared = |name: &String| runs.iter().filter(|run| run.name() == *name).count() > 1;
    let name =
        |run: &RunRecord| Some(run.name()).filter(|name| !is_shared(name)).unwrap_or_else(|| run.path.display().to_string());
    runs.iter().map(name).collect()
}

fn words(report: &Report) -> Result<Words<'_>> {
    let overview = TitledTable { title: "Summary".into(), about: summary::legend(report), table: summary::overview(report)? };
    Ok(Words {
        title: &report.title,
        words: &report.words,
        unfinished: summary::unfinished(report),
        overview,
        findings: [summary::contrasts(report), summary::privacy(report), summary::attacks(report)].concat(),
        tables: tables(report),
        left_out: Vec::new(),
        programs: configuration::programs(report),
        commands: configuration::commands(report),
    })
}

/// The tables that only some reports have.
fn tables(report: &Report) -> Vec<TitledTable> {
    let unseen = summary::unseen(report).map(|table| TitledTable {
        title: "Unseen clients: not part of training".into(),
        about: String::new(),
        table,
    });
    let outlying = |(line, table): (&MethodLine, ReportTable)| TitledTable {
        title: format!("{}: clients that are far from the others most often", line.name),
        about: summary::ABOUT_OUTLIERS.into(),
        table,
    };
    unseen.into_iter().chain(summary::distances(report).into_iter().map(outlying)).collect()
}
