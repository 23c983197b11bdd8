//! `fedeq completions`: what a shell asks to complete.
use std::ffi::OsString;
use std::{env, io};

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use super::Cli;
use super::failure::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  source <(fedeq completions bash)                     in ~/.bashrc
  fedeq completions zsh > ~/.zfunc/_fedeq              with ~/.zfunc in $fpath
  fedeq completions fish > ~/.config/fish/completions/fedeq.fish

The script asks `fedeq` itself, so that settings, their values, presets, data sets, networks, experiments and run folders are completed too.";

/// What may be asked for.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// For which shell.
    shell: Shell,
}

/// The environment variable by which a shell asks.
const ASKED: &str = "FEDEQ_COMPLETE";

/// Answers a shell that asks what can stand where the cursor is; false where none asks.
pub(super) fn answer(arguments: &[OsString]) -> bool {
    let here = env::current_dir().ok();
    let asked = CompleteEnv::with_factory(Cli::command).var(ASKED);
    asked.try_complete(arguments, here.as_deref()).unwrap_or_else(|error| error.exit())
}

/// Writes the script to stdout.
pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&arguments.shell.to_string()) else {
        return Err(Failure::request(format!("there is no script for `{}`", arguments.shell), "choose another shell"));
    };
    shell.write_registration(ASKED, "fedeq", "fedeq", "fedeq", &mut io::stdout()).map_err(Failure::output)
}
