//! A federation on digits, and the requests of its server.
use std::fs;
use std::process::Command;
use std::time::SystemTime;

use fedeq::node::Terms;
use fedeq_core::{ClientTask, Params, Request, Weights};
use fedeq_flower::envelope::Envelope;
use fedeq_flower::message::Message;
use fedeq_flower::record::Content;
use fedeq_flower::wire::MessageMetadata;
use fedeq_run::agreement::{Agreement, AgreementFingerprint};
use fedeq_run::experiment::Experiment;

use super::superlink::NODE;

/// What `fedeq init-federation` wrote.
pub(crate) struct App {
    pub(crate) experiment: String,
    pub(crate) federation: String,
    /// By which nodes accept it.
    pub(crate) fingerprint: AgreementFingerprint,
    rounds: u64,
    rho: Option<f64>,
    /// The weights of the server.
    pub(crate) theta: Weights,
}

/// Small, and with a penalty that is neither 0 nor 1, which hide mistakes in the dual.
const SETTINGS: [&str; 9] = [
    "model=deq-mlp",
    "method.rho=0.3",
    "plan.rounds=3",
    "plan.evaluate_every=1",
    "plan.sampling.fraction=1",
    "data.partition.clients=5",
    "data.limit.train=20",
    "training.epochs=1",
    "training.personal_epochs=1",
];

/// The experiment's settings as arguments.
pub(crate) fn settings() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(|setting| ["--set", setting])
}

impl App {
    /// Writes an app and reads it.
    pub(crate) fn write() -> Self {
        Self::with(settings())
    }

    /// Writes an app of more rounds and reads it.
    pub(crate) fn of_rounds(rounds: u64) -> Self {
        let rounds = format!("plan.rounds={rounds}");
        let mut arguments: Vec<&str> = settings().map(|word| word as &str).collect();
        arguments.extend(["--set", &rounds]);
        Self::with(arguments.into_iter())
    }

    /// Writes an app with some more settings and reads it; of another method, without what only FeDEQ has.
    pub(crate) fn small(more: &[&str]) -> Self {
        let is_fedeq = !more.iter().any(|setting| setting.starts_with("method="));
        let kept = SETTINGS.into_iter().filter(|setting| is_fedeq || !setting.starts_with("method."));
        Self::with(kept.chain(more.iter().copied()).flat_map(|setting| ["--set", setting]))
    }

    /// The terms of an owner who has accepted it.
    pub(crate) fn terms(&self) -> Terms {
        Terms::accepting(self.fingerprint.clone())
    }

    /// Writes an app of another experiment and reads it.
    pub(crate) fn with<'a>(arguments: impl Iterator<Item = &'a str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let app = folder.path().join("app");
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
        command.args(["init-federation", "--out"]).arg(&app).env_remove("FEDEQ_DATA");
        command.args(arguments);
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let plan: serde_json::Value = serde_json::from_slice(&fs::read(app.join("plan.json")).expect("a plan")).expect("JSON");
        let (theta, _) = Params::from_bytes(&fs::read(app.join("theta.safetensors")).expect("weights")).expect("safetensors");
        let experiment = fs::read_to_string(app.join("experiment.toml")).expect("an experiment");
        let resolved = Experiment::from_resolved(&experiment).expect("a sound experiment");
        Self {
            experiment,
            federation: plan["federation"].as_str().expect("a name").into(),
            fingerprint: Agreement::read(&app).and_then(|agreement| agreement.fingerprint()).expect("an agreement"),
            rounds: plan["summary"]["rounds"].as_u64().expect("a number"),
            rho: resolved.method.algorithm().initial_rho(),
            theta: Weights::unpacked(&theta),
        }
    }

    /// The request of a round.
    pub(crate) fn envelope(&self, task: ClientTask, round: u64) -> Envelope {
        let request = Request { task, round, rounds: self.rounds, rho: self.rho, weights: self.theta.clone() };
        Envelope::new(&self.federation, &self.experiment, request)
    }

    /// The message that asks to train in a round.
    pub(crate) fn train(&self, round: u64) -> Message {
        let mut request = message("train", self.envelope(ClientTask::Train, round).write().expect("plain"));
        request.head.group_id = round.to_string();
        request
    }

    /// The message that asks to evaluate after some rounds.
    pub(crate) fn evaluate(&self, round: u64) -> Message {
        message("evaluate", self.envelope(ClientTask::Evaluate, round).write().expect("plain"))
    }
}

/// A message for the node, created now.
pub(crate) fn message(kind: &str, content: Content) -> Message {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let head = MessageMetadata {
        run_id: 3,
        src_node_id: 1,
        dst_node_id: NODE,
        group_id: "1".into(),
        ttl: 3600.0,
        message_type: kind.into(),
        created_at: now,
        ..MessageMetadata::default()
    };
    Message { head, content: Ok(content) }
}
