//! A SuperLink that fits into a test: it asks what it is told to ask, fails as it is told to fail, and remembers every byte it hears.
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

/// The number of the only node.
pub(crate) const NODE: u64 = 7;

/// A SuperLink for one node.
pub(crate) struct SuperLink {
    pub(crate) address: String,
    desk: Arc<Mutex<Desk>>,
}

#[derive(Default)]
pub(crate) struct Desk {
    /// Questions that the node has not been told of.
    questions: VecDeque<(wire::Message, ObjectTree)>,
    /// What questions are made of.
    pub(crate) objects: BTreeMap<Id, Vec<u8>>,
    /// What the node brought.
    received: Bundle,
    /// The answers that the node has announced, in their order, and what is still to come of the last one.
    answers: Vec<Id>,
    missing: BTreeSet<Id>,
    /// Every call and its body.
    pub(crate) heard: Vec<(String, Vec<u8>)>,
    /// What stood above the bodies.
    pub(crate) headers: Vec<Vec<u8>>,
    /// Calls that fail: with which status, and how often.
    pub(crate) failures: BTreeMap<&'static str, (u16, usize)>,
}

impl SuperLink {
    /// Listens on a port of its own until the test ends.
    pub(crate) fn start() -> Self {
        let desk = Arc::new(Mutex::new(Desk::default()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        listener.set_nonblocking(true).expect("a socket of tokio's");
        let app = Router::new()
            .route("/v1/fleet/{call}", post(answer))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&desk));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                axum::serve(listener, app).await.expect("it serves");
            });
        });
        Self { address, desk }
    }

    /// What is known so far.
    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().expect("no test thread fails while it holds it")
    }

    /// Asks the node something; gives the message's id.
    pub(crate) fn ask(&self, message: &Message) -> Id {
        let mut bundle = Bundle::default();
        let id = message.deflate(&mut bundle);
        let tree = bundle.tree(&id).expect("whole");
        let mut desk = self.desk();
        desk.objects.extend(bundle.iter().map(|(id, bytes)| (id.to_owned(), bytes.to_vec())));
        desk.announce(message, tree);
        id
    }

    /// Asks something that is made of other objects than a message would be.
    pub(crate) fn ask_objects(&self, message: &Message, id: &str, bundle: &Bundle) {
        let mut desk = self.desk();
        desk.objects.extend(bundle.iter().map(|(id, bytes)| (id.to_owned(), bytes.to_vec())));
        desk.announce(message, bundle.tree(id).expect("whole"));
    }

    /// How many answers have come whole.
    pub(crate) fn answered(&self) -> usize {
        let desk = self.desk();
        desk.answers.len() - usize::from(!desk.missing.is_empty())
    }

    /// An answer by its number.
    pub(crate) fn answer(&self, number: usize) -> Message {
        let desk = self.desk();
        Message::inflate(&desk.answers[number], &desk.received).expect("what a node sends is whole")
    }

    /// All answers that have come whole, each once; a node that was killed leaves others.
    pub(crate) fn whole(&self) -> Vec<Message> {
        let desk = self.desk();
        let ids: BTreeSet<&Id> = desk.answers.iter().collect();
        ids.into_iter().filter_map(|id| Message::inflate(id, &desk.received).ok()).collect()
    }

    /// The id of an answer.
    pub(crate) fn answer_id(&self, number: usize) -> Id {
        self.desk().answers[number].clone()
    }

    /// Which of its few sentences a node said when it turned a question down: it has no others.
    pub(crate) fn refusal(&self, number: usize) -> Refusal {
        let said = self.answer(number).content.expect_err("it was turned down").reason;
        let all = [Refusal::Unreadable, Refusal::Late, Refusal::TooLarge, Refusal::Unable, Refusal::Fatal];
        all.into_iter().find(|refusal| refusal.words() == said).unwrap_or_else(|| panic!("it says too much: {said}"))
    }
}

impl Desk {
    /// Tells of a question without looking at it.
    pub(crate) fn announce(&mut self, message: &Message, tree: ObjectTree) {
        let head = wire::Metadata { message_id: tree.object_id.clone(), ..message.head.clone() };
        self.questions.push_back((wire::Message { metadata: Some(head), content: None, error: None }, tree));
    }

    fn respond(&mut self, call: &str, body: &[u8]) -> Vec<u8> {
        match call {
            "register-node" | "activate-node" => NodeIdResponse { node_id: NODE }.encode_to_vec(),
            "send-node-heartbeat" => HeartbeatResponse { success: true }.encode_to_vec(),
            "pull-messages" => self.pulled().encode_to_vec(),
            "pull-object" => self.pulled_object(&read(body)).encode_to_vec(),
            "push-messages" => self.pushed(&read(body)).encode_to_vec(),
            "push-object" => self.pushed_object(read(body)).encode_to_vec(),
            "confirm-message-received" | "deactivate-node" => Vec::new(),
            other => panic!("a node has no call `{other}`"),
        }
    }

    fn pulled(&mut self) -> PullMessagesResponse {
        let (messages, trees) = self.questions.pop_front().into_iter().unzip();
        PullMessagesResponse { messages, trees }
    }

    fn pulled_object(&self, request: &PullObjectRequest) -> PullObjectResponse {
        let content = self.objects.get(&request.object_id).cloned();
        let is_there = content.is_some();
        PullObjectResponse { object_found: is_there, object_available: is_there, object_content: content.unwrap_or_default() }
    }

    fn pushed(&mut self, request: &PushMessagesRequest) -> PushMessagesResponse {
        let [tree] = &request.trees[..] else { panic!("one message at a time") };
        let objects_to_push = ids_of(tree, 1000).expect("few");
        self.answers.push(tree.object_id.clone());
        self.missing = objects_to_push.iter().cloned().collect();
        PushMessagesResponse { objects_to_push, session_id: "session".into(), ..PushMessagesResponse::default() }
    }

    fn pushed_object(&mut self, request: PushObjectRequest) -> PushObjectResponse {
        assert_eq!(request.session_id, "session");
        let stored = self.missing.remove(&request.object_id);
        self.received.receive(request.object_id, request.object_content);
        PushObjectResponse { stored }
    }

    /// The status of a call that is to fail.
    fn failure(&mut self, call: &str) -> Option<u16> {
        let (status, times) = self.failures.get_mut(call)?;
        *times = times.checked_sub(1)?;
        Some(*status)
    }
}

fn read<M: prost::Message + Default>(body: &[u8]) -> M {
    M::decode(body).expect("what a node sends is whole")
}

async fn answer(
    State(desk): State<Arc<Mutex<Desk>>>,
    Path(call): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Vec<u8>) {
    let mut desk = desk.lock().expect("no test thread fails while it holds it");
    desk.headers.extend(headers.values().map(|value| value.as_bytes().to_vec()));
    desk.heard.push((call.clone(), body.to_vec()));
    match desk.failure(&call) {
        Some(status) => (StatusCode::from_u16(status).expect("a status"), Vec::new()),
        None => (StatusCode::OK, desk.respond(&call, &body)),
    }
}
