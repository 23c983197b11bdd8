//! Every picture of a report: accuracy, clients, training and consensus, equilibrium solver, time and memory. Each is there only where there is something to be seen on it.
use fedeq_core::{DistanceSummary, Evaluation, Round, TheorySums, View};

use super::line::{MethodLine, Point, megabytes};
use super::{ClientDetail, Confusion};
use super::{Report, RunRecord};
use crate::figure::{Axis, BarSeries, Bars, Figure, Heat, HeatCell, Panel, Plot, Series};
use fedeq_run::number::counted;
use fedeq_run::run::Timing;

/// All of them, in the order of a text.
pub(super) fn all(report: &Report) -> Vec<Figure> {
    [accuracy(report), clients(report), consensus(report), aggregation(report), solver(report), cost(report)].concat()
}

/// A curve over seeds, with a band where there are several.
fn curve(name: &str, points: impl IntoIterator<Item = Point>) -> Series {
    let points: Vec<Point> = points.into_iter().collect();
    let series = Series::line(name, points.iter().map(|(x, sample)| (*x, sample.mean)).collect());
    if points.iter().all(|(_, sample)| sample.count < 2) {
        return series;
    }
    series.with_spread(points.iter().map(|(_, sample)| sample.deviation).collect())
}

/// The curve of a line, in its colour.
fn line_curve(line: &MethodLine, points: impl IntoIterator<Item = Point>) -> Series {
    coloured(line, curve(&line.name, points))
}

fn coloured(line: &MethodLine, series: Series) -> Series {
    series.of_method(&line.method).in_order(line.order)
}

/// Whether there is anything to be seen: a value that is not zero.
fn says_something(series: &[Series]) -> bool {
    series.iter().flat_map(|series| &series.points).any(|(_, y)| y.is_finite() && *y != 0.0)
}

/// What a band around a curve means, if there is one.
fn about_bands(series: &[Series]) -> &'static str {
    if series.iter().any(|series| series.spread.is_some()) { "Bands: one standard deviation over seeds." } else { "" }
}

/// Accuracy over rounds and over megabytes.
fn accuracy(report: &Report) -> Vec<Figure> {
    let mut figures = vec![accuracy_figure("accuracy-over-rounds", "Accuracy over rounds", accuracy_over_rounds(report))];
    if report.runs.iter().filter_map(|run| run.last()).any(|evaluation| evaluation.traffic.total() > 0) {
        figures.push(accuracy_figure("accuracy-over-megabytes", "Accuracy over megabytes sent", accuracy_over_megabytes(report)));
    }
    figures
}

fn accuracy_figure(name: &str, title: &str, plots: Vec<Plot>) -> Figure {
    let note = about_bands(&plots.iter().flat_map(|plot| plot.series.clone()).collect::<Vec<_>>());
    Figure::new(name, title, plots.into_iter().map(Panel::from).collect()).with_note(note)
}

/// What a view is called above a panel.
fn called(view: View) -> &'static str {
    match view {
        View::Local => "local: clients' own models",
        View::Shared => "shared: the server's model with clients' heads",
    }
}

fn accuracy_plot(title: &str, x: Axis, series: Vec<Series>) -> Plot {
    Plot { title: title.into(), x, y: Axis::percent("accuracy, mean over clients"), series }
}

/// A panel a view with a curve a line; a single line has a curve a view.
fn accuracy_over_rounds(report: &Report) -> Vec<Plot> {
    let curve_of = |name: &str, line: &MethodLine, view: View| {
        let points =
            line.over_evaluations(&report.runs, |evaluation| evaluation.quality(view).known().map(|quality| quality.mean));
        let series = curve(name, points.into_iter().map(|(round, sample)| (round as f64, sample)));
        // The curves of a single line are its views, not methods.
        if name == line.name { coloured(line, series) } else { series }
    };
    if let [line] = &report.lines[..] {
        let shares = report.runs.iter().filter_map(|run| run.last()).any(|evaluation| evaluation.shared.is_some());
        let views = View::ALL.into_iter().filter(|view| *view == View::Local || shares);
        return vec![accuracy_plot("", Axis::count("rounds"), views.map(|view| curve_of(called(view), line, view)).collect())];
    }
    let panel = |view: View| {
        let series = report.lines.iter().map(|line| curve_of(&line.name, line, view)).collect();
        accuracy_plot(called(view), Axis::count("rounds"), series)
    };
    View::ALL.map(panel).to_vec()
}

/// By the view in which lines are compared.
fn accuracy_over_megabytes(report: &Report) -> Vec<Plot> {
    let sent_and_reached = |line: &MethodLine| {
        let sent = line
            .over_evaluations(&report.runs, |evaluation| evaluation.quality(report.view).known().map(|_| megabytes(evaluation)));
        let reached =
            line.over_evaluations(&report.runs, |evaluation| evaluation.quality(report.view).known().map(|quality| quality.mean));
        line_curve(line, sent.into_values().map(|sample| sample.mean).zip(reached.into_values()))
    };
    let axis = Axis::new("megabytes sent in both directions, so far").starting_at(0.0);
    vec![accuracy_plot(called(report.view), axis, report.lines.iter().map(sent_and_reached).collect())]
}

/// More confusions than this are no comparison any more.
const MOST_CONFUSIONS: usize = 8;

/// How accuracy is spread over clients, and the confusion matrix of one of them.
fn clients(report: &Report) -> Vec<Figure> {
    let confusions = report
        .lines
        .iter()
        .zip(&report.client_details)
        .enumerate()
        .filter_map(|(place, (line, client_detail))| confusion(place, line, client_detail.available()?));
    std::iter::once(spread(report)).chain(confusions.take(MOST_CONFUSIONS)).collect()
}

/// The accuracies of all clients of a line's runs.
fn accuracies(line: &MethodLine, runs: &[RunRecord], view: View) -> Vec<f64> {
    let members = line.pool(runs).map(|pool| pool.members).unwrap_or_default();
    members.iter().flat_map(|member| member.evaluation.quality(view).clients.clone()).flatten().collect()
}

/// A histogram of one line, sorted clients of several: overlapping histograms cannot be read.
fn spread(report: &Report) -> Figure {
    match &report.lines[..] {
        [line] => histogram(&accuracies(line, &report.runs, report.view), report.view),
        lines => sorted(lines, &report.runs, report.view),
    }
}

fn histogram(accuracies: &[f64], view: View) -> Figure {
    const BINS: usize = 20;
    let bin = |accuracy: f64| ((accuracy * BINS as f64) as usize).min(BINS - 1);
    let count = |place: usize| accuracies.iter().filter(|accuracy| bin(**accuracy) == place).count();
    let middle = |place: usize| (place as f64 + 0.5) / BINS as f64;
    let points = (0..BINS).map(|place| (middle(place), count(place) as f64)).collect();
    let series = vec![Series::bars("clients", 1.0 / BINS as f64, points)];
    let plot = Plot { title: String::new(), x: Axis::percent(label(view)).between(0.0, 1.0), y: Axis::count("clients"), series };
    Figure::new("clients", "Accuracy of clients", vec![plot.into()])
}

fn label(view: View) -> String {
    format!("accuracy, {}", view.name())
}

fn sorted(lines: &[MethodLine], runs: &[RunRecord], view: View) -> Figure {
    let curve = |line: &MethodLine| {
        let mut accuracies = accuracies(line, runs, view);
        accuracies.sort_by(f64::total_cmp);
        let share = |place: usize| (place as f64 + 0.5) / accuracies.len() as f64;
        let points = accuracies.iter().enumerate().map(|(place, accuracy)| (share(place), *accuracy)).collect();
        coloured(line, Series::line(&line.name, points))
    };
    let x = Axis::percent("clients, from the worst to the best").between(0.0, 1.0);
    let series = lines.iter().map(curve).collect();
    let plot = Plot { title: String::new(), x, y: Axis::percent(label(view)).between(0.0, 1.0), series };
    Figure::new("clients", "Accuracy of clients, sorted", vec![plot.into()])
}

fn confusion(place: usize, line: &MethodLine, client_detail: &ClientDetail) -> Option<Figure> {
    let (chosen, Confusion { classes, counts }) = (client_detail.chosen.as_ref()?, client_detail.confusion.available()?);
    let cells = counts.iter().map(|row| shaded(row)).collect();
    let (x, y) = ("predicted".into(), "true".into());
    let heat = Heat { title: String::new(), x, y, columns: classes.clone(), rows: classes.clone(), cells };
    let title = format!("{}: confusion matrix of {}", line.name, chosen.name);
    let note = format!("On {} of run {}; shades are shares of a row.", counted(chosen.test, "test sample"), client_detail.run);
    Some(Figure::new(format!("confusion-{}", place + 1), title, vec![heat.into()]).with_note(note))
}

fn shaded(row: &[usize]) -> Vec<HeatCell> {
    let whole = row.iter().sum::<usize>().max(1);
    let text = |count: usize| if count == 0 { String::new() } else { fedeq_run::number::count(count) };
    row.iter().map(|count| HeatCell { shade: *count as f64 / whole as f64, text: text(*count) }).collect()
}

/// A picture over evaluations: name, title, axis and measure.
type Measured = (&'static str, &'static str, fn() -> Axis, fn(&Evaluation) -> Option<f64>);

const OVER_EVALUATIONS: [Measured; 5] = [
    ("consensus-gap", "Consensus gap", || Axis::new("mean of ‖theta_i − theta‖"), |evaluation| Some(evaluation.gap)),
    ("dual-norm", "Dual norm", || Axis::new("mean of ‖lambda_i‖"), |evaluation| Some(evaluation.dual_norm)),
    (
        "lagrangian",
        "Augmented Lagrangian",
        || Axis::new("sum over clients"),
        |evaluation| theory(evaluation, |sums| sums.lagrangian),
    ),
    ("stationarity", "Stationarity", || Axis::log("squared norm"), |evaluation| theory(evaluation, |sums| sums.stationarity)),
    (
        "head-gradient",
        "Gradient of the heads",
        || Axis::log("squared norm"),
        |evaluation| theory(evaluation, |sums| sums.head_gradient),
    ),
];

fn theory(evaluation: &Evaluation, part: fn(&TheorySums) -> f64) -> Option<f64> {
    evaluation.theory.as_ref().map(part)
}

/// How training goes: loss, consensus and, where it was measured, theory.
fn consensus(report: &Report) -> Vec<Figure> {
    let over_evaluations = OVER_EVALUATIONS.into_iter().map(|(name, title, axis, measure)| {
        let series = report.lines.iter().map(|line| {
            let points = line.over_evaluations(&report.runs, measure);
            line_curve(line, points.into_iter().map(|(round, sample)| (round as f64, sample)))
        });
        figure_over_rounds(name, title, axis(), series.collect())
    });
    let loss = figure_over_rounds(
        "training-loss",
        "Training loss",
        Axis::new("mean over the round's clients"),
        over_rounds(report, Round::training_loss),
    );
    let spent = |round: &Round| round.privacy.map(|privacy| privacy.epsilon);
    let privacy = figure_over_rounds("privacy", "Privacy spent", Axis::new("epsilon"), over_rounds(report, spent));
    std::iter::once(loss).chain(over_evaluations).chain([privacy]).flatten().collect()
}

/// A picture of how far updates were apart: name, title, axis and measure.
type Apart = (&'static str, &'static str, fn() -> Axis, fn(&DistanceSummary) -> f64);

const APART: [Apart; 5] = [
    ("change-norm", "Norm of clients' changes", || Axis::new("median over the round's clients"), |apart| apart.norm),
    ("change-norm-largest", "Largest norm of a client's change", || Axis::log("in a round"), |apart| apart.largest_norm),
    (
        "aggregate-distance",
        "Distance of clients to the aggregate",
        || Axis::new("median over the round's clients"),
        |apart| apart.distance,
    ),
    (
        "aggregate-distance-largest",
        "Largest distance of a client to the aggregate",
        || Axis::log("in a round"),
        |apart| apart.largest_distance,
    ),
    ("outliers", "Outliers", || Axis::new("updates of a round").starting_at(0.0), |apart| apart.outliers as f64),
];

/// How far updates were apart, where that was noted, and the bound on them.
fn aggregation(report: &Report) -> Vec<Figure> {
    let apart = APART.into_iter().filter_map(|(name, title, axis, measure)| {
        figure_over_rounds(name, title, axis(), over_rounds(report, |round| round.distance_summary().as_ref().map(measure)))
    });
    let bound = figure_over_rounds(
        "clipping-bound",
        "Bound on clients' changes",
        Axis::new("norm"),
        over_rounds(report, |round| round.bound),
    );
    apart.chain(bound).collect()
}

/// A curve a line over rounds.
fn over_rounds(report: &Report, measure: impl Fn(&Round) -> Option<f64>) -> Vec<Series> {
    report.lines.iter().map(|line| line_curve(line, line.over_rounds(&report.runs, &measure))).collect()
}

/// A picture over rounds; nothing if there is nothing to be seen. Lines that do not have it are not named, and the others keep their colours.
fn figure_over_rounds(name: &str, title: &str, y: Axis, mut series: Vec<Series>) -> Option<Figure> {
    for silent in series.iter_mut().filter(|series| !says_something(std::slice::from_ref(&**series))) {
        (silent.points, silent.spread) = (Vec::new(), None);
    }
    let note = about_bands(&series);
    let is_empty = !says_something(&series);
    let plot = Plot { title: String::new(), x: Axis::count("rounds"), y, series };
    (!is_empty).then(|| Figure::new(name, title, vec![plot.into()]).with_note(note))
}

/// What equilibrium solves take.
fn solver(report: &Report) -> Vec<Figure> {
    let mean = |part: usize| over_rounds(report, move |round| round.solves.means().map(|means| means[part]));
    let steps = figure_over_rounds("solver-steps", "Solver steps", Axis::new("steps per sample").starting_at(0.0), mean(0));
    let residual =
        figure_over_rounds("solver-residual", "Relative residual", Axis::log("mean over samples, after the solve"), mean(1));
    let unconverged =
        figure_over_rounds("solver-unconverged", "Samples that did not converge", Axis::percent("share of samples"), mean(2));
    let warm = over_rounds(report, |round| round.solves.warm_share());
    let warm = figure_over_rounds("solver-warm", "Solves that started warm", Axis::percent("share of samples"), warm);
    [steps, residual, unconverged, warm].into_iter().flatten().collect()
}

/// What a phase is called, and its share of a timing.
type TimedPhase = (&'static str, fn(&Timing) -> f64);

const SECONDS: [TimedPhase; 6] = [
    ("forward, with solves", |timing| timing.solve),
    ("backward", |timing| timing.backward),
    ("update", |timing| timing.update),
    ("messages", |timing| timing.communicate),
    ("server", |timing| timing.server),
    ("evaluation", |timing| timing.evaluate),
];

const MEGABYTES: [TimedPhase; 3] = [
    ("forward, with solves", |timing| timing.client_memory.solve as f64 / 1e6),
    ("backward", |timing| timing.client_memory.backward as f64 / 1e6),
    ("update", |timing| timing.client_memory.update as f64 / 1e6),
];

const GPU_GIGABYTES: [TimedPhase; 1] =
    [("memory of the GPU", |timing| timing.device.map_or(0.0, |used| used.peak_memory as f64 / 1e9))];

/// Seconds in which the GPU was at work; a share of all of them is what is shown.
const GPU_AT_WORK: [TimedPhase; 1] =
    [("at work", |timing| timing.device.map_or(0.0, |used| used.utilisation * timing.seconds()))];

/// Time and memory by phase, and those of a GPU.
fn cost(report: &Report) -> Vec<Figure> {
    let sum = |timings: &[Timing], part: fn(&Timing) -> f64| timings.iter().map(part).sum::<f64>();
    let most = |timings: &[Timing], part: fn(&Timing) -> f64| timings.iter().map(part).fold(0.0, f64::max);
    let time = phase_figure(
        report,
        "time-by-phase",
        "Time by phase",
        "seconds, summed over clients, which may train in parallel",
        &SECONDS,
        sum,
        true,
    );
    let memory =
        phase_figure(report, "memory-by-phase", "Memory of a client by phase", "megabytes, at most", &MEGABYTES, most, false);
    let gpu_memory = phase_figure(report, "gpu-memory", "Memory of the GPU", "gigabytes, at most", &GPU_GIGABYTES, most, false);
    let share = |timings: &[Timing], part: fn(&Timing) -> f64| {
        sum(timings, part) / timings.iter().map(Timing::seconds).sum::<f64>().max(f64::MIN_POSITIVE) * 100.0
    };
    let gpu_work = phase_figure(report, "gpu-at-work", "GPU utilisation", "percent of the time", &GPU_AT_WORK, share, false);
    [time, memory, gpu_memory, gpu_work].into_iter().flatten().collect()
}

/// Bars of a line each; nothing if nothing was measured.
fn phase_figure(
    report: &Report,
    name: &str,
    title: &str,
    unit: &str,
    phases: &[TimedPhase],
    measure: impl Fn(&[Timing], fn(&Timing) -> f64) -> f64,
    stacked: bool,
) -> Option<Figure> {
    let value = |line: &MethodLine, part| {
        line.over_runs(&report.runs, |member| Some(measure(member.timings, part))).map_or(f64::NAN, |sample| sample.mean)
    };
    let bar = |(place, (name, part)): (usize, &TimedPhase)| {
        let values = report.lines.iter().map(|line| value(line, *part)).collect();
        BarSeries { colour: Some(place), ..BarSeries::new(*name, values) }
    };
    let series: Vec<BarSeries> = phases.iter().enumerate().map(bar).collect();
    let is_empty = series.iter().flat_map(|series| &series.values).all(|value| !value.is_finite() || *value == 0.0);
    let categories = report.lines.iter().map(|line| line.name.clone()).collect();
    let bars = Bars { title: String::new(), value: Axis::new(unit), categories, series, stacked };
    let note = if report.runs.len() > report.lines.len() { "Means over seeds." } else { "" };
    (!is_empty).then(|| Figure::new(name, title, vec![bars.into()]).with_note(note))
}
