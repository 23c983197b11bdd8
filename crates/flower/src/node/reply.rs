//! Replying: from the inbox back to the SuperLink.
use std::time::Instant;

use fedeq_core::{ClientTask, Request};

use super::refusal::{Refusal, Rejection};
use super::{Accepted, Node, Notice, Objection, WorkResult, require_not_expired};
use crate::envelope::{self, Envelope};
use crate::message::Message;
use crate::object::Bundle;
use crate::record::Content;
use crate::store::{Denial, FederationStore, PreviousReply, RequestKey, RequestPlace, StoredMessage, Telling, Verdict};
use crate::wire::{Failure, NodeReference, PushMessagesRequest};
use crate::{Error, Result};

/// Flower's code for work that failed.
const WORK_FAILED: i64 = 2;

/// A reply to be sent, and what is logged about it.
pub(super) struct Response {
    reply: StoredMessage,
    notice: Option<Notice>,
    /// The federation whose state was used, if the request was carried out.
    federation: Option<String>,
}

/// What a message asks for.
enum Action {
    /// Tell which client this node is.
    Identify,
    /// Carry out a request.
    Work(Box<Envelope>),
}

impl Node<'_> {
    /// Replies to a request; with the same reply as before if it was replied to before.
    pub(super) fn reply_to(&mut self, id: u64, request: &str) -> Result<()> {
        match self.respond(request) {
            Ok(response) => {
                self.deliver(id, &response)?;
                match &response.federation {
                    Some(federation) => self.store.finish_request(request, federation),
                    None => self.store.inbox().remove(request),
                }
            }
            Err(error) if error.concerns_one_message() => {
                (self.notify)(Notice::Refused(error.to_string()));
                self.store.inbox().remove(request)
            }
            Err(error) => Err(error),
        }
    }

    fn respond(&mut self, request: &str) -> Result<Response> {
        let bundle = self.store.inbox().request(request)?.bundle();
        let message = Message::inflate_within(request, &bundle, self.limits.message)?;
        require_not_expired(&message.head)?;
        match action_of(&message) {
            Ok(Action::Identify) => {
                let reply = reply_message(&message, Ok(envelope::identity(self.worker.client())));
                Ok(Response { reply, notice: None, federation: None })
            }
            Ok(Action::Work(envelope)) => {
                let content = Message::content_id(request, &bundle)?;
                let worked = self.work(&message, RequestKey { message: request, content: &content }, &envelope);
                Ok(worked.unwrap_or_else(|rejection| self.refusal(&message, rejection)))
            }
            Err(rejection) => Ok(self.refusal(&message, rejection)),
        }
    }

    /// Works, or repeats the reply that was given before. Nothing has changed if it fails.
    fn work(
        &mut self,
        message: &Message,
        request: RequestKey<'_>,
        envelope: &Envelope,
    ) -> std::result::Result<Response, Rejection> {
        let ends_training = self.require_consent(envelope)?.ends_training;
        let store = self.store.federation(&envelope.federation);
        let Request { task, round, .. } = envelope.request;
        let began = Instant::now();
        let (reply, seconds) = match store.reply(request).map_err(Rejection::unable)? {
            Some(PreviousReply::SameMessage(reply)) => (reply, 0.0),
            Some(PreviousReply::SameContent(reply)) => {
                let reply = reply_message(message, content_of(&reply).map_err(Rejection::unable)?);
                store.commit(request, &reply, None, None).map_err(Rejection::unable)?;
                (reply, 0.0)
            }
            None => {
                let telling = telling(task, ends_training);
                require_permitted(&store, telling, &envelope.request)?;
                let state = store.state().map_err(Rejection::unable)?;
                let WorkResult { reply, state } = self.attempt(request, envelope, state.as_deref())?;
                let reply = reply_message(message, Ok(envelope::write_reply(&reply).map_err(Rejection::unable)?));
                let told = telling.map(|telling| (telling, round));
                store.commit(request, &reply, state.as_deref(), told).map_err(Rejection::unable)?;
                (reply, began.elapsed().as_secs_f64())
            }
        };
        self.store.attempts().forget(request.content);
        let federation = envelope.federation.clone();
        let notice = Some(Notice::Replied { federation: federation.clone(), task, round, seconds });
        // A message of secure aggregation has no weights that the model could be used with.
        let federation = (task != ClientTask::Aggregate).then_some(federation);
        Ok(Response { reply, notice, federation })
    }

    /// Refuses what the node's owner has not agreed to, and keeps the experiment for them to look at.
    fn require_consent(&self, envelope: &Envelope) -> std::result::Result<Accepted, Rejection> {
        let consent = self.store.consent();
        match self.worker.review(envelope) {
            Ok(accepted) => {
                consent.admit(&accepted.agreement, &envelope.federation, self.limits.federations)?;
                Ok(accepted)
            }
            Err(Objection { refusal, reason, proposal }) => {
                proposal.iter().try_for_each(|proposal| consent.keep(proposal))?;
                Err(Rejection { refusal, reason })
            }
        }
    }

    /// Lets the worker work, unless the node failed at this request before.
    fn attempt(
        &mut self,
        request: RequestKey<'_>,
        envelope: &Envelope,
        state: Option<&[u8]>,
    ) -> std::result::Result<WorkResult, Rejection> {
        let attempts = self.store.attempts();
        let Request { task, round, .. } = envelope.request;
        let place = RequestPlace { federation: &envelope.federation, task, round };
        if let Some(verdict) = attempts.verdict(request.content, &place, self.limits.deaths) {
            return Err(rejected_before(&verdict, request.content));
        }
        self.require_room(0)?;
        let attempt = attempts.begin(request.content, &place).map_err(Rejection::unable)?;
        match self.worker.work(envelope, state) {
            Ok(result) => {
                attempt.succeeded();
                Ok(result)
            }
            Err(reason) => {
                attempt.failed();
                Err(Rejection::unable(reason))
            }
        }
    }

    /// The reply that refuses a request; the exact reason is only logged.
    pub(super) fn refusal(&self, message: &Message, Rejection { refusal, reason }: Rejection) -> Response {
        let reply = reply_message(message, Err(Failure { code: WORK_FAILED, reason: refusal.words().into() }));
        Response { reply, notice: Some(Notice::Refused(reason)), federation: None }
    }

    /// Sends a reply. If its run is over, or the SuperLink does not know the run any more, the reply is dropped.
    pub(super) fn deliver(&mut self, id: u64, response: &Response) -> Result<()> {
        let notice = match self.push(id, response) {
            Err(error) if error.concerns_one_message() => Some(Notice::Refused(error.to_string())),
            pushed => pushed.map(|()| response.notice.clone())?,
        };
        notice.into_iter().for_each(&mut *self.notify);
        Ok(())
    }

    /// Announces a reply and uploads the objects that the SuperLink asks for.
    fn push(&self, id: u64, Response { reply, .. }: &Response) -> Result<()> {
        let bundle = reply.bundle();
        let request = PushMessagesRequest {
            node: Some(NodeReference { node_id: id }),
            messages: vec![Message::announced(&reply.id, &bundle)?],
            trees: vec![bundle.tree(&reply.id)?],
            // What the work took is the node's own business; a server learns it with the metrics, if at all.
            seconds: vec![0.0],
        };
        let wanted = self.connection.push_messages(&request)?;
        for object in &wanted.objects_to_push {
            let bytes = bundle
                .bytes(object)
                .ok_or_else(|| Error::object(object, "the SuperLink asks for it, but it is no part of the reply"))?;
            self.connection.push_object(id, reply.run_id, &wanted.session_id, object, bytes)?;
        }
        Ok(())
    }
}

/// What a reply tells that is told only so often, or not at any time.
fn telling(task: ClientTask, ends_training: bool) -> Option<Telling> {
    match task {
        ClientTask::Train => Some(Telling::Training),
        ClientTask::Evaluate | ClientTask::Measure if ends_training => Some(Telling::LastEvaluation),
        ClientTask::Evaluate | ClientTask::Measure => Some(Telling::Evaluation),
        ClientTask::Finish | ClientTask::Adopt => Some(Telling::End),
        // A message of secure aggregation has no weights to choose.
        ClientTask::Aggregate => None,
    }
}

/// Refuses to evaluate after the same round, or to finish, again and again, with other weights, and to go on when the server has said that training is over: each reply tells
/// something about the data. (A repeated request whose reply is stored does not reach this point.)
fn require_permitted(store: &FederationStore, telling: Option<Telling>, request: &Request) -> std::result::Result<(), Rejection> {
    let Some(telling) = telling else { return Ok(()) };
    let Some(denial) = store.denial(telling, request.round).map_err(Rejection::unable)? else { return Ok(()) };
    let reason = match (denial, telling) {
        (Denial::Over(round), _) => {
            format!("the server has told this client that training was over after round {round}, and asks for more of it")
        }
        (Denial::Again(round), Telling::End) => {
            format!("this client has finished after round {round} before, with other weights")
        }
        (Denial::Again(round), _) => format!("this client was evaluated after round {round} before, with other weights"),
    };
    Err(Rejection::unable(reason))
}

/// The refusal of a request at which the node failed before.
fn rejected_before(verdict: &Verdict, content: &str) -> Rejection {
    let until = format!("it is not tried again while `attempts/{content}` exists in the node's folder");
    let (refusal, reason) = match verdict {
        Verdict::Crashed => (Refusal::Crashed, format!("the node crashed while it worked on this request before; {until}")),
        Verdict::Died(times) => {
            let killed = "killed, out of memory, or by a power cut; `--max-deaths` allows more";
            (Refusal::Crashed, format!("the process ended {times} times while it worked on this request ({killed}); {until}"))
        }
        Verdict::Abandoned(reason) => (Refusal::Limit, format!("{reason}; {until}")),
        Verdict::Tried(file) => {
            let tried = "work on this task has ended badly too often in this round, or was tried in a later one";
            (Refusal::Limit, format!("{tried}; it is not tried again while `attempts/{file}` exists in the node's folder"))
        }
        Verdict::Failed => {
            (Refusal::Failed, "work on this request has failed twice; it is not tried again before the node is restarted".into())
        }
    };
    Rejection { refusal, reason }
}

fn action_of(message: &Message) -> std::result::Result<Action, Rejection> {
    let unreadable = |reason: String| Rejection { refusal: Refusal::Unreadable, reason };
    let content = message.content.as_ref().map_err(|failure| unreadable(failure.reason.clone()))?;
    let kind = message.head.message_type.split('.').next().unwrap_or_default();
    match kind {
        "query" => Ok(Action::Identify),
        "train" | "evaluate" => Ok(Action::Work(Envelope::read(content)?.into())),
        other => Err(unreadable(format!("message type `{other}` is not supported by this node"))),
    }
}

/// The reply to a message, as it is stored.
fn reply_message(message: &Message, content: std::result::Result<Content, Failure>) -> StoredMessage {
    let mut bundle = Bundle::default();
    let id = message.reply(content).deflate(&mut bundle);
    StoredMessage::new(message.head.run_id, &id, &bundle)
}

/// The content of a stored reply.
fn content_of(reply: &StoredMessage) -> Result<std::result::Result<Content, Failure>> {
    Message::inflate_within(&reply.id, &reply.bundle(), usize::MAX).map(|message| message.content)
}
