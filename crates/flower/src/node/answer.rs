//! From the vault back to the SuperLink.
use std::time::Instant;

use fedeq_core::Request;

use super::refusal::{Refusal, TurnedDown};
use super::{Done, Node, Notice, require_in_time};
use crate::letter::{self, Assignment};
use crate::message::Message;
use crate::object::Bundle;
use crate::record::Content;
use crate::vault::{Given, Parcel, Question};
use crate::wire::{Failure, Node as WireNode, PushMessagesRequest};
use crate::{Error, Result};

/// Flower's code for work that failed.
const WORK_FAILED: i64 = 2;

/// What is sent, and what is said about it here.
pub(super) struct Response {
    reply: Parcel,
    /// How long the work took.
    seconds: f64,
    notice: Option<Notice>,
    /// Whose state the question was about, if it was answered.
    federation: Option<String>,
}

/// What a message asks for.
enum Asked {
    /// Who are you?
    Who,
    /// Do something.
    Work(Box<Assignment>),
}

impl Node<'_> {
    /// Answers a question: as before if it was answered before.
    pub(super) fn answer(&mut self, id: u64, question: &str) -> Result<()> {
        match self.respond(question) {
            Ok(response) => {
                self.deliver(id, &response)?;
                match &response.federation {
                    Some(federation) => self.vault.settle(question, federation),
                    None => self.vault.inbox().done(question),
                }
            }
            Err(error) if error.is_about_the_message() => {
                (self.tell)(Notice::Refused(error.to_string()));
                self.vault.inbox().done(question)
            }
            Err(error) => Err(error),
        }
    }

    fn respond(&mut self, question: &str) -> Result<Response> {
        let bundle = self.vault.inbox().question(question)?.bundle();
        let message = Message::inflate_within(question, &bundle, self.message_limit)?;
        require_in_time(&message.head)?;
        match asked(&message) {
            Ok(Asked::Who) => {
                let reply = parcel(&message, Ok(letter::introduction(self.worker.number())));
                Ok(Response { reply, seconds: 0.0, notice: None, federation: None })
            }
            Ok(Asked::Work(assignment)) => {
                let content = Message::content_id(question, &bundle)?;
                let worked = self.work(&message, Question { message: question, content: &content }, &assignment);
                Ok(worked.unwrap_or_else(|reason| self.refusal(&message, reason)))
            }
            Err(reason) => Ok(self.refusal(&message, reason)),
        }
    }

    /// Works, or says again what was said before. Nothing has changed if it fails.
    fn work(
        &mut self,
        message: &Message,
        question: Question<'_>,
        assignment: &Assignment,
    ) -> std::result::Result<Response, TurnedDown> {
        let shelf = self.vault.shelf(&assignment.federation);
        let began = Instant::now();
        let (reply, seconds) = match shelf.answer(question).map_err(TurnedDown::unable)? {
            Some(Given::Same(reply)) => (reply, 0.0),
            Some(Given::Alike(reply)) => {
                let reply = parcel(message, said(&reply).map_err(TurnedDown::unable)?);
                shelf.commit(question, &reply, None).map_err(TurnedDown::unable)?;
                (reply, 0.0)
            }
            None => {
                let state = shelf.state().map_err(TurnedDown::unable)?;
                let Done { reply, state } = self.attempt(question, assignment, state.as_deref())?;
                let reply = parcel(message, Ok(letter::written(&reply).map_err(TurnedDown::unable)?));
                shelf.commit(question, &reply, state.as_deref()).map_err(TurnedDown::unable)?;
                (reply, began.elapsed().as_secs_f64())
            }
        };
        self.vault.attempts().forget(question.content);
        let federation = assignment.federation.clone();
        let Request { task, round, .. } = assignment.request;
        let notice = Some(Notice::Answered { federation: federation.clone(), task, round, seconds });
        Ok(Response { reply, seconds, notice, federation: Some(federation) })
    }

    /// Lets the worker work, unless that has brought the node down before.
    fn attempt(
        &mut self,
        question: Question<'_>,
        assignment: &Assignment,
        state: Option<&[u8]>,
    ) -> std::result::Result<Done, TurnedDown> {
        let attempts = self.vault.attempts();
        if attempts.is_hopeless(question.content) {
            let words = "the node ended while it worked on this question before; it is not tried again while";
            let words = format!("{words} `attempts/{}` is in the node's folder", question.content);
            return Err(TurnedDown { refusal: Refusal::Fatal, words });
        }
        let _attempt = attempts.begin(question.content).map_err(TurnedDown::unable)?;
        self.worker.work(assignment, state).map_err(TurnedDown::unable)
    }

    /// Says that a question is not answered: why exactly is said only here.
    pub(super) fn refusal(&self, message: &Message, TurnedDown { refusal, words }: TurnedDown) -> Response {
        let reply = parcel(message, Err(Failure { code: WORK_FAILED, reason: refusal.words().into() }));
        Response { reply, seconds: 0.0, notice: Some(Notice::Refused(words)), federation: None }
    }

    /// Sends what is to be sent. A run that is over, or that the SuperLink has forgotten, wants no answer any more.
    pub(super) fn deliver(&mut self, id: u64, response: &Response) -> Result<()> {
        let notice = match self.push(id, response) {
            Err(error) if error.is_about_the_message() => Some(Notice::Refused(error.to_string())),
            pushed => pushed.map(|()| response.notice.clone())?,
        };
        notice.into_iter().for_each(&mut *self.tell);
        Ok(())
    }

    /// Announces an answer and brings the objects that are wanted.
    fn push(&self, id: u64, Response { reply, seconds, .. }: &Response) -> Result<()> {
        let bundle = reply.bundle();
        let request = PushMessagesRequest {
            node: Some(WireNode { node_id: id }),
            messages: vec![Message::announced(&reply.id, &bundle)?],
            trees: vec![bundle.tree(&reply.id)?],
            seconds: vec![*seconds],
        };
        let wanted = self.fleet.push_messages(&request)?;
        for object in &wanted.objects_to_push {
            let bytes =
                bundle.bytes(object).ok_or_else(|| Error::object(object, "the SuperLink wants it, but it is not ours"))?;
            self.fleet.push_object(id, reply.run_id, &wanted.session_id, object, bytes)?;
        }
        Ok(())
    }
}

fn asked(message: &Message) -> std::result::Result<Asked, TurnedDown> {
    let unreadable = |words: String| TurnedDown { refusal: Refusal::Unreadable, words };
    let content = message.content.as_ref().map_err(|failure| unreadable(failure.reason.clone()))?;
    let kind = message.head.message_type.split('.').next().unwrap_or_default();
    match kind {
        "query" => Ok(Asked::Who),
        "train" | "evaluate" => Ok(Asked::Work(Assignment::read(content)?.into())),
        other => Err(unreadable(format!("messages of type `{other}` mean nothing to this node"))),
    }
}

/// The answer to a message.
fn parcel(message: &Message, content: std::result::Result<Content, Failure>) -> Parcel {
    let mut bundle = Bundle::default();
    let id = message.reply(content).deflate(&mut bundle);
    Parcel::of(message.head.run_id, &id, &bundle)
}

/// What an answer says.
fn said(reply: &Parcel) -> Result<std::result::Result<Content, Failure>> {
    Message::inflate_within(&reply.id, &reply.bundle(), usize::MAX).map(|message| message.content)
}
