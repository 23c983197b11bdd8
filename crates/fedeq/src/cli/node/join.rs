//! `fedeq node --superlink ...`.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_core::ClientTask;
use fedeq_flower::connection::{Connection, RootCertificates, SuperLinkAddress};
use fedeq_flower::limit;
use fedeq_flower::node::{Node, Notice};
use fedeq_flower::store::NodeStore;

use super::refused;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::tell;
use crate::cli::settings::{is_interrupted, listen_for_interrupts};
use crate::node::NodeWorker;

#[derive(Args, Debug)]
pub(super) struct Join {
    /// The address of the SuperLink
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    superlink: String,
    /// Use plain HTTP instead of TLS; only on a machine or a network that you trust
    #[arg(long, conflicts_with = "roots")]
    insecure: bool,
    /// Root certificates, as PEM, that the SuperLink's certificate must be signed by [default: those of the system]
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
    /// Which client of the federation this is, from 0
    #[arg(long, value_name = "N")]
    client: usize,
    /// The folder for key, model and dual
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The largest size of a message, as sent and unpacked, in MB
    #[arg(long, value_name = "MB", default_value_t = (limit::DEFAULT >> 20) as u32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    message_limit: u32,
}

pub(super) fn run(arguments: &Join, data: &Path) -> Outcome<()> {
    let store = NodeStore::open(&arguments.state).map_err(refused)?;
    store.claim(arguments.client as u64).map_err(refused)?;
    let key = store.key().map_err(refused)?;
    let connection = Connection::new(&arguments.address()?, key);
    let mut worker = NodeWorker::new(arguments.client, data.to_owned());
    listen_for_interrupts("the current request");
    let mut notify = |notice| tell(&printable(&describe(&notice)));
    let message_limit = usize::try_from(u64::from(arguments.message_limit) << 20).unwrap_or(usize::MAX);
    let stopped = &is_interrupted;
    let mut node =
        Node { connection: &connection, store: &store, worker: &mut worker, notify: &mut notify, message_limit, stopped };
    // After a panic the worker may be in any state: it is not used again, and the process ends.
    catch_unwind(AssertUnwindSafe(|| node.serve())).map_err(|_| panicked())?.map_err(refused)
}

/// The work on a request panicked; the panic message was printed above.
fn panicked() -> Failure {
    let problem = "the node crashed while it worked on a request, and ends; it refuses this request from now on";
    Failure::work(problem, "start it again with the same `--state`, and report the message above")
}

impl Join {
    fn address(&self) -> Outcome<SuperLinkAddress> {
        let host = self.superlink.clone();
        let tls = match (&self.roots, self.insecure) {
            (_, true) => None,
            (Some(path), _) => Some(RootCertificates::read(path).map_err(refused)?),
            (None, _) => Some(RootCertificates::System),
        };
        Ok(SuperLinkAddress { host, tls })
    }
}

/// A text that may come from a server: without control characters, and of limited length.
fn printable(text: &str) -> String {
    const LONGEST: usize = 2000;
    text.chars().take(LONGEST).map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Checks the form of an address.
fn host_and_port(text: &str) -> Result<String, String> {
    let is_address = |(host, port): (&str, &str)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok();
    if text.rsplit_once(':').is_some_and(is_address) { Ok(text.into()) } else { Err("write it as `fl.example.org:8000`".into()) }
}

fn describe(notice: &Notice) -> String {
    match notice {
        Notice::Joined(id) => format!("joined as node {id}"),
        Notice::Unreachable(problem, seconds) => format!("{problem}; trying again in {seconds:.1} s"),
        Notice::Replied { task, round, seconds, .. } => replied(*task, *round, *seconds),
        Notice::Refused(problem) => format!("refused a message: {problem}"),
    }
}

fn replied(task: ClientTask, round: u64, seconds: f64) -> String {
    let how = if seconds == 0.0 { "before, reply repeated".into() } else { format!("in {seconds:.1} s") };
    match task {
        ClientTask::Train => format!("round {}: trained {how}", round + 1),
        ClientTask::Evaluate | ClientTask::Measure => format!("after round {round}: evaluated {how}"),
        ClientTask::Finish | ClientTask::Adopt => format!("after round {round}: updated {how}"),
    }
}
