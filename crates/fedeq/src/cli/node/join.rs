//! `fedeq node --superlink ...`.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fedeq_core::{ClientTask, Disclosure};
use fedeq_flower::connection::{Connection, RootCertificates, SuperLinkAddress};
use fedeq_flower::limit::{self, NodeLimits};
use fedeq_flower::node::{Node, Notice};
use fedeq_flower::store::NodeStore;
use fedeq_run::agreement::{AgreementFingerprint, SigningKeys};
use fedeq_run::machine::total_memory;

use super::guard::Guard;
use super::refused;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::tell;
use crate::cli::settings::{is_interrupted, listen_for_stops};
use crate::node::{NodeWorker, Terms};

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
    /// The fingerprint of the one experiment to carry out, which `fedeq node inspect` shows; `none` refuses all, and keeps what servers ask for to be inspected
    #[arg(long, value_name = "FINGERPRINT", value_parser = accepted)]
    accept: Option<Accepted>,
    /// How much to tell the server beside the weights: everything, coarse (rounded, no times) or none
    #[arg(long, value_name = "HOW", default_value = Disclosure::NAMES[0], value_parser = Disclosure::NAMES)]
    metrics: String,
    /// The clients that the node knows by their keys, a line for each as `fedeq node key --signing --client N` prints it: what it sends is summed in secret with these clients alone,
    /// and experiments with others are refused
    #[arg(long, value_name = "FILE")]
    signing_keys: Option<PathBuf>,
}

/// What the experiment is.
#[derive(Clone, Debug)]
enum Accepted {
    /// None.
    None,
    /// This one.
    One(AgreementFingerprint),
}

fn accepted(text: &str) -> Result<Accepted, String> {
    if text == "none" { Ok(Accepted::None) } else { text.parse().map(Accepted::One) }
}

/// What a node allows, whatever it has accepted.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
pub(super) struct Limits {
    /// Train only with at least this many samples
    #[arg(long, value_name = "N", default_value_t = Terms::default().least_samples)]
    min_samples: usize,
    /// Train only with at least this many samples in every gradient step
    #[arg(long, value_name = "N", default_value_t = Terms::default().least_batch)]
    min_batch: usize,
    /// Train for at most this many epochs a round
    #[arg(long, value_name = "N", default_value_t = Terms::default().most_epochs)]
    max_epochs: usize,
    /// Give up a request that takes longer, and drop it
    #[arg(long, value_name = "S", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    max_seconds: u64,
    /// Give up a request that takes more memory, in MB, and drop it; on Linux only [default: three quarters of the machine's]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..))]
    max_memory: Option<u32>,
    /// The largest size of the node's folder, in MB
    #[arg(long, value_name = "MB", default_value_t = (NodeLimits::default().disk >> 20) as u32, value_parser = clap::value_parser!(u32).range(1..))]
    max_disk: u32,
    /// Take part in at most this many federations of the experiment
    #[arg(long, value_name = "N", default_value_t = NodeLimits::default().federations)]
    max_federations: usize,
    /// Drop a request after the process has ended without an error message (killed, out of memory, power cut) this many times while it worked on it
    #[arg(long, value_name = "N", default_value_t = NodeLimits::default().deaths, value_parser = clap::value_parser!(u32).range(1..))]
    max_deaths: u32,
    /// The largest size of a message, as sent and unpacked, in MB
    #[arg(long, value_name = "MB", default_value_t = (limit::DEFAULT >> 20) as u32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    message_limit: u32,
}

pub(super) fn run(arguments: &Join, limits: &Limits, data: &Path) -> Outcome<()> {
    let terms = arguments.terms(limits)?;
    let store = NodeStore::open(&arguments.state).map_err(refused)?;
    store.claim(arguments.client as u64).map_err(refused)?;
    let key = store.key().map_err(refused)?;
    let signing = store.signing_key().map_err(refused)?;
    let connection = Connection::new(&arguments.address()?, key);
    let mut worker = NodeWorker::new(arguments.client, data.to_owned(), terms).signing_with(signing);
    listen_for_stops();
    limits.guard(&store).start();
    let mut notify = |notice| tell(&printable(&describe(&notice)));
    let (limits, stopped) = (limits.node(), &is_interrupted);
    let mut node = Node { connection: &connection, store: &store, worker: &mut worker, notify: &mut notify, limits, stopped };
    // After a panic the worker may be in any state: it is not used again, and the process ends.
    catch_unwind(AssertUnwindSafe(|| node.serve())).map_err(|_| panicked())?.map_err(refused)
}

impl Limits {
    fn node(&self) -> NodeLimits {
        let message = usize::try_from(u64::from(self.message_limit) << 20).unwrap_or(usize::MAX);
        let disk = u64::from(self.max_disk) << 20;
        NodeLimits { message, disk, federations: self.max_federations, deaths: self.max_deaths, ..NodeLimits::default() }
    }

    fn guard(&self, store: &NodeStore) -> Guard {
        let usual = || total_memory().map(|bytes| bytes / 4 * 3);
        let most_memory = self.max_memory.map(|megabytes| u64::from(megabytes) << 20).or_else(usual).unwrap_or(u64::MAX);
        Guard { activity: store.activity(), most_time: Duration::from_secs(self.max_seconds), most_memory }
    }
}

/// The work on a request panicked; the panic message was printed above.
fn panicked() -> Failure {
    let problem = "the node crashed while it worked on a request, and ends; it refuses this request from now on";
    Failure::work(problem, "start it again with the same `--state`, and report the message above")
}

impl Join {
    /// What the owner of the node has agreed to; they must say so.
    fn terms(&self, limits: &Limits) -> Outcome<Terms> {
        let accepted = match &self.accept {
            Some(Accepted::One(fingerprint)) => Some(fingerprint.clone()),
            Some(Accepted::None) => None,
            None => return Err(self.nothing_accepted()),
        };
        let Limits { min_samples, min_batch, max_epochs, .. } = *limits;
        let disclosure = Disclosure::named(&self.metrics).unwrap_or_default();
        let known_keys = self.signing_keys.as_deref().map(SigningKeys::read).transpose().map_err(Failure::refused)?;
        Ok(Terms {
            accepted,
            disclosure,
            least_samples: min_samples,
            least_batch: min_batch,
            most_epochs: max_epochs,
            known_keys,
        })
    }

    fn nothing_accepted(&self) -> Failure {
        let asked = NodeStore::proposals(&self.state);
        let hint = match &asked[..] {
            [] => "ask the operator of the federation for its `agreement.toml`, read what `fedeq node inspect agreement.toml` shows, and give its fingerprint; \
                   or start with `--accept none` to see what the server asks for"
                .into(),
            [latest, ..] => format!(
                "this node was asked for `{}`: read what `fedeq node inspect --state {}` shows, and give the fingerprint with `--accept`",
                latest.name,
                self.state.display()
            ),
        };
        Failure::request("no experiment is accepted: a node carries out one that its owner has agreed to", hint)
    }

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
        ClientTask::Aggregate => format!("round {}: secure aggregation {how}", round + 1),
    }
}
