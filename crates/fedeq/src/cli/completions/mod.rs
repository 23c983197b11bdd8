//! `fedeq completions`: what a shell asks to complete, and what can stand there: settings and their values, presets, data sets, networks, methods, experiments and run folders.
mod bash;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::{env, io};

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Elvish, Fish, Powershell, Shells, Zsh};
use fedeq_core::Method;
use fedeq_data::fetch::offer::offer;
use fedeq_data::source::{Entry, catalog};
use fedeq_report::reproduce::{NAMES, find};
use fedeq_run::experiment::{Accepts, Holds, SettingInfo};
use fedeq_run::preset::Preset;
use fedeq_run::run::{Links, runs_below};

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
pub(super) struct CompletionsCommand {
    /// For which shell.
    shell: Shell,
}

/// The environment variable by which a shell asks.
const ASKED: &str = "FEDEQ_COMPLETE";

const SHELLS: Shells<'static> = Shells(&[&bash::WholeWordsBash, &Elvish, &Fish, &Powershell, &Zsh]);

/// Answers a shell that asks what can stand where the cursor is; false where none asks.
pub(super) fn answer(arguments: &[OsString]) -> bool {
    let here = env::current_dir().ok();
    let asked = CompleteEnv::with_factory(Cli::command).var(ASKED).shells(SHELLS);
    asked.try_complete(arguments, here.as_deref()).unwrap_or_else(|error| error.exit())
}

/// Writes the script to stdout.
pub(super) fn run(arguments: &CompletionsCommand) -> Outcome<()> {
    let shells = SHELLS;
    let Some(shell) = shells.completer(&arguments.shell.to_string()) else {
        return Err(Failure::request(format!("there is no script for `{}`", arguments.shell), "choose another shell"));
    };
    shell.write_registration(ASKED, "fedeq", "fedeq", "fedeq", &mut io::stdout()).map_err(Failure::output)
}

/// `KEY=VALUE`.
pub(super) fn settings() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| setting(typed, false))
}

/// `KEY=VALUE,VALUE`.
pub(super) fn axes() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| setting(typed, true))
}

/// The same, perhaps with the axis that it goes with: `AXIS:KEY=VALUE,VALUE`.
pub(super) fn axes_with() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let text = typed.to_string_lossy();
        let Some((axis, rest)) = text.split_once(':').filter(|(axis, _)| !axis.contains('=')) else {
            return setting(typed, true);
        };
        let found = setting(OsStr::new(rest), true);
        found.into_iter().map(|one| one.add_prefix(format!("{axis}:"))).collect()
    })
}

/// Data sets that can be fetched.
pub(super) fn offers() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        matching(typed, catalog().filter(|entry| offer(entry.name).is_some()).map(data_set).collect())
    })
}

/// Keys, or beginnings of keys.
pub(super) fn keys() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| matching(typed, key_candidates("")))
}

/// Values of a setting.
pub(super) fn values_of(key: &'static str) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| matching(typed, value_candidates("", key)))
}

pub(super) fn presets() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| matching(typed, Preset::NAMES.map(CompletionCandidate::new).into()))
}

pub(super) fn methods() -> ArgValueCompleter {
    let named = |name: &str| CompletionCandidate::new(name.to_owned()).help(Some(Method::title(name).to_owned().into()));
    ArgValueCompleter::new(move |typed: &OsStr| matching(typed, Method::NAMES.iter().map(|name| named(name)).collect()))
}

pub(super) fn data_sets() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let mut found = matching(typed, catalog().map(data_set).collect());
        found.extend(paths(typed));
        found
    })
}

/// The paper's tables and figures.
pub(super) fn experiments() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let named = |name: &&'static str| {
            let title = find(name).map(|spec| spec.title).unwrap_or_default();
            CompletionCandidate::new(*name).help(Some(title.into()))
        };
        matching(typed, NAMES.iter().map(named).collect())
    })
}

pub(super) fn devices() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| matching(typed, ["cpu", "cuda", "cuda:1"].map(CompletionCandidate::new).into()))
}

/// Run folders below the usual places and below what is typed, and folders that may hold some.
pub(super) fn runs() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let text = typed.to_string_lossy();
        let folder = text.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        let places = ["runs", "sweeps"].map(str::to_owned).into_iter().chain(folder);
        let found: BTreeSet<String> = places
            .flat_map(|place| runs_below(Path::new(&place), Links::PassedOver).into_values())
            .map(|path| path.display().to_string())
            .collect();
        let runs = matching(typed, found.into_iter().map(CompletionCandidate::new).collect());
        if runs.is_empty() { paths(typed) } else { runs }
    })
}

fn data_set(entry: &'static Entry) -> CompletionCandidate {
    CompletionCandidate::new(entry.name).help(Some(entry.about.into()))
}

/// Those that begin with what is typed.
fn matching(typed: &OsStr, all: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    all.into_iter().filter(|one| one.get_value().to_string_lossy().starts_with(typed.as_ref())).collect()
}

fn setting(typed: &OsStr, is_list: bool) -> Vec<CompletionCandidate> {
    let text = typed.to_string_lossy();
    let Some((key, value)) = text.split_once('=') else { return matching(typed, key_candidates("=")) };
    let begun = value.rsplit_once(',').filter(|_| is_list).map_or(String::new(), |(begun, _)| format!("{begun},"));
    matching(typed, value_candidates(&format!("{key}={begun}"), key))
}

fn key_candidates(end: &str) -> Vec<CompletionCandidate> {
    let mut seen = BTreeSet::new();
    let candidate = |setting: &SettingInfo| {
        CompletionCandidate::new(format!("{}{end}", setting.written())).help(Some(setting.about.clone().into()))
    };
    let is_value = |setting: &&SettingInfo| setting.accepts != Accepts::Section;
    SettingInfo::all().iter().filter(is_value).filter(|setting| seen.insert(setting.written())).map(candidate).collect()
}

/// The names that a setting may have, and its default.
fn value_candidates(before: &str, key: &str) -> Vec<CompletionCandidate> {
    let mut candidates = Vec::new();
    for setting in SettingInfo::named(key) {
        match &setting.accepts {
            Accepts::Choice { values } => {
                let named = values.iter().filter(|choice| matches!(choice.holds, Holds::Nothing | Holds::Settings));
                candidates.extend(named.map(|choice| {
                    CompletionCandidate::new(format!("{before}{}", choice.name)).help(Some(choice.about.clone().into()))
                }));
            }
            Accepts::Flag => candidates.extend(["true", "false"].map(|name| CompletionCandidate::new(format!("{before}{name}")))),
            other => candidates.extend(setting.default().map(|default| {
                let help = format!("the default; {}", other.words());
                CompletionCandidate::new(format!("{before}{default}")).help(Some(help.into()))
            })),
        }
    }
    candidates
}

/// Files and folders.
fn paths(typed: &OsStr) -> Vec<CompletionCandidate> {
    use clap_complete::engine::{PathCompleter, ValueCompleter};
    PathCompleter::any().complete(typed)
}
