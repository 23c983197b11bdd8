//! `fedeq compare`.
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use fedeq_core::View;
pub(super) use fedeq_report::comparison::VIEWS;
use fedeq_report::comparison::{COLUMNS, ComparisonTable, legend, verdicts};
use fedeq_run::compare::{Comparison, Gathered, Group, Qualities, gather};

use super::failure::{Failure, Outcome};
use super::output::{limit, print, print_json, tell, wrapped_within};

/// Puts finished runs side by side.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq compare runs/fedeq-digits-0 runs/fedrep-digits-0
  fedeq compare runs/demo                    all runs in a folder
  fedeq compare runs/demo --view shared      by the server's model with each client's head
  fedeq compare sweep --format csv > sweep.csv
  fedeq compare sweep --format latex          a table for a paper; also markdown and json
  fedeq compare sweep --columns settings,local,sent

Runs that differ only in their seed are one line: mean and standard deviation. All methods are compared by the same view of their clients' models, and the other view is shown beside it. \
On each data set the most accurate line is set against every other by a paired t-test over the seeds that both have, since a seed also draws the clients' data; where \
they have fewer than two seeds in common, or divide the data differently, by Welch's t-test. The p-values of a data set are corrected for their number by Holm's method. One seed is never tested.")]
pub(super) struct Arguments {
    /// Run folders, or folders that hold run folders
    #[arg(value_name = "RUN", required = true, add = super::completions::runs())]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    view_args: ViewArgs,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Which columns, in this order, of text, Markdown and LaTeX [default: all in which there is something to say]
    #[arg(long, value_name = "COLUMN,COLUMN", value_delimiter = ',', value_parser = PossibleValuesParser::new(COLUMNS))]
    columns: Vec<String>,
    /// The same as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The same as `--format csv`
    #[arg(long, conflicts_with_all = ["json", "format"])]
    csv: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal, no wider than it is.
    Text,
    /// A table of a page.
    Markdown,
    /// A table of a paper, by the package `booktabs`.
    Latex,
    /// Plain numbers, accuracies between 0 and 1.
    Csv,
    /// All of it, the tests included.
    Json,
}

impl Arguments {
    fn format(&self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => self.format,
        }
    }

    /// The columns that were chosen, or else all there is something to say in.
    fn table(&self, comparison: &Comparison) -> Outcome<ComparisonTable> {
        if self.columns.is_empty() {
            return Ok(ComparisonTable::of(comparison));
        }
        if matches!(self.format(), Format::Csv | Format::Json) {
            let problem = "`--columns` is for text, Markdown and LaTeX: the other formats have everything";
            return Err(Failure::request(problem, "leave it out, or choose another `--format`"));
        }
        Ok(ComparisonTable::only(comparison, &self.columns))
    }
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let gathered = gather(&arguments.runs).map_err(Failure::refused)?;
    tell_of_omissions(&gathered);
    let comparison = Comparison::of(&gathered.runs, arguments.view_args.view().unwrap_or_default()).map_err(Failure::refused)?;
    let table = arguments.table(&comparison)?;
    match arguments.format() {
        Format::Text => print(&text_of(&comparison, table)),
        Format::Markdown => print(&markdown_of(&comparison, &table)),
        Format::Latex => print(&latex_of(&comparison, &table)),
        Format::Csv => print(&csv_of(&comparison.groups)),
        Format::Json => print_json(&comparison),
    }
}

fn tell_of_omissions(gathered: &Gathered) {
    for path in &gathered.unfinished {
        tell(&format!("left out: `{}` is not finished", path.display()));
    }
    for path in &gathered.repeated {
        tell(&format!("left out: `{}` repeats an experiment with the same seed", path.display()));
    }
}

fn text_of(comparison: &Comparison, table: ComparisonTable) -> String {
    let (table, left_out) = table.text(limit());
    let contrasts: String = verdicts(comparison).iter().map(|verdict| wrapped_within(verdict)).collect();
    let space = if contrasts.is_empty() { "" } else { "\n" };
    let mut legend = legend(comparison);
    if !left_out.is_empty() {
        legend.insert(
            0,
            format!(
                "columns left out because the terminal is too narrow: {}; `--format csv` has everything",
                left_out.join(", ")
            ),
        );
    }
    let legend: String = legend.iter().map(|line| wrapped_within(line)).collect();
    format!("{table}\n{legend}{space}{contrasts}")
}

/// A page, or a part of one: the table, and what it means.
fn markdown_of(comparison: &Comparison, table: &ComparisonTable) -> String {
    let legend: String =
        legend(comparison).iter().map(|line| format!("- {}\n", line.replace("* the best", "bold: the best"))).collect();
    let contrasts: String = verdicts(comparison).iter().map(|verdict| format!("- {verdict}\n")).collect();
    format!("{}\n{legend}{contrasts}", table.markdown())
}

/// A table, and what it means in comments.
fn latex_of(comparison: &Comparison, table: &ComparisonTable) -> String {
    let notes = legend(comparison).into_iter().chain(verdicts(comparison));
    let notes: String = notes.map(|note| format!("% {}\n", note.replace("* the best", "bold: the best"))).collect();
    format!("{}{notes}", table.latex())
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

/// Four fields, empty where nothing is shared or told.
fn csv_qualities(qualities: Option<&Qualities>) -> [String; 4] {
    let field = |number: fn(&Qualities) -> f64| {
        let known = qualities.filter(|qualities| qualities.mean.count > 0);
        known.map_or(String::new(), |qualities| number(qualities).to_string())
    };
    [
        field(|qualities| qualities.mean.mean),
        field(|qualities| qualities.mean.deviation),
        field(|qualities| qualities.weighted.mean),
        field(|qualities| qualities.worst_decile.mean),
    ]
}

/// By which of their clients' models methods are compared.
#[derive(Args, Debug)]
pub(super) struct ViewArgs {
    /// By which of their clients' models all methods are compared, the same for all of them [default: local]
    #[arg(long, value_enum)]
    view: Option<ViewArgument>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ViewArgument {
    /// A client's own model after its last training
    Local,
    /// The server's model with the client's own head
    Shared,
}

impl ViewArgs {
    /// What was asked for, if anything was.
    pub(super) fn view(&self) -> Option<View> {
        self.view.map(|view| match view {
            ViewArgument::Local => View::Local,
            ViewArgument::Shared => View::Shared,
        })
    }
}
