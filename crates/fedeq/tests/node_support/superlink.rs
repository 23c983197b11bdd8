//! A fake SuperLink: it hands out the requests of a test, fails on demand, and records every byte it receives.
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use fedeq_flower::message::Message;
use fedeq_flower::node::Refusal;
use fedeq_flower::object::{Bundle, Id, ids_of};
use fedeq_flower::wire::{
    self, HeartbeatResponse, NodeIdResponse, ObjectTree, PullMessagesResponse, PullObjectRequest, PullObjectResponse,
    PushMessagesRequest, PushMessagesResponse, PushObjectRequest, PushObjectResponse,
};
use prost::Message as _;

/// The id of the only node.
pub(crate) const NODE: u64 = 7;

/// A SuperLink for one node.
pub(crate) struct SuperLink {
    pub(crate) address: String,
    state: Arc<Mutex<LinkState>>,
}

#[derive(Default)]
pub(crate) struct LinkState {
    /// Requests that were not yet listed to the node.
    requests: VecDeque<(wire::MessageHeader, ObjectTree)>,
    /// The objects of the requests.
    pub(crate) objects: BTreeMap<Id, Vec<u8>>,
    /// The objects that the node has uploaded.
    received: Bundle,
    /// The replies that the node has announced, in order, and the objects of the last one that have not arrived.
    replies: Vec<Id>,
    missing: BTreeSet<Id>,
    /// Every call and its body.
    pub(crate) calls: Vec<(String, Vec<u8>)>,
    /// The HTTP headers of all calls.
    pub(crate) headers: Vec<Vec<u8>>,
    /// Calls that fail: HTTP status, and how often.
    pub(crate) failures: BTreeMap<&'static str, (u16, usize)>,
}

impl SuperLink {
    /// Listens on a free port until the test ends.
    pub(crate) fn start() -> Self {
        let state = Arc::new(Mutex::new(LinkState::default()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        listener.set_nonblocking(true).expect("a non-blocking socket");
        let app = Router::new()
            .route("/v1/fleet/{call}", post(respond))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&state));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                axum::serve(listener, app).await.expect("it serves");
            });
        });
        Self { address, state }
    }

    /// Its current state.
    pub(crate) fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().expect("no test thread fails while it holds it")
    }

    /// Sends a request to the node; gives the message's id.
    pub(crate) fn send(&self, message: &Message) -> Id {
        let mut bundle = Bundle::default();
        let id = message.deflate(&mut bundle);
        let tree = bundle.tree(&id).expect("whole");
        let mut state = self.state();
        state.objects.extend(bundle.iter().map(|(id, bytes)| (id.to_owned(), bytes.to_vec())));
        state.announce(message, tree);
        id
    }

    /// Sends a message of hand-made objects.
    pub(crate) fn send_objects(&self, message: &Message, id: &str, bundle: &Bundle) {
        let mut state = self.state();
        state.objects.extend(bundle.iter().map(|(id, bytes)| (id.to_owned(), bytes.to_vec())));
        state.announce(message, bundle.tree(id).expect("whole"));
    }

    /// How many replies have arrived completely.
    pub(crate) fn replies(&self) -> usize {
        let state = self.state();
        state.replies.len() - usize::from(!state.missing.is_empty())
    }

    /// A reply by its number.
    pub(crate) fn reply(&self, number: usize) -> Message {
        let state = self.state();
        Message::inflate(&state.replies[number], &state.received).expect("the node sends complete messages")
    }

    /// All replies that have arrived completely, each once; a node that was killed leaves incomplete ones.
    pub(crate) fn complete_replies(&self) -> Vec<Message> {
        let state = self.state();
        let ids: BTreeSet<&Id> = state.replies.iter().collect();
        ids.into_iter().filter_map(|id| Message::inflate(id, &state.received).ok()).collect()
    }

    /// The id of a reply.
    pub(crate) fn reply_id(&self, number: usize) -> Id {
        self.state().replies[number].clone()
    }

    /// Which of its fixed sentences the node refused with.
    pub(crate) fn refusal(&self, number: usize) -> Refusal {
        let reason = self.reply(number).content.expect_err("a refusal").reason;
        Refusal::ALL
            .into_iter()
            .find(|refusal| refusal.words() == reason)
            .unwrap_or_else(|| panic!("not a fixed sentence: {reason}"))
    }
}

impl LinkState {
    /// Lists a request to the node without checking it.
    pub(crate) fn announce(&mut self, message: &Message, tree: ObjectTree) {
        let head = wire::MessageMetadata { message_id: tree.object_id.clone(), ..message.head.clone() };
        self.requests.push_back((wire::MessageHeader { metadata: Some(head), content: None, error: None }, tree));
    }

    fn respond(&mut self, call: &str, body: &[u8]) -> Vec<u8> {
        match call {
            "register-node" | "activate-node" => NodeIdResponse { node_id: NODE }.encode_to_vec(),
            "send-node-heartbeat" => HeartbeatResponse { success: true }.encode_to_vec(),
            "pull-messages" => self.pull_messages().encode_to_vec(),
            "pull-object" => self.pull_object(&read(body)).encode_to_vec(),
            "push-messages" => self.push_messages(&read(body)).encode_to_vec(),
            "push-object" => self.push_object(read(body)).encode_to_vec(),
            "confirm-message-received" | "deactivate-node" => Vec::new(),
            other => panic!("unknown call `{other}`"),
        }
    }

    fn pull_messages(&mut self) -> PullMessagesResponse {
        let (messages, trees) = self.requests.pop_front().into_iter().unzip();
        PullMessagesResponse { messages, trees }
    }

    fn pull_object(&self, request: &PullObjectRequest) -> PullObjectResponse {
        let content = self.objects.get(&request.object_id).cloned();
        let is_known = content.is_some();
        PullObjectResponse { object_found: is_known, object_available: is_known, object_content: content.unwrap_or_default() }
    }

    fn push_messages(&mut self, request: &PushMessagesRequest) -> PushMessagesResponse {
        let [tree] = &request.trees[..] else { panic!("one message at a time") };
        let objects_to_push = ids_of(tree, 1000).expect("few");
        self.replies.push(tree.object_id.clone());
        self.missing = objects_to_push.iter().cloned().collect();
        PushMessagesResponse { objects_to_push, session_id: "session".into(), ..PushMessagesResponse::default() }
    }

    fn push_object(&mut self, request: PushObjectRequest) -> PushObjectResponse {
        assert_eq!(request.session_id, "session");
        let stored = self.missing.remove(&request.object_id);
        self.received.receive(request.object_id, request.object_content);
        PushObjectResponse { stored }
    }

    /// The status of a call that should fail.
    fn failure(&mut self, call: &str) -> Option<u16> {
        let (status, times) = self.failures.get_mut(call)?;
        *times = times.checked_sub(1)?;
        Some(*status)
    }
}

fn read<M: prost::Message + Default>(body: &[u8]) -> M {
    M::decode(body).expect("the node sends complete messages")
}

async fn respond(
    State(state): State<Arc<Mutex<LinkState>>>,
    Path(call): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Vec<u8>) {
    let mut state = state.lock().expect("no test thread fails while it holds it");
    state.headers.extend(headers.values().map(|value| value.as_bytes().to_vec()));
    state.calls.push((call.clone(), body.to_vec()));
    match state.failure(&call) {
        Some(status) => (StatusCode::from_u16(status).expect("a status"), Vec::new()),
        None => (StatusCode::OK, state.respond(&call, &body)),
    }
}
