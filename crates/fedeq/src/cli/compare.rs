//! `fedeq compare`.
use std::path::PathBuf;

use clap::Args;
use fedeq_core::View;

use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::table::{Align, Table};
use super::view::{VIEWS, ViewArgs};
use fedeq_run::compare::{Comparison, Contrast, Gathered, Group, Qualities, gather};
use fedeq_run::number::{bytes, count};
use fedeq_run::statistics::{BEST, Sample};

/// Puts finished runs side by side.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq compare runs/fedeq-digits-0 runs/fedrep-digits-0
  fedeq compare runs/demo                    all runs in a folder
  fedeq compare runs/demo --view shared      by the server's model with each client's head
  fedeq compare sweep --csv > sweep.csv

Runs that differ only in their seed are one line: mean and standard deviation. All methods are compared by the same view of their clients' models, and the other view is shown beside it. \
On each data set the most accurate line is set against every other by a paired t-test over the seeds that both have, since a seed also draws the clients' data; where \
they have fewer than two seeds in common, or divide the data differently, by Welch's t-test. One seed is never tested.")]
pub(super) struct Arguments {
    /// Run folders, or folders that hold run folders
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    view_args: ViewArgs,
    /// Write it all as JSON
    #[arg(long)]
    json: bool,
    /// Write the table as CSV: plain numbers, accuracies between 0 and 1
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let gathered = gather(&arguments.runs).map_err(Failure::refused)?;
    tell_of_omissions(&gathered);
    let comparison = Comparison::of(&gathered.runs, arguments.view_args.view().unwrap_or_default()).map_err(Failure::refused)?;
    if arguments.json {
        return print_json(&comparison);
    }
    print(&if arguments.csv { csv_of(&comparison.groups) } else { text_of(&comparison) })
}

fn tell_of_omissions(gathered: &Gathered) {
    for path in &gathered.unfinished {
        tell(&format!("left out: `{}` is not finished", path.display()));
    }
    for path in &gathered.repeated {
        tell(&format!("left out: `{}` repeats an experiment with the same seed", path.display()));
    }
}

const COLUMNS: [(&str, Align); 12] = [
    ("method", Align::Left),
    ("model", Align::Left),
    ("data", Align::Left),
    ("rounds", Align::Right),
    ("seeds", Align::Right),
    ("local %", Align::Right),
    ("shared %", Align::Right),
    ("by samples %", Align::Right),
    ("worst tenth %", Align::Right),
    ("sent", Align::Right),
    ("parameters shared + own", Align::Right),
    ("seconds", Align::Right),
];

fn text_of(comparison: &Comparison) -> String {
    let has_settings = comparison.groups.iter().any(|group| !group.settings.is_empty());
    let mut columns = COLUMNS.to_vec();
    let is_private = comparison.groups.iter().any(|group| group.measures.epsilon.is_some());
    if is_private {
        columns.push(("epsilon", Align::Right));
    }
    if has_settings {
        columns.push(("settings", Align::Left));
    }
    let mut table = Table::new(&columns);
    let is_best = |place: usize| comparison.best.contains(&place);
    comparison
        .groups
        .iter()
        .enumerate()
        .for_each(|(place, group)| table.row(cells(group, comparison.view, is_best(place), is_private)));
    let contrasts: String = comparison.contrasts.iter().map(|contrast| sentence(contrast, &comparison.groups)).collect();
    let space = if contrasts.is_empty() { "" } else { "\n" };
    format!("{}\n{}{space}{contrasts}", table.text(), legend(comparison))
}

/// What the table means, and how sure it is.
fn legend(comparison: &Comparison) -> String {
    let view = comparison.view.name();
    let other = View::ALL.into_iter().find(|other| *other != comparison.view).map_or("", View::name);
    let mut lines = vec![
        format!("accuracy on test samples, mean over clients; {VIEWS}"),
        format!(
            "compared by `{view}` (`--view {other}` for the other), as are the columns `by samples` (clients count by their samples) and `worst tenth` of the clients"
        ),
    ];
    if comparison.groups.iter().all(|group| group.seeds.len() < 2) {
        lines.push("one seed each: nothing is marked as best; `fedeq sweep --seeds` runs several".into());
    } else {
        lines.push(format!("* {BEST}; lines with one seed are not compared"));
    }
    let mut rounds: Vec<u64> = comparison.groups.iter().map(|group| group.rounds).collect();
    rounds.sort_unstable();
    rounds.dedup();
    if rounds.len() > 1 {
        lines.push("not like for like: the numbers of rounds differ".into());
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn cells(group: &Group, view: View, is_best: bool, is_private: bool) -> Vec<String> {
    let measures = &group.measures;
    let starred = |shown: View| {
        let star = if is_best && shown == view { "*" } else { "" };
        format!("{star}{}", percents(&measures.quality(shown).mean))
    };
    let Qualities { weighted, worst_decile, .. } = measures.quality(view);
    let mut cells = vec![
        group.method.clone(),
        group.model.clone(),
        group.data.clone(),
        count(group.rounds as usize),
        count(group.seeds.len()),
        starred(View::Local),
        starred(View::Shared),
        percents(weighted),
        percents(worst_decile),
        bytes(measures.bytes.mean as u64),
        format!("{} + {}", count(group.shared_parameters), count(group.personal_parameters)),
        format!("{:.1}", measures.seconds.mean),
    ];
    cells.extend(is_private.then(|| measures.epsilon.map_or_else(String::new, |epsilon| format!("{:.2}", epsilon.mean))));
    let settings: Vec<String> = group.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    cells.extend((!settings.is_empty()).then(|| settings.join(" ")));
    cells
}

/// `97.2` or, over several seeds, `97.2 ± 0.4`.
pub(super) fn percents(sample: &Sample) -> String {
    let mean = format!("{:.1}", 100.0 * sample.mean);
    if sample.count < 2 { mean } else { format!("{mean} ± {:.1}", 100.0 * sample.deviation) }
}

fn sentence(contrast: &Contrast, groups: &[Group]) -> String {
    let Contrast { better, other, difference } = contrast;
    let points = 100.0 * difference.means;
    // Over the seeds that both have, the one with the higher mean over its own may be behind.
    let side = if points < 0.0 { "below" } else { "above" };
    let (better, other) = (groups[*better].title(), groups[*other].title());
    let verdict = if difference.is_significant() { "" } else { ", so they cannot be told apart" };
    format!(
        "{better} is {:.1} points {side} {other} ({}, {}){verdict}\n",
        points.abs(),
        difference.chance(),
        difference.test.words()
    )
}

const CSV_HEADING: &str = "method,model,data,settings,rounds,seeds,local_mean,local_deviation,local_weighted,local_worst_decile,\
shared_mean,shared_deviation,shared_weighted,shared_worst_decile,bytes,shared_parameters,personal_parameters,seconds,epsilon\n";

fn csv_of(groups: &[Group]) -> String {
    groups.iter().fold(CSV_HEADING.to_owned(), |text, group| text + &csv_row(group) + "\n")
}

fn csv_row(group: &Group) -> String {
    let measures = &group.measures;
    let settings: Vec<String> = group.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let quoted = format!("\"{}\"", settings.join(" ").replace('"', "\"\""));
    let mut numbers = vec![group.rounds.to_string(), group.seeds.len().to_string()];
    numbers.extend(csv_qualities(Some(&measures.local)));
    numbers.extend(csv_qualities(measures.shared.as_ref()));
    numbers.extend([
        measures.bytes.mean.to_string(),
        group.shared_parameters.to_string(),
        group.personal_parameters.to_string(),
        measures.seconds.mean.to_string(),
        measures.epsilon.map_or_else(String::new, |epsilon| epsilon.mean.to_string()),
    ]);
    format!("{},{},{},{quoted},{}", group.method, group.model, group.data, numbers.join(","))
}

/// Four fields, empty where nothing is shared.
fn csv_qualities(qualities: Option<&Qualities>) -> [String; 4] {
    let field = |number: fn(&Qualities) -> f64| qualities.map_or(String::new(), |qualities| number(qualities).to_string());
    [
        field(|qualities| qualities.mean.mean),
        field(|qualities| qualities.mean.deviation),
        field(|qualities| qualities.weighted.mean),
        field(|qualities| qualities.worst_decile.mean),
    ]
}
