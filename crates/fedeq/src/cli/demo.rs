//! `fedeq` without arguments, and `fedeq demo`.
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_core::{Method, View};

use super::failure::{Failure, Outcome};
use super::output::{print, tell};
use super::settings::carry_out;
use super::table::{Align, Table};
use crate::demo::{COLUMNS, LEGEND, METHODS, MethodResult, SEEDS, experiment, free_folder, run_folder, verdict, write_report};
use crate::memory::forget_peak;
use fedeq_run::number::percent;
use fedeq_run::run::Run;

/// Shows four methods side by side on the built-in digits.
#[derive(Args, Debug, Default)]
#[command(after_help = "\
Examples:
  fedeq                       the same as `fedeq demo`
  fedeq demo --seed 5         five other seeds: other clients, other first weights
  fedeq demo --seeds 1        one seed, in a few seconds
  fedeq compare runs/demo     its runs in more detail, with tests of significance
  fedeq report runs/demo      its report once more, also as Markdown, CSV, JSON or single figures")]
pub(super) struct DemoCommand {
    /// The first seed, from which all randomness comes
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How many seeds each method has [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    seeds: Option<u64>,
    /// A new folder for the runs and the report [default: runs/demo, with a number if that is taken]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Rounds of training, if not the usual number
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// More seeds than this are a slip.
const MOST_SEEDS: u64 = 10_000;

const INTRODUCTION: &str = "\
Thirty clients hold hand-written digits: at most three different ones each, and about nine samples to learn from.
Four methods learn from them, one after the other, each with several seeds. This takes less than a minute; Ctrl-C stops it.
";

pub(super) fn run(arguments: &DemoCommand) -> Outcome<()> {
    let folder = arguments.out.clone().unwrap_or_else(|| free_folder(Path::new("runs")));
    if !arguments.quiet {
        tell(INTRODUCTION);
    }
    let runs = arguments.runs(&folder);
    for (index, (method, seed, path)) in runs.iter().enumerate() {
        arguments.carry_out(method, *seed, path, &format!("run {} of {}", index + 1, runs.len()))?;
    }
    let of_method =
        |method: &&str| runs.iter().filter(|(known, ..)| known == method).map(|(.., path)| path.clone()).collect::<Vec<_>>();
    let entries = METHODS.iter().map(|method| MethodResult::read(&of_method(method))).collect::<fedeq_core::Result<Vec<_>>>();
    let entries = entries.map_err(Failure::during_work)?;
    let paths: Vec<PathBuf> = runs.into_iter().map(|(.., path)| path).collect();
    let report = write_report(&folder, &paths, &entries).map_err(Failure::during_work)?;
    print(&text_of(&entries, &report))
}

impl DemoCommand {
    /// Method, seed and folder of every run.
    fn runs(&self, folder: &Path) -> Vec<(&'static str, u64, PathBuf)> {
        let seeds = (0..self.seeds.unwrap_or(SEEDS)).map(|index| self.seed.wrapping_add(index));
        let run = |method: &'static str, seed: u64| (method, seed, run_folder(folder, method, seed));
        METHODS.into_iter().flat_map(|method| seeds.clone().map(move |seed| run(method, seed))).collect()
    }

    fn carry_out(&self, method: &str, seed: u64, folder: &Path, which: &str) -> Outcome<()> {
        let mut experiment = experiment(method, seed).map_err(Failure::refused)?;
        experiment.plan.rounds = self.rounds.unwrap_or(experiment.plan.rounds);
        let run = Run::create(&experiment, folder).map_err(Failure::refused)?;
        forget_peak();
        let summary = carry_out(&run, true)?;
        if !self.quiet {
            let [shared, local] = [View::Shared, View::Local].map(|view| percent(summary.evaluation.quality(view).mean));
            tell(&format!("{which}: {}, seed {seed}: {shared} shared, {local} local", Method::title(method)));
        }
        Ok(())
    }
}

fn text_of(entries: &[MethodResult], report: &Path) -> String {
    let align = |column: usize| if column < 2 { Align::Left } else { Align::Right };
    let columns: Vec<(&str, Align)> = COLUMNS.iter().enumerate().map(|(column, name)| (*name, align(column))).collect();
    let mut table = Table::new(&columns);
    entries.iter().for_each(|entry| table.row(entry.cells()));
    format!("\n{}\n{LEGEND}\n\n{}\n\nreport: {}\n", table.text(), verdict(entries).join("\n"), report.display())
}
