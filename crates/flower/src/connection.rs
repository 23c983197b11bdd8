//! The calls of Flower's Fleet API: protobuf over HTTP, each signed with the node's key.
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

use crate::key::Key;
use crate::wire::{
    ActivateNodeRequest, ConfirmMessageRequest, DeactivateNodeRequest, Empty, HeartbeatRequest, HeartbeatResponse,
    NodeIdResponse, NodeReference, PullMessagesRequest, PullMessagesResponse, PullObjectRequest, PullObjectResponse,
    PushMessagesRequest, PushMessagesResponse, PushObjectRequest, PushObjectResponse, RegisterNodeRequest,
};
use crate::{Error, Result};

/// The address of a SuperLink, and whether it uses TLS.
#[derive(Clone, Debug)]
pub struct SuperLinkAddress {
    /// `host:port`.
    pub host: String,
    /// The certificates that TLS accepts; nothing means plain HTTP.
    pub tls: Option<RootCertificates>,
}

/// The root certificates by which the SuperLink's own certificate is verified.
#[derive(Clone, Debug)]
pub enum RootCertificates {
    /// Those of the operating system.
    System,
    /// These.
    Given(Vec<Certificate<'static>>),
}

impl RootCertificates {
    /// The certificates in a PEM file.
    pub fn read(path: &Path) -> Result<Self> {
        let pem = fs::read(path).map_err(Error::file(path, "read it"))?;
        let certificates: Vec<_> = ureq::tls::parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        let problem = "it contains no certificate in PEM format";
        if certificates.is_empty() { Err(Error::damaged(path, problem)) } else { Ok(Self::Given(certificates)) }
    }
}

/// The result of registering a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The node is new and has this id.
    New(u64),
    /// The node was registered before.
    Known,
    /// The SuperLink accepts only nodes whose keys its operator has registered.
    Manual,
}

/// A connection to a SuperLink.
pub struct Connection {
    base: String,
    is_encrypted: bool,
    agent: Agent,
    key: Key,
    /// How many calls were answered.
    answered: AtomicU64,
}

/// A chunk of an array has 5 MiB; no object that a SuperLink sends is much larger.
const LARGEST_OBJECT: u64 = 16 << 20;
/// All other responses consist of ids and numbers: this is enough for those of 50,000 objects. Decoded they take many times as much.
const LARGEST_RESPONSE: u64 = 4 << 20;
/// The call whose response is an object.
const PULL_OBJECT: &str = "pull-object";
/// Part of the response to a key that is registered already.
const KEY_IN_USE: &str = "\"code\":23,";
/// For connecting, and for the first byte of a response.
const TIMEOUT: Duration = Duration::from_secs(30);
/// For transferring the largest chunk: a connection of 200 kbit/s is slow, but usable.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(300);

impl Connection {
    /// Prepares a connection; nothing is sent yet.
    pub fn new(address: &SuperLinkAddress, key: Key) -> Self {
        let is_encrypted = address.tls.is_some();
        let scheme = if is_encrypted { "https" } else { "http" };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(Some(TIMEOUT))
            .timeout_connect(Some(TIMEOUT))
            .timeout_send_body(Some(TRANSFER_TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_recv_body(Some(TRANSFER_TIMEOUT));
        if let Some(certificates) = &address.tls {
            config = config.tls_config(TlsConfig::builder().root_certs(roots(certificates)).build());
        }
        let base = format!("{scheme}://{}/v1/fleet", address.host);
        Self { base, is_encrypted, agent: config.build().into(), key, answered: AtomicU64::new(0) }
    }

    /// How many calls the SuperLink has answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Registers the node.
    pub fn register(&self) -> Result<Registration> {
        let request = RegisterNodeRequest { public_key: self.key.public_pem().into() };
        match self.call::<NodeIdResponse>("register-node", &request) {
            Ok(response) => Ok(Registration::New(response.node_id)),
            Err(Error::Refused { problem, .. }) if problem.contains(KEY_IN_USE) => Ok(Registration::Known),
            Err(Error::Refused { .. }) => Ok(Registration::Manual),
            Err(error) => Err(error),
        }
    }

    /// Marks the node as active, and gives its id.
    pub fn activate(&self, heartbeat: Duration) -> Result<u64> {
        let request =
            ActivateNodeRequest { public_key: self.key.public_pem().into(), heartbeat_interval: heartbeat.as_secs_f64() };
        self.call::<NodeIdResponse>("activate-node", &request).map(|response| response.node_id)
    }

    /// Marks the node as inactive.
    pub fn deactivate(&self, node_id: u64) -> Result<()> {
        self.call::<Empty>("deactivate-node", &DeactivateNodeRequest { node_id }).map(|_| ())
    }

    /// Sends a heartbeat; tells whether the SuperLink knows the node.
    pub fn heartbeat(&self, node_id: u64, interval: Duration) -> Result<bool> {
        let request = HeartbeatRequest { node: Some(NodeReference { node_id }), heartbeat_interval: interval.as_secs_f64() };
        self.call::<HeartbeatResponse>("send-node-heartbeat", &request).map(|response| response.success)
    }

    /// New messages for the node, each listed only once.
    pub fn pull_messages(&self, node_id: u64) -> Result<PullMessagesResponse> {
        self.call("pull-messages", &PullMessagesRequest { node: Some(NodeReference { node_id }), message_ids: Vec::new() })
    }

    /// Announces replies; the response says which of their objects to upload.
    pub fn push_messages(&self, request: &PushMessagesRequest) -> Result<PushMessagesResponse> {
        self.call("push-messages", request)
    }

    /// An object's bytes; nothing while they have not arrived at the SuperLink.
    pub fn pull_object(&self, node_id: u64, run_id: u64, id: &str) -> Result<Option<Vec<u8>>> {
        let request = PullObjectRequest { node: Some(NodeReference { node_id }), run_id, object_id: id.into() };
        let response: PullObjectResponse = self.call(PULL_OBJECT, &request)?;
        match (response.object_found, response.object_available) {
            (false, _) => Err(Error::object(id, "the SuperLink does not have it")),
            (true, available) => Ok(available.then_some(response.object_content)),
        }
    }

    /// Uploads an object.
    pub fn push_object(&self, node_id: u64, run_id: u64, session: &str, id: &str, bytes: &[u8]) -> Result<()> {
        let request = PushObjectRequest {
            node: Some(NodeReference { node_id }),
            run_id,
            object_id: id.into(),
            object_content: bytes.into(),
            session_id: session.into(),
        };
        let response: PushObjectResponse = self.call("push-object", &request)?;
        // A restarted SuperLink has lost the session: the reply is announced again, in a new one.
        let not_stored = || Error::Unreachable { call: "push-object", problem: format!("object `{id}` was not stored") };
        if response.stored { Ok(()) } else { Err(not_stored()) }
    }

    /// Confirms that a message has arrived completely.
    pub fn confirm(&self, node_id: u64, run_id: u64, message: &str) -> Result<()> {
        let request = ConfirmMessageRequest { node: Some(NodeReference { node_id }), run_id, message_object_id: message.into() };
        self.call::<Empty>("confirm-message-received", &request).map(|_| ())
    }

    fn call<R: prost::Message + Default>(&self, call: &'static str, request: &impl prost::Message) -> Result<R> {
        let unreachable = |problem: String| Error::Unreachable { call, problem };
        let mut post = self.agent.post(format!("{}/{call}", self.base)).content_type("application/protobuf");
        for (name, value) in self.key.headers(SystemTime::now()) {
            post = post.header(name, value);
        }
        let mut response = post.send(&request.encode_to_vec()[..]).map_err(|error| self.failure(call, &error))?;
        let status = response.status();
        let most = if call == PULL_OBJECT { LARGEST_OBJECT } else { LARGEST_RESPONSE };
        let body = response.body_mut().with_config().limit(most).read_to_vec();
        let body = body.map_err(|error| self.failure(call, &error))?;
        let response = || format!("status {status}: {}", excerpt(&body));
        match status.as_u16() {
            200..300 => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                R::decode(&body[..]).map_err(|error| unreachable(format!("the response is malformed: {error}")))
            }
            401 => Err(Error::UnknownNode { problem: response() }),
            // Busy, or restarting.
            429 | 500.. => Err(unreachable(response())),
            _ => Err(Error::Refused { call, problem: response() }),
        }
    }

    /// The error of a call that failed on its way.
    fn failure(&self, call: &'static str, error: &ureq::Error) -> Error {
        if let ureq::Error::BodyExceedsLimit(limit) = error {
            let problem = format!("the response has more than {limit} bytes");
            // An object that is too large concerns one message; any other response may be shorter the next time.
            return if call == PULL_OBJECT { Error::Refused { call, problem } } else { Error::Unreachable { call, problem } };
        }
        match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(reason)) => {
                Error::Untrusted { problem: format!("its certificate is not accepted: {reason}") }
            }
            Some(rustls::Error::InvalidMessage(_)) => Error::Untrusted { problem: "it does not use TLS".into() },
            _ if !self.is_encrypted && is_closed_early(error) => {
                let problem = format!("{error}; perhaps the SuperLink uses TLS: then leave `--insecure` out");
                Error::Unreachable { call, problem }
            }
            _ => Error::Unreachable { call, problem: error.to_string() },
        }
    }
}

/// Whether the SuperLink closed the connection without a response.
fn is_closed_early(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
}

/// The reason of a TLS handshake that failed.
fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

fn roots(certificates: &RootCertificates) -> RootCerts {
    match certificates {
        RootCertificates::System => RootCerts::PlatformVerifier,
        RootCertificates::Given(certificates) => RootCerts::new_with_certs(certificates),
    }
}

/// The beginning of a response, as printable text.
fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().filter(|character| !character.is_control()).take(200).collect()
}
