//! `fedeq` without arguments, and `fedeq demo`.
use std::path::{Path, PathBuf};

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::{print, tell};
use super::settings::carry_out;
use super::table::{Align, Table};
use crate::demo::{COLUMNS, Entry, METHODS, experiment, free_folder, verdict, write_report};
use crate::memory::forget_peak;
use crate::run::Run;

/// Shows four methods side by side on the built-in digits.
#[derive(Args, Debug, Default)]
#[command(after_help = "\
Examples:
  fedeq                       the same as `fedeq demo`
  fedeq demo --seed 1         other clients, other first weights
  fedeq compare runs/demo     its four runs in more detail
  fedeq report runs/demo      its report once more, also as Markdown, CSV, JSON or single figures")]
pub(super) struct Arguments {
    /// All randomness comes from here
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A new folder for the four runs and the report [default: runs/demo, with a number if that is taken]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Rounds of training, if not the usual number
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

const INTRODUCTION: &str = "\
Thirty clients hold hand-written digits: at most three different ones each, and about nine samples to learn from.
Four methods learn from them, one after the other. This takes less than a minute; Ctrl-C stops it.
";

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let folder = arguments.out.clone().unwrap_or_else(|| free_folder(Path::new("runs")));
    if !arguments.quiet {
        tell(INTRODUCTION);
    }
    let entries = METHODS.iter().map(|method| arguments.entry(method, &folder)).collect::<Outcome<Vec<_>>>()?;
    let report = write_report(&folder, &entries).map_err(Failure::during_work)?;
    print(&text_of(&entries, &report))
}

impl Arguments {
    fn entry(&self, method: &str, folder: &Path) -> Outcome<Entry> {
        let mut experiment = experiment(method, self.seed).map_err(Failure::refused)?;
        experiment.plan.rounds = self.rounds.unwrap_or(experiment.plan.rounds);
        let run = Run::create(&experiment, &folder.join(method)).map_err(Failure::refused)?;
        forget_peak();
        carry_out(&run, self.quiet).map(|summary| Entry { summary })
    }
}

fn text_of(entries: &[Entry], report: &Path) -> String {
    let align = |column: usize| if column < 2 { Align::Left } else { Align::Right };
    let columns: Vec<(&str, Align)> = COLUMNS.iter().enumerate().map(|(column, name)| (*name, align(column))).collect();
    let mut table = Table::new(&columns);
    entries.iter().for_each(|entry| table.row(entry.cells()));
    format!("\n{}\n{}\n\nreport: {}\n", table.text(), verdict(entries).join("\n"), report.display())
}
