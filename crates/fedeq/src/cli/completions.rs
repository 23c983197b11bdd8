//! `fedeq completions`: what a shell may complete.
use std::io;

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::Cli;
use super::failure::Outcome;

const EXAMPLES: &str = "\
Examples:
  fedeq completions bash > fedeq.bash; source fedeq.bash
  fedeq completions zsh > ~/.zfunc/_fedeq             with ~/.zfunc in $fpath
  fedeq completions fish > ~/.config/fish/completions/fedeq.fish";

/// What may be asked for.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// For which shell.
    shell: Shell,
}

/// Writes the script to stdout.
pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    generate(arguments.shell, &mut Cli::command(), "fedeq", &mut io::stdout());
    Ok(())
}
