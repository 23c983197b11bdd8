//! The tables of what came out.
use std::collections::BTreeMap;

use fedeq_core::{ClientDistance, Evaluation, Method, Quality, Result, Treatment, View};

use super::line::{MethodLine, Pool, PooledRun};
use super::table::ReportTable;
use super::{ClientDetail, Report, RunRecord};
use crate::comparison::{EFFECT, verdict};
use fedeq_run::compare::{Contrast, best};
use fedeq_run::number::{bytes, count, counted, percent};
use fedeq_run::run::Timing;
use fedeq_run::statistics::{BEST_CORRECTED, Sample};

/// What a person looks for first comes first: on a phone the rest is scrolled to.
const HEADING: [&str; 14] = [
    "line",
    "local",
    "local, by samples",
    "shared",
    "shared, by samples",
    "worst tenth, local",
    "worst tenth, shared",
    "sent",
    "parameters, shared + own",
    "peak memory",
    "time",
    "model",
    "seeds",
    "rounds",
];

/// An accuracy: the view, and which of its numbers.
type Accuracy = (View, fn(&Quality) -> f64);

/// The columns of accuracies, in which the best stands out.
const ACCURACIES: [Accuracy; 6] = [
    (View::Local, |quality| quality.mean),
    (View::Local, |quality| quality.weighted),
    (View::Shared, |quality| quality.mean),
    (View::Shared, |quality| quality.weighted),
    (View::Local, |quality| quality.worst_decile),
    (View::Shared, |quality| quality.worst_decile),
];
/// The column of the first of them.
const FIRST: usize = 1;

const VIEWS: &str = "\
Accuracy on test samples, which no client trained with, mean over clients. local: a client's own model after its last training; shared: the server's model with the client's own head, or, where a method shares nothing, its one model. \
By samples: clients count by their samples. † marks the model by which the method itself is meant to be evaluated, and which predicts.";

/// What stands below the table.
pub(super) fn legend(report: &Report) -> String {
    let finished = report.runs.iter().filter(|run| run.is_finished()).count();
    let mark = match (report.lines.len(), finished > report.lines.len()) {
        (0 | 1, _) => String::new(),
        (_, true) => format!(" Bold: {BEST_CORRECTED}; runs that are not finished, and methods with one seed, are not compared."),
        (_, false) => " Nothing is marked as best: that takes several seeds.".into(),
    };
    format!("{VIEWS}{mark}")
}

/// All lines side by side.
pub(super) fn overview(report: &Report) -> Result<ReportTable> {
    let mut marked = Vec::new();
    for (column, accuracy) in ACCURACIES.into_iter().enumerate() {
        let contestants = report.lines.iter().map(|line| line.contestant(&report.runs, |evaluation| of(accuracy, evaluation)));
        marked.extend(best(&contestants.collect::<Result<Vec<_>>>()?).into_iter().map(|row| (row, FIRST + column)));
    }
    let rows = report.lines.iter().map(|line| row(line, &report.runs)).collect();
    let mut heading = HEADING.map(str::to_owned).to_vec();
    heading[0] = first_heading(report);
    Ok(ReportTable { heading, rows, words: 1, best: marked })
}

/// Several lines of one method are called by their settings alone.
fn first_heading(report: &Report) -> String {
    let is_method = |line: &MethodLine| line.name.starts_with(Method::title(&line.method));
    if report.lines.iter().all(is_method) { "method" } else { "line" }.to_owned()
}

fn of((view, part): Accuracy, evaluation: &Evaluation) -> f64 {
    part(evaluation.quality(view))
}

/// The same, where some client tells its scores.
fn known((view, part): Accuracy, evaluation: &Evaluation) -> Option<f64> {
    evaluation.quality(view).known().map(part)
}

fn row(line: &MethodLine, runs: &[RunRecord]) -> Vec<String> {
    let headline = line.runs(runs).first().map(|run| run.headline());
    let accuracy = |(column, accuracy): (usize, Accuracy)| {
        let is_mean = column == 0 || column == 2;
        let mark = if is_mean && headline == Some(accuracy.0) { " †" } else { "" };
        format!("{}{mark}", share(&line.at_the_end(runs, |evaluation| known(accuracy, evaluation))))
    };
    let mut cells = vec![line.name.clone()];
    cells.extend(ACCURACIES.into_iter().enumerate().map(accuracy));
    cells.extend(costs(line, runs));
    cells.extend([line.model.clone(), seeds(line, runs), rounds(line, runs)]);
    cells
}

/// Bytes, parameters, memory and time.
fn costs(line: &MethodLine, runs: &[RunRecord]) -> [String; 4] {
    let sent = line.at_the_end(runs, |evaluation| Some(evaluation.traffic.total() as f64));
    let parameters = line.runs(runs).into_iter().find_map(|run| run.summary.as_ref());
    let memory = line
        .over_runs(runs, |member| member.timings.iter().filter_map(|timing| timing.peak_memory).max().map(|bytes| bytes as f64));
    let seconds = line.over_runs(runs, |member| Some(member.timings.iter().map(Timing::seconds).sum()));
    let dash = || "–".to_owned();
    [
        sent.map_or_else(dash, |sent| bytes(sent.mean as u64)),
        parameters
            .map_or_else(dash, |found| format!("{} + {}", count(found.shared_parameters), count(found.personal_parameters))),
        memory_of(memory, line.over_runs(runs, |member| Some(member.run.device_use()?.peak_memory as f64))),
        seconds.map_or_else(dash, |seconds| format!("{:.1} s", seconds.mean)),
    ]
}

/// The process and, where there is one, the GPU.
fn memory_of(process: Option<Sample>, gpu: Option<Sample>) -> String {
    let gpu = gpu.map(|gpu| format!("GPU {}", bytes(gpu.mean as u64)));
    let parts: Vec<String> = process.map(|process| bytes(process.mean as u64)).into_iter().chain(gpu).collect();
    if parts.is_empty() { "–".into() } else { parts.join(" + ") }
}

/// `97.2 %` or, over several seeds, `97.2 ± 0.4 %`.
fn share(sample: &Option<Sample>) -> String {
    match sample {
        None => "–".into(),
        Some(sample) if sample.count < 2 => percent(sample.mean),
        Some(sample) => format!("{:.1} ± {:.1} %", 100.0 * sample.mean, 100.0 * sample.deviation),
    }
}

/// `3`, or `2 (1 unfinished)` where a run is not among the numbers of its line.
fn seeds(line: &MethodLine, runs: &[RunRecord]) -> String {
    let pooled = line.pool(runs).map_or(0, |pool| pool.members.len());
    match line.members.len() - pooled {
        0 => count(pooled),
        left_out => format!("{} ({} unfinished)", count(pooled), count(left_out)),
    }
}

/// `20`, or `7 of 20` of a line of which no run is finished.
fn rounds(line: &MethodLine, runs: &[RunRecord]) -> String {
    let planned = line.runs(runs).first().map_or(0, |run| run.experiment.plan.rounds);
    match line.pool(runs) {
        Some(Pool { is_finished: true, .. }) => count(planned as usize),
        pool => format!("{} of {}", count(pool.map_or(0, |pool| pool.round) as usize), count(planned as usize)),
    }
}

/// A sentence for every run that is not over.
pub(super) fn unfinished(report: &Report) -> Vec<String> {
    let sentence = |run: &RunRecord| {
        let planned = counted(run.experiment.plan.rounds as usize, "round");
        let is_held = run.state.is_alive();
        let advice = if is_held { String::new() } else { format!("; continue with `fedeq resume {}`", run.path.display()) };
        let finished = report.lines.iter().filter(|line| line.pool(&report.runs).is_some_and(|pool| pool.is_finished));
        let is_left_out = finished.flat_map(|line| line.runs(&report.runs)).any(|other| other.path == run.path);
        let left_out = if is_left_out { ", so it is not among the numbers of its line" } else { "" };
        let done = if run.experiment.plan.rounds == 1 { "is" } else { "are" };
        format!(
            "{} {}: {} of {planned} {done} over{left_out}{advice}",
            run.name(),
            run.state.words(),
            count(run.round() as usize)
        )
    };
    report.runs.iter().filter(|run| !run.is_finished()).map(sentence).collect()
}

/// A sentence for every pair of lines whose difference can be tested, and what their effects mean.
pub(super) fn contrasts(report: &Report) -> Vec<String> {
    let name = |place: usize| report.lines[place].name.as_str();
    let sentence = |contrast: &Contrast| verdict(contrast, name(contrast.better), name(contrast.other), Some(report.view));
    let sentences: Vec<String> = report.contrasts.iter().map(sentence).collect();
    let has_effect = report.contrasts.iter().any(|contrast| contrast.difference.effect.is_some());
    sentences.into_iter().chain(has_effect.then(|| EFFECT.to_owned())).collect()
}

/// A sentence for every line whose runs are private.
pub(super) fn privacy(report: &Report) -> Vec<String> {
    let sentence = |line: &MethodLine| {
        let promised = line.runs(&report.runs).into_iter().find_map(|run| run.summary.as_ref()?.privacy.as_ref())?;
        Some(format!("{} is private at the level of clients: {promised}", line.name))
    };
    report.lines.iter().filter_map(sentence).collect()
}

/// The worst clients of a run.
pub(super) fn worst(client_detail: &ClientDetail) -> ReportTable {
    let row = |client: &super::WorstClient| {
        let accuracy = client.accuracy.map_or_else(|| "–".into(), percent);
        vec![client.name.clone(), client.holds(), count(client.train), count(client.test), accuracy]
    };
    let heading = ["client", "holds (samples)", "train", "test", "accuracy"].map(str::to_owned).to_vec();
    ReportTable { heading, rows: client_detail.worst.iter().map(row).collect(), words: 2, best: Vec::new() }
}

/// The unseen clients, where a run had any.
pub(super) fn unseen(report: &Report) -> Option<ReportTable> {
    let of = |line: &MethodLine, measure: fn(&fedeq_core::Unseen) -> Option<f64>| {
        share(&line.over_runs(&report.runs, |member| measure(member.run.summary.as_ref()?.unseen.as_ref()?)))
    };
    let has = |line: &&MethodLine| {
        line.runs(&report.runs).iter().any(|run| run.summary.as_ref().is_some_and(|summary| summary.unseen.is_some()))
    };
    let row = |line: &MethodLine| {
        let clients = line
            .over_runs(&report.runs, |member: &PooledRun<'_>| Some(member.run.summary.as_ref()?.unseen.as_ref()?.clients as f64));
        vec![
            line.name.clone(),
            clients.map_or_else(String::new, |clients| count(clients.mean as usize)),
            of(line, |unseen| Some(unseen.local.mean)),
            of(line, |unseen| Some(unseen.shared.as_ref().unwrap_or(&unseen.local).mean)),
        ]
    };
    let rows: Vec<Vec<String>> = report.lines.iter().filter(has).map(row).collect();
    let heading = [first_heading(report).as_str(), "clients", "local", "shared"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(ReportTable { heading, rows, words: 1, best: Vec::new() })
}

/// A sentence for every line in which some clients are malicious.
pub(super) fn attacks(report: &Report) -> Vec<String> {
    let sentence = |line: &MethodLine| {
        let run = line.runs(&report.runs).into_iter().next()?;
        let attack = run.experiment.attack.as_ref()?;
        let (name, kind, share) = (&line.name, attack.kind.name(), percent(attack.share));
        Some(format!(
            "{name}: {share} of the clients are malicious (`{kind}`), drawn by seed; all accuracies are those of the honest ones"
        ))
    };
    report.lines.iter().filter_map(sentence).collect()
}

/// What is said below the tables of [`distances`].
pub(super) const ABOUT_OUTLIERS: &str = "Of the first run of each line. An update is an outlier if the norm of its change, or its distance to the aggregate, exceeds \
    the median of its round by more than three standard deviations, estimated as 1.4826 times the median absolute deviation; of fewer than four updates none is.";

/// More clients than this are no outliers any more.
const MOST_OUTLYING: usize = 10;

/// What is known of one client's updates.
#[derive(Default)]
struct Outlying {
    updates: usize,
    outliers: usize,
    clipped: usize,
    left_out: usize,
    norm: f64,
    distance: f64,
}

impl Outlying {
    fn add(&mut self, update: &ClientDistance) {
        self.updates += 1;
        self.outliers += usize::from(update.outlier);
        self.clipped += usize::from(update.treatment == Treatment::Clipped);
        self.left_out += usize::from(update.treatment == Treatment::LeftOut);
        self.norm += update.norm;
        self.distance += update.distance;
    }
}

/// For every line in which distances were noted, the clients of its first run that were outliers most often.
pub(super) fn distances(report: &Report) -> Vec<(&MethodLine, ReportTable)> {
    let table = |line| Some((line, distances_of(line_run(line, report)?)?));
    report.lines.iter().filter_map(table).collect()
}

fn line_run<'a>(line: &MethodLine, report: &'a Report) -> Option<&'a RunRecord> {
    line.runs(&report.runs).into_iter().next()
}

fn distances_of(run: &RunRecord) -> Option<ReportTable> {
    let mut clients: BTreeMap<usize, Outlying> = BTreeMap::new();
    run.rounds.iter().flat_map(|round| &round.distances).for_each(|update| clients.entry(update.client).or_default().add(update));
    if clients.is_empty() {
        return None;
    }
    let mut clients: Vec<(usize, Outlying)> = clients.into_iter().collect();
    let share = |client: &Outlying| client.outliers as f64 / client.updates as f64;
    clients.sort_by(|(_, one), (_, other)| share(other).total_cmp(&share(one)));
    clients.truncate(MOST_OUTLYING);
    let liars = run.summary.as_ref().and_then(|summary| summary.attack.as_ref());
    let row = |(number, client): &(usize, Outlying)| {
        let Outlying { updates, outliers, clipped, left_out, norm, distance } = client;
        let mean = |sum: f64| format!("{:.3}", sum / *updates as f64);
        let mut cells = vec![number.to_string()];
        cells.extend([updates, outliers, clipped, left_out].map(|value| count(*value)));
        cells.extend([mean(*norm), mean(*distance)]);
        cells.extend(liars.map(|attack| if attack.liars.contains(number) { "yes".to_owned() } else { String::new() }));
        cells
    };
    let mut heading = ["client", "updates", "outlier in", "clipped in", "left out in", "mean norm", "mean distance"]
        .map(str::to_owned)
        .to_vec();
    heading.extend(liars.map(|_| "malicious".to_owned()));
    Some(ReportTable { heading, rows: clients.iter().map(row).collect(), words: 1, best: Vec::new() })
}
