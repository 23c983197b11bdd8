//! `fedeq compare`.
use std::path::PathBuf;

use clap::Args;
use fedeq_core::View;

use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::table::{Align, Table};
use crate::compare::{Comparison, Contrast, Gathered, Group, gather};
use crate::number::{bytes, count};
use crate::statistics::Sample;

/// Puts finished runs side by side.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq compare runs/fedeq-digits-0 runs/fedrep-digits-0
  fedeq compare runs/demo                    all runs in a folder
  fedeq compare sweep --csv > sweep.csv

Runs that differ only in their seed are one line: mean and standard deviation. Where two lines have at least two seeds each, Welch's \
t-test says how likely chance alone sets them so far apart.")]
pub(super) struct Arguments {
    /// Run folders, or folders that hold run folders
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
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
    let comparison = Comparison::of(&gathered.runs).map_err(Failure::refused)?;
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
    ("seeds", Align::Right),
    ("theta_i, mean %", Align::Right),
    ("weighted %", Align::Right),
    ("theta, mean %", Align::Right),
    ("weighted %", Align::Right),
    ("worst tenth %", Align::Right),
    ("sent", Align::Right),
    ("parameters", Align::Right),
    ("seconds", Align::Right),
];

fn text_of(comparison: &Comparison) -> String {
    let has_settings = comparison.groups.iter().any(|group| !group.settings.is_empty());
    let mut columns = COLUMNS.to_vec();
    if has_settings {
        columns.push(("settings", Align::Left));
    }
    let mut table = Table::new(&columns);
    comparison.groups.iter().for_each(|group| table.row(cells(group)));
    let note = "* the model the method is judged by; mean: clients count the same, weighted: by their samples";
    let contrasts: String = comparison.contrasts.iter().map(|contrast| sentence(contrast, &comparison.groups)).collect();
    let space = if contrasts.is_empty() { "" } else { "\n" };
    format!("{}\n{note}\n{space}{contrasts}", table.text())
}

fn cells(group: &Group) -> Vec<String> {
    let measures = &group.measures;
    let starred = |sample: &Sample, view: View| {
        let star = if group.headline == view { "*" } else { "" };
        format!("{star}{}", percents(sample))
    };
    let shared = |sample: &Option<Sample>, show: &dyn Fn(&Sample) -> String| sample.as_ref().map_or_else(|| "-".into(), show);
    let mut cells = vec![
        group.method.clone(),
        group.model.clone(),
        group.data.clone(),
        count(group.seeds.len()),
        starred(&measures.local_mean, View::Local),
        percents(&measures.local_weighted),
        shared(&measures.shared_mean, &|sample| starred(sample, View::Shared)),
        shared(&measures.shared_weighted, &percents),
        percents(&measures.worst_decile),
        bytes(measures.bytes.mean as u64),
        format!("{} + {}", count(group.shared_parameters), count(group.personal_parameters)),
        format!("{:.1}", measures.seconds.mean),
    ];
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
    let (better, other) = (groups[*better].title(), groups[*other].title());
    let p = difference.chance();
    format!(
        "{better} is {points:.1} points above {other} ({p}, t = {:.2}, {:.1} degrees of freedom)\n",
        difference.t, difference.freedom
    )
}

const CSV_HEADING: &str = "method,model,data,settings,seeds,accuracy,accuracy_deviation,worst_decile,worst_decile_deviation,\
local_mean,local_weighted,shared_mean,shared_weighted,bytes,shared_parameters,personal_parameters,seconds\n";

fn csv_of(groups: &[Group]) -> String {
    groups.iter().fold(CSV_HEADING.to_owned(), |text, group| text + &csv_row(group) + "\n")
}

fn csv_row(group: &Group) -> String {
    let measures = &group.measures;
    let shared = |sample: &Option<Sample>| sample.map_or(String::new(), |sample| sample.mean.to_string());
    let settings: Vec<String> = group.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let quoted = format!("\"{}\"", settings.join(" ").replace('"', "\"\""));
    let numbers = [
        group.seeds.len().to_string(),
        measures.accuracy.mean.to_string(),
        measures.accuracy.deviation.to_string(),
        measures.worst_decile.mean.to_string(),
        measures.worst_decile.deviation.to_string(),
        measures.local_mean.mean.to_string(),
        measures.local_weighted.mean.to_string(),
        shared(&measures.shared_mean),
        shared(&measures.shared_weighted),
        measures.bytes.mean.to_string(),
        group.shared_parameters.to_string(),
        group.personal_parameters.to_string(),
        measures.seconds.mean.to_string(),
    ];
    format!("{},{},{},{quoted},{}", group.method, group.model, group.data, numbers.join(","))
}
