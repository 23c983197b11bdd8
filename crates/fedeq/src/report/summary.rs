//! The tables of what came out.
use fedeq_core::View;

use super::line::{Line, accuracy};
use super::table::Table;
use super::{Closeup, Record, Report};
use crate::number::{bytes, count, counted, percent};
use crate::statistics::Sample;

/// What a person looks for first comes first: on a phone the rest is scrolled to.
const HEADING: [&str; 13] = [
    "method",
    "theta_i, mean",
    "theta_i, by samples",
    "theta, mean",
    "theta, by samples",
    "worst tenth",
    "sent",
    "parameters, shared + own",
    "peak memory",
    "time",
    "model",
    "seeds",
    "rounds",
];
/// The columns of accuracies, in which the best stands out.
const ACCURACIES: std::ops::Range<usize> = 1..6;

/// What stands below the table.
pub(super) const LEGEND: &str = "\
Accuracy on samples that nobody trained with. theta_i: the client's own copy of the shared part; theta: the shared part as the server has it; both with the client's own head. \
Mean: clients count the same; by samples: clients count by their samples. † marks the model the method is judged by, which is also that of the worst tenth of the clients.";

/// All lines side by side.
pub(super) fn overview(report: &Report) -> Table {
    let rows: Vec<(Vec<String>, [Option<f64>; 5])> = report.lines.iter().map(|line| row(line, &report.runs)).collect();
    let best = if rows.len() < 2 { Vec::new() } else { (0..ACCURACIES.len()).flat_map(|column| best(&rows, column)).collect() };
    let rows = rows.into_iter().map(|(cells, _)| cells).collect();
    Table { heading: HEADING.map(str::to_owned).to_vec(), rows, words: 1, best }
}

fn best(rows: &[(Vec<String>, [Option<f64>; 5])], column: usize) -> Vec<(usize, usize)> {
    let largest = rows.iter().filter_map(|(_, values)| values[column]).fold(f64::NEG_INFINITY, f64::max);
    let is_best = |place: &usize| rows[*place].1[column] == Some(largest);
    (0..rows.len()).filter(is_best).map(|place| (place, ACCURACIES.start + column)).collect()
}

fn row(line: &Line, runs: &[Record]) -> (Vec<String>, [Option<f64>; 5]) {
    let members = line.runs(runs);
    let judged = members.first().map(|run| run.headline());
    let of = |view: View, weighted: bool| line.at_the_end(runs, |_, evaluation| accuracy(evaluation, view, weighted));
    let worst = line.at_the_end(runs, |run, evaluation| Some(run.quality(evaluation).worst_decile));
    let samples = [of(View::Local, false), of(View::Local, true), of(View::Shared, false), of(View::Shared, true), worst];
    let marks = [judged == Some(View::Local), false, judged == Some(View::Shared), false, false];
    let accuracies =
        samples.iter().zip(marks).map(|(sample, is_marked)| format!("{}{}", share(sample), if is_marked { " †" } else { "" }));
    let mut cells = vec![line.name.clone()];
    cells.extend(accuracies);
    cells.extend(costs(line, runs));
    cells.extend([line.model.clone(), count(members.len()), rounds(&members)]);
    (cells, samples.map(|sample| sample.map(|sample| sample.mean)))
}

/// Bytes, parameters, memory and time.
fn costs(line: &Line, runs: &[Record]) -> [String; 4] {
    let sent = line.at_the_end(runs, |_, evaluation| Some(evaluation.traffic.total() as f64));
    let parameters = line.runs(runs).into_iter().find_map(|run| run.summary.as_ref());
    let memory = line.over_runs(runs, |run| run.peak_memory().map(|bytes| bytes as f64));
    let seconds = line.over_runs(runs, |run| Some(run.seconds()));
    let dash = || "–".to_owned();
    [
        sent.map_or_else(dash, |sent| bytes(sent.mean as u64)),
        parameters
            .map_or_else(dash, |found| format!("{} + {}", count(found.shared_parameters), count(found.personal_parameters))),
        memory.map_or_else(dash, |memory| bytes(memory.mean as u64)),
        seconds.map_or_else(dash, |seconds| format!("{:.1} s", seconds.mean)),
    ]
}

/// `97.2 %` or, over several seeds, `97.2 ± 0.4 %`.
fn share(sample: &Option<Sample>) -> String {
    match sample {
        None => "–".into(),
        Some(sample) if sample.count < 2 => percent(sample.mean),
        Some(sample) => format!("{:.1} ± {:.1} %", 100.0 * sample.mean, 100.0 * sample.deviation),
    }
}

/// `20`, or `7 of 20` of a run that is not over.
fn rounds(members: &[&Record]) -> String {
    let planned = members.iter().map(|run| run.experiment.plan.rounds).max().unwrap_or(0);
    match members.iter().filter(|run| !run.is_finished()).map(|run| run.round()).min() {
        Some(reached) => format!("{} of {}", count(reached as usize), count(planned as usize)),
        None => count(planned as usize),
    }
}

/// A sentence for every run that is not over.
pub(super) fn unfinished(report: &Report) -> Vec<String> {
    let sentence = |run: &Record| {
        let planned = counted(run.experiment.plan.rounds as usize, "round");
        let is_held = matches!(run.standing, super::Standing::Running | super::Standing::Paused);
        let advice = if is_held { String::new() } else { format!("; go on with `fedeq resume {}`", run.path.display()) };
        format!("{} {}: {} of {planned} are over{advice}", run.name(), run.standing.words(), count(run.round() as usize))
    };
    report.runs.iter().filter(|run| !run.is_finished()).map(sentence).collect()
}

/// A sentence for every pair of lines whose difference can be judged.
pub(super) fn contrasts(report: &Report) -> Vec<String> {
    let sentence = |contrast: &crate::compare::Contrast| {
        let (better, other) = (&report.lines[contrast.better].name, &report.lines[contrast.other].name);
        let p = contrast.difference.chance();
        format!("{better} is {:.1} points above {other} ({p}, Welch's t-test over seeds)", 100.0 * contrast.difference.means)
    };
    report.contrasts.iter().map(sentence).collect()
}

/// The worst clients of a run.
pub(super) fn worst(closeup: &Closeup) -> Table {
    let row = |client: &super::WorstClient| {
        let accuracy = client.accuracy.map_or_else(|| "–".into(), percent);
        vec![client.name.clone(), client.holds(), count(client.train), count(client.test), accuracy]
    };
    let heading = ["client", "holds (samples)", "train", "test", "accuracy"].map(str::to_owned).to_vec();
    Table { heading, rows: closeup.worst.iter().map(row).collect(), words: 2, best: Vec::new() }
}

/// Those met only after training, where a run had any.
pub(super) fn unseen(report: &Report) -> Option<Table> {
    let of = |line: &Line, measure: fn(&crate::run::Unseen) -> Option<f64>| {
        share(&line.over_runs(&report.runs, |run| measure(run.summary.as_ref()?.unseen.as_ref()?)))
    };
    let has = |line: &&Line| {
        line.runs(&report.runs).iter().any(|run| run.summary.as_ref().is_some_and(|summary| summary.unseen.is_some()))
    };
    let row = |line: &Line| {
        let clients = line.over_runs(&report.runs, |run| Some(run.summary.as_ref()?.unseen.as_ref()?.clients as f64));
        vec![
            line.name.clone(),
            clients.map_or_else(String::new, |clients| count(clients.mean as usize)),
            of(line, |unseen| Some(unseen.local.mean)),
            of(line, |unseen| unseen.shared.as_ref().map(|quality| quality.mean)),
        ]
    };
    let rows: Vec<Vec<String>> = report.lines.iter().filter(has).map(row).collect();
    let heading = ["method", "clients", "with theta_i", "with theta"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(Table { heading, rows, words: 1, best: Vec::new() })
}
