//! `fedeq node --superlink ...`.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_core::Task;
use fedeq_flower::fleet::{Address, Fleet, Trust};
use fedeq_flower::limit;
use fedeq_flower::node::{Node, Notice};
use fedeq_flower::vault::Vault;

use super::refused;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::tell;
use crate::cli::settings::{is_interrupted, listen_for_interrupts};
use crate::node::Member;

#[derive(Args, Debug)]
pub(super) struct Join {
    /// The Fleet API of a SuperLink
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    superlink: String,
    /// Speak plain HTTP, on a machine or a network that you trust
    #[arg(long, conflicts_with = "roots")]
    insecure: bool,
    /// Root certificates, as PEM, that vouch for the SuperLink [default: those of the system]
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
    /// Which client of the federation this is, from 0
    #[arg(long, value_name = "N")]
    client: usize,
    /// The folder for key, model and dual
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The most that one message may take, on its way and unpacked, in MB
    #[arg(long, value_name = "MB", default_value_t = (limit::USUAL >> 20) as u32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    message_limit: u32,
}

pub(super) fn run(arguments: &Join, data: &Path) -> Outcome<()> {
    let vault = Vault::open(&arguments.state).map_err(refused)?;
    vault.claim(arguments.client as u64).map_err(refused)?;
    let key = vault.key().map_err(refused)?;
    let fleet = Fleet::new(&arguments.address()?, key);
    let mut member = Member::new(arguments.client, data.to_owned());
    listen_for_interrupts("the work at hand");
    let mut say = |notice| tell(&printable(&words(&notice)));
    let message_limit = usize::try_from(u64::from(arguments.message_limit) << 20).unwrap_or(usize::MAX);
    let stopped = &is_interrupted;
    let mut node = Node { fleet: &fleet, vault: &vault, worker: &mut member, tell: &mut say, message_limit, stopped };
    // Whatever has panicked may be half done: nothing of it is used again, and the process ends.
    catch_unwind(AssertUnwindSafe(|| node.serve())).map_err(|_| panicked())?.map_err(refused)
}

/// The work on a question panicked; what exactly happened stands above.
fn panicked() -> Failure {
    let problem = "the node failed while it worked on a question, and ends; from now on it refuses this question";
    Failure::work(problem, "start it again with the same `--state`, and report what is said above")
}

impl Join {
    fn address(&self) -> Outcome<Address> {
        let host = self.superlink.clone();
        let trust = match (&self.roots, self.insecure) {
            (_, true) => None,
            (Some(path), _) => Some(Trust::read(path).map_err(refused)?),
            (None, _) => Some(Trust::System),
        };
        Ok(Address { host, trust })
    }
}

/// Words that may come from elsewhere, without what moves a cursor, and not without end.
fn printable(words: &str) -> String {
    const LONGEST: usize = 2000;
    words.chars().take(LONGEST).map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Accepts only what can be called, before anything is done.
fn host_and_port(text: &str) -> Result<String, String> {
    let is_address = |(host, port): (&str, &str)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok();
    if text.rsplit_once(':').is_some_and(is_address) { Ok(text.into()) } else { Err("write it as `fl.example.org:8000`".into()) }
}

fn words(notice: &Notice) -> String {
    match notice {
        Notice::Joined(id) => format!("joined as node {id}"),
        Notice::Away(problem, seconds) => format!("{problem}; trying again in {seconds:.1} s"),
        Notice::Answered { task, round, seconds, .. } => answered(*task, *round, *seconds),
        Notice::Refused(problem) => format!("refused a message: {problem}"),
    }
}

fn answered(task: Task, round: u64, seconds: f64) -> String {
    let how = if seconds == 0.0 { "as before".into() } else { format!("in {seconds:.1} s") };
    match task {
        Task::Train => format!("round {}: trained {how}", round + 1),
        Task::Evaluate | Task::Measure => format!("after round {round}: judged {how}"),
        Task::Finish | Task::Adopt => format!("after round {round}: changed {how}"),
    }
}
