//! Time and memory by phase.
use crate::figure::{Axis, BarSeries, Bars, Figure};
use crate::report::Report;
use crate::report::line::Line;
use fedeq_run::run::Timing;

/// What a phase is called, and its share of a timing.
type Phase = (&'static str, fn(&Timing) -> f64);

const SECONDS: [Phase; 6] = [
    ("forward, with solves", |timing| timing.solve),
    ("backward", |timing| timing.backward),
    ("update", |timing| timing.update),
    ("messages", |timing| timing.communicate),
    ("server", |timing| timing.server),
    ("evaluation", |timing| timing.evaluate),
];

const MEGABYTES: [Phase; 3] = [
    ("forward, with solves", |timing| timing.client_memory.solve as f64 / 1e6),
    ("backward", |timing| timing.client_memory.backward as f64 / 1e6),
    ("update", |timing| timing.client_memory.update as f64 / 1e6),
];

pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let sum = |timings: &[Timing], part: fn(&Timing) -> f64| timings.iter().map(part).sum();
    let most = |timings: &[Timing], part: fn(&Timing) -> f64| timings.iter().map(part).fold(0.0, f64::max);
    let time = figure(
        report,
        "time-by-phase",
        "Time by phase",
        "seconds, summed over clients that may work side by side",
        &SECONDS,
        sum,
        true,
    );
    let memory = figure(report, "memory-by-phase", "Memory of a client by phase", "megabytes, at most", &MEGABYTES, most, false);
    [time, memory].into_iter().flatten().collect()
}

/// Bars of a line each; nothing if nothing was measured.
fn figure(
    report: &Report,
    name: &str,
    title: &str,
    unit: &str,
    phases: &[Phase],
    measure: impl Fn(&[Timing], fn(&Timing) -> f64) -> f64,
    stacked: bool,
) -> Option<Figure> {
    let value = |line: &Line, part| {
        line.over_runs(&report.runs, |member| Some(measure(member.timings, part))).map_or(f64::NAN, |sample| sample.mean)
    };
    let bar = |(place, (name, part)): (usize, &Phase)| {
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
