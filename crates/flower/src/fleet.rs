//! The calls a node makes: protobuf over HTTP, each signed with the node's key.
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

use crate::key::Key;
use crate::wire::{
    ActivateNodeRequest, ConfirmMessageRequest, DeactivateNodeRequest, HeartbeatRequest, HeartbeatResponse, Node, NodeIdResponse,
    Nothing, PullMessagesRequest, PullMessagesResponse, PullObjectRequest, PullObjectResponse, PushMessagesRequest,
    PushMessagesResponse, PushObjectRequest, PushObjectResponse, RegisterNodeRequest,
};
use crate::{Error, Result};

/// Where a SuperLink is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Address {
    /// `host:port`.
    pub host: String,
    /// How it proves to be itself; nothing means that nobody does.
    pub trust: Option<Trust>,
}

/// Whom to believe that the SuperLink is the SuperLink.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The certificates the system trusts.
    System,
    /// These certificates.
    Certificates(Vec<Certificate<'static>>),
}

impl Trust {
    /// The certificates of a file, as PEM.
    pub fn read(path: &Path) -> Result<Self> {
        let pem = fs::read(path).map_err(Error::file(path, "read it"))?;
        let certificates: Vec<_> = ureq::tls::parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        let problem = "it holds no certificate in PEM";
        if certificates.is_empty() { Err(Error::damaged(path, problem)) } else { Ok(Self::Certificates(certificates)) }
    }
}

/// How a SuperLink takes a node that makes itself known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// It has not seen it before, and gives it this number.
    New(u64),
    /// It has.
    Known,
    /// It takes nobody but those whose keys were registered by hand.
    Closed,
}

/// A SuperLink, as a node sees it.
pub struct Fleet {
    base: String,
    is_encrypted: bool,
    agent: Agent,
    key: Key,
    /// Calls that were answered.
    answered: AtomicU64,
}

/// A piece of an array has 5 MiB; no object that a SuperLink brings is much larger.
const LARGEST_OBJECT: u64 = 16 << 20;
/// Everything else that a SuperLink answers is ids and numbers: those of 50,000 objects. Unpacked they take many times as much.
const LARGEST_ANSWER: u64 = 4 << 20;
/// The call whose answer is an object.
const PULL_OBJECT: &str = "pull-object";
/// In the words of a SuperLink that knows a key already.
const KEY_IN_USE: &str = "\"code\":23,";
/// For a SuperLink to be found and to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// For the largest piece to come through: a line of 200 kbit/s is slow, but not broken.
const PATIENCE_WITH_LINES: Duration = Duration::from_secs(300);

impl Fleet {
    /// Makes no call yet.
    pub fn new(address: &Address, key: Key) -> Self {
        let is_encrypted = address.trust.is_some();
        let scheme = if is_encrypted { "https" } else { "http" };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(Some(PATIENCE))
            .timeout_connect(Some(PATIENCE))
            .timeout_send_body(Some(PATIENCE_WITH_LINES))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_recv_body(Some(PATIENCE_WITH_LINES));
        if let Some(trust) = &address.trust {
            config = config.tls_config(TlsConfig::builder().root_certs(roots(trust)).build());
        }
        let base = format!("{scheme}://{}/v1/fleet", address.host);
        Self { base, is_encrypted, agent: config.build().into(), key, answered: AtomicU64::new(0) }
    }

    /// How many calls the SuperLink has answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Makes the node known.
    pub fn register(&self) -> Result<Welcome> {
        let request = RegisterNodeRequest { public_key: self.key.public_pem().into() };
        match self.call::<NodeIdResponse>("register-node", &request) {
            Ok(response) => Ok(Welcome::New(response.node_id)),
            Err(Error::Refused { problem, .. }) if problem.contains(KEY_IN_USE) => Ok(Welcome::Known),
            Err(Error::Refused { .. }) => Ok(Welcome::Closed),
            Err(error) => Err(error),
        }
    }

    /// Says that the node is there, and gives its number.
    pub fn activate(&self, heartbeat: Duration) -> Result<u64> {
        let request =
            ActivateNodeRequest { public_key: self.key.public_pem().into(), heartbeat_interval: heartbeat.as_secs_f64() };
        self.call::<NodeIdResponse>("activate-node", &request).map(|response| response.node_id)
    }

    /// Says that the node leaves.
    pub fn deactivate(&self, node_id: u64) -> Result<()> {
        self.call::<Nothing>("deactivate-node", &DeactivateNodeRequest { node_id }).map(|_| ())
    }

    /// Says that the node is still there; tells whether it is known.
    pub fn heartbeat(&self, node_id: u64, interval: Duration) -> Result<bool> {
        let request = HeartbeatRequest { node: Some(Node { node_id }), heartbeat_interval: interval.as_secs_f64() };
        self.call::<HeartbeatResponse>("send-node-heartbeat", &request).map(|response| response.success)
    }

    /// Messages for the node.
    pub fn pull_messages(&self, node_id: u64) -> Result<PullMessagesResponse> {
        self.call("pull-messages", &PullMessagesRequest { node: Some(Node { node_id }), message_ids: Vec::new() })
    }

    /// Announces answers, and hears which of their objects are wanted.
    pub fn push_messages(&self, request: &PushMessagesRequest) -> Result<PushMessagesResponse> {
        self.call("push-messages", request)
    }

    /// An object's bytes; nothing while they are still on their way.
    pub fn pull_object(&self, node_id: u64, run_id: u64, id: &str) -> Result<Option<Vec<u8>>> {
        let request = PullObjectRequest { node: Some(Node { node_id }), run_id, object_id: id.into() };
        let response: PullObjectResponse = self.call(PULL_OBJECT, &request)?;
        match (response.object_found, response.object_available) {
            (false, _) => Err(Error::object(id, "the SuperLink does not have it")),
            (true, available) => Ok(available.then_some(response.object_content)),
        }
    }

    /// Brings an object.
    pub fn push_object(&self, node_id: u64, run_id: u64, session: &str, id: &str, bytes: &[u8]) -> Result<()> {
        let request = PushObjectRequest {
            node: Some(Node { node_id }),
            run_id,
            object_id: id.into(),
            object_content: bytes.into(),
            session_id: session.into(),
        };
        let response: PushObjectResponse = self.call("push-object", &request)?;
        // The session may have ended with a SuperLink that was restarted: the answer is announced again, in a new one.
        let away = || Error::Away { call: "push-object", problem: format!("it did not keep `{id}`") };
        if response.stored { Ok(()) } else { Err(away()) }
    }

    /// Says that a message has arrived whole.
    pub fn confirm(&self, node_id: u64, run_id: u64, message: &str) -> Result<()> {
        let request = ConfirmMessageRequest { node: Some(Node { node_id }), run_id, message_object_id: message.into() };
        self.call::<Nothing>("confirm-message-received", &request).map(|_| ())
    }

    fn call<R: prost::Message + Default>(&self, call: &'static str, request: &impl prost::Message) -> Result<R> {
        let away = |problem: String| Error::Away { call, problem };
        let mut post = self.agent.post(format!("{}/{call}", self.base)).content_type("application/protobuf");
        for (name, value) in self.key.headers(SystemTime::now()) {
            post = post.header(name, value);
        }
        let mut response = post.send(&request.encode_to_vec()[..]).map_err(|error| self.failed(call, &error))?;
        let status = response.status();
        let most = if call == PULL_OBJECT { LARGEST_OBJECT } else { LARGEST_ANSWER };
        let body = response.body_mut().with_config().limit(most).read_to_vec();
        let body = body.map_err(|error| self.failed(call, &error))?;
        let said = || format!("status {status}: {}", excerpt(&body));
        match status.as_u16() {
            200..300 => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                R::decode(&body[..]).map_err(|error| away(format!("its answer is damaged: {error}")))
            }
            401 => Err(Error::Stranger { problem: said() }),
            // Busy, or in the middle of a restart.
            429 | 500.. => Err(away(said())),
            _ => Err(Error::Refused { call, problem: said() }),
        }
    }

    /// What a call that failed on its way means.
    fn failed(&self, call: &'static str, error: &ureq::Error) -> Error {
        if let ureq::Error::BodyExceedsLimit(limit) = error {
            let problem = format!("the answer has more than {limit} bytes");
            // An object that is too large belongs to one message; a SuperLink that says too much may say less another time.
            return if call == PULL_OBJECT { Error::Refused { call, problem } } else { Error::Away { call, problem } };
        }
        match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(reason)) => {
                Error::Untrusted { problem: format!("its certificate is not accepted: {reason}") }
            }
            Some(rustls::Error::InvalidMessage(_)) => Error::Untrusted { problem: "it does not speak TLS".into() },
            _ if !self.is_encrypted && is_hung_up(error) => {
                let problem = format!("{error}, as a SuperLink with TLS does when it is spoken to without");
                Error::Away { call, problem }
            }
            _ => Error::Away { call, problem: error.to_string() },
        }
    }
}

/// Whether the other side went without an answer.
fn is_hung_up(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
}

/// The reason of a handshake that failed.
fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

fn roots(trust: &Trust) -> RootCerts {
    match trust {
        Trust::System => RootCerts::PlatformVerifier,
        Trust::Certificates(certificates) => RootCerts::new_with_certs(certificates),
    }
}

/// The beginning of an answer in words.
fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().filter(|character| !character.is_control()).take(200).collect()
}
