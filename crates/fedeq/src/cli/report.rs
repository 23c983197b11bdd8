//! `fedeq report`.
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use fedeq_core::write_atomically;

use super::compare::ViewArgs;
use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use fedeq_report::report::{Report, ReportOptions};
use fedeq_run::number::counted;

/// Writes a report of runs: one page to keep and to share.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq report runs/fedeq-digits-0                             writes report.html into the folder
  fedeq report runs/demo --out four.html                       all runs in a folder, side by side
  fedeq report runs/first runs/second --figures pictures       every figure as SVG and PNG as well
  fedeq report runs/first --client client-07                   the confusion matrix of this client
  fedeq report sweeps/methods --format md > RESULTS.md

Runs that differ only in their seed are one line: mean and standard deviation, after the same number of rounds. Both views of clients' models are in the table; curves over bytes, \
clients and tests of significance take the one that `--view` names, of all methods; a single method is shown by the model that it names itself. The page needs no other file and no network. Runs need not be finished. \
Names and labels of clients and confusion matrices are shown where the data is available.")]
pub(super) struct ReportCommand {
    /// Run folders, or folders that hold run folders
    #[arg(value_name = "RUN", required = true, add = super::completions::runs())]
    runs: Vec<PathBuf>,
    /// Where to write [default: report.html in the folder given, or here if there are several; other formats go to stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Html)]
    format: Format,
    #[command(flatten)]
    view_args: ViewArgs,
    /// A folder to write every figure to, as SVG and as PNG
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Whose confusion matrix to show, by name or by number [default: the least accurate client]
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
    /// The folder that data sets are kept in, or the path of your own data [default: where the runs found it]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A page that needs no other file
    Html,
    /// Tables as Markdown
    Md,
    /// One line a run: plain numbers, accuracies between 0 and 1
    Csv,
    /// Everything, for other programs
    Json,
}

pub(super) fn run(arguments: &ReportCommand) -> Outcome<()> {
    let options =
        ReportOptions { client: arguments.client.as_deref(), data: arguments.data.as_deref(), view: arguments.view_args.view() };
    let report = Report::read(&arguments.runs, &options).map_err(Failure::refused)?;
    for path in &report.repeated {
        tell(&format!("left out: `{}` repeats an experiment with the same seed", path.display()));
    }
    if let Some(folder) = &arguments.figures {
        write_figures(&report, folder)?;
    }
    match (arguments.path(), arguments.format) {
        (None, Format::Json) => print_json(&report),
        (None, _) => print(&arguments.text(&report)?),
        (Some(path), _) => write(&path, &arguments.text(&report)?),
    }
}

impl ReportCommand {
    /// The file to write; nothing for stdout.
    fn path(&self) -> Option<PathBuf> {
        let usual = || match &self.runs[..] {
            [only] => only.join("report.html"),
            _ => PathBuf::from("report.html"),
        };
        self.out.clone().or_else(|| (self.format == Format::Html).then(usual))
    }

    fn text(&self, report: &Report) -> Outcome<String> {
        match self.format {
            Format::Html => report.html(),
            Format::Md => report.markdown(self.figures_as_seen_from_the_text().as_deref()),
            Format::Csv => report.csv(),
            Format::Json => return json(report),
        }
        .map_err(Failure::during_work)
    }

    /// A text and its figures may move together, so their way to each other is kept short where that is easy.
    fn figures_as_seen_from_the_text(&self) -> Option<PathBuf> {
        let figures = self.figures.as_ref()?;
        let beside = self.out.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        Some(figures.strip_prefix(beside).unwrap_or(figures).to_owned())
    }
}

fn json(report: &Report) -> Outcome<String> {
    serde_json::to_string_pretty(report).map(|json| json + "\n").map_err(|error| Failure::output(error.into()))
}

fn write(path: &Path, text: &str) -> Outcome<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Failure::io(folder, "create it"))?;
    }
    write_atomically(path, text.as_bytes()).map_err(Failure::during_work)?;
    tell(&format!("wrote `{}`", path.display()));
    Ok(())
}

fn write_figures(report: &Report, folder: &Path) -> Outcome<()> {
    let figures = report.figures();
    figures.iter().try_for_each(|figure| figure.save(folder).map(|_| ())).map_err(Failure::during_work)?;
    tell(&format!("wrote {} to `{}`, as SVG and as PNG", counted(figures.len(), "figure"), folder.display()));
    Ok(())
}
