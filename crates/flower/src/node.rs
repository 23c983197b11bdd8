//! The node: pull, keep, work, commit, push, for ever.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fedeq_core::Reply;

use crate::fleet::Fleet;
use crate::letter::{self, Assignment};
use crate::message::Message;
use crate::object::{Bundle, ids_of};
use crate::pace::Pace;
use crate::vault::{Parcel, Vault};
use crate::wire::{Failure, Node as WireNode, ObjectTree, PushMessagesRequest};
use crate::{Error, Result};

/// Does the work that is asked for: the same that a simulated client does.
pub trait Worker {
    /// Which client of the federation it is, from 0.
    fn number(&self) -> u64;

    /// Answers, from the state as it was kept, and gives the state to keep if it changed. What is refused changes nothing; the words are sent back.
    fn work(&mut self, assignment: &Assignment, state: Option<&[u8]>) -> std::result::Result<Done, String>;
}

/// Work that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What is sent.
    pub reply: Reply,
    /// What is kept, if it changed.
    pub state: Option<Vec<u8>>,
}

/// What a node tells whoever runs it.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The SuperLink knows it under this number.
    Joined(u64),
    /// The SuperLink is away; the next try is in so many seconds.
    Away(String, f64),
    /// A question was answered, in so many seconds.
    Answered {
        /// In which federation.
        federation: String,
        /// In which round.
        round: u64,
        /// With how much work; 0 for an answer that was given before.
        seconds: f64,
    },
    /// A question was turned down, with these words.
    Refused(String),
}

/// A node of a federation.
pub struct Node<'a> {
    /// The way to the SuperLink.
    pub fleet: &'a Fleet,
    /// What it keeps.
    pub vault: &'a Vault,
    /// Who does the work.
    pub worker: &'a mut dyn Worker,
    /// Told what happens.
    pub tell: &'a mut dyn FnMut(Notice),
    /// Asked often; true means stop.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

const HEARTBEAT: Duration = Duration::from_secs(30);
/// A message of a network with as many arrays would have thousands of megabytes.
const MOST_OBJECTS: usize = 20_000;
/// How long an object that is on its way is waited for.
const ARRIVAL: Duration = Duration::from_secs(60);
/// Flower's code for work that failed.
const WORK_FAILED: i64 = 2;

impl Node<'_> {
    /// Joins, answers, and stays until it is stopped. Comes back by itself when the SuperLink was away.
    pub fn serve(&mut self) -> Result<()> {
        let id = AtomicU64::new(self.join()?);
        let is_over = AtomicBool::new(false);
        let (fleet, stopped) = (self.fleet, self.stopped);
        thread::scope(|scope| {
            scope.spawn(|| beat(fleet, &id, &|| stopped() || is_over.load(Ordering::Relaxed)));
            let outcome = self.answer_all(&id);
            is_over.store(true, Ordering::Relaxed);
            outcome
        })?;
        // Whether the SuperLink hears it or not, the node is gone.
        let _ = self.fleet.deactivate(id.load(Ordering::Relaxed));
        Ok(())
    }

    fn answer_all(&mut self, id: &AtomicU64) -> Result<()> {
        let mut pace = Pace::default();
        while !(self.stopped)() {
            let step = self.step(id.load(Ordering::Relaxed));
            match step {
                Ok(answered) => pace.heard(answered > 0),
                Err(error) if error.is_passing() => {
                    pace.missed();
                    (self.tell)(Notice::Away(error.to_string(), pace.wait().as_secs_f64()));
                }
                // A SuperLink that was restarted does not know its nodes.
                Err(Error::Refused { .. }) => id.store(self.join()?, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
            self.rest(pace.wait());
        }
        Ok(())
    }

    /// Makes itself known; waits for a SuperLink that is away.
    fn join(&mut self) -> Result<u64> {
        let mut pace = Pace::default();
        loop {
            // With registered keys the SuperLink refuses newcomers and activates those it knows.
            let joined = match self.fleet.register() {
                Err(Error::Refused { .. }) | Ok(_) => self.fleet.activate(HEARTBEAT),
                Err(error) => Err(error),
            };
            match joined {
                Err(error) if error.is_passing() && !(self.stopped)() => {
                    pace.missed();
                    (self.tell)(Notice::Away(error.to_string(), pace.wait().as_secs_f64()));
                    self.rest(pace.wait());
                }
                Ok(id) => {
                    (self.tell)(Notice::Joined(id));
                    return Ok(id);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers what waits and what is new; tells how many questions that were.
    fn step(&mut self, id: u64) -> Result<usize> {
        self.fetch(id)?;
        let waiting = self.vault.waiting()?;
        for question in &waiting {
            self.answer(id, question)?;
        }
        Ok(waiting.len())
    }

    /// Brings new questions into the vault.
    fn fetch(&mut self, id: u64) -> Result<()> {
        let pulled = self.fleet.pull_messages(id)?;
        for (message, tree) in pulled.messages.iter().zip(&pulled.trees) {
            let run_id = message.metadata.as_ref().map_or(0, |metadata| metadata.run_id);
            match self.pull(id, run_id, tree) {
                Ok(bundle) => {
                    self.vault.receive(&Parcel::of(run_id, &tree.object_id, &bundle))?;
                    self.fleet.confirm(id, run_id, &tree.object_id)?;
                }
                Err(error) if error.is_passing() => return Err(error),
                Err(error) => (self.tell)(Notice::Refused(error.to_string())),
            }
        }
        Ok(())
    }

    fn pull(&self, id: u64, run_id: u64, tree: &ObjectTree) -> Result<Bundle> {
        let mut bundle = Bundle::default();
        for object in ids_of(tree, MOST_OBJECTS)? {
            let bytes = self.pull_object(id, run_id, &object)?;
            bundle.receive(object, bytes);
        }
        Ok(bundle)
    }

    /// Asks until the object has arrived at the SuperLink.
    fn pull_object(&self, id: u64, run_id: u64, object: &str) -> Result<Vec<u8>> {
        let began = Instant::now();
        loop {
            match self.fleet.pull_object(id, run_id, object)? {
                Some(bytes) => return Ok(bytes),
                None if began.elapsed() > ARRIVAL => {
                    return Err(Error::Away { call: "pull-object", problem: format!("object `{object}` does not arrive") });
                }
                None => self.rest(Duration::from_millis(50)),
            }
        }
    }

    /// Answers a question: as before if it was answered before.
    fn answer(&mut self, id: u64, question: &Parcel) -> Result<()> {
        let began = Instant::now();
        let message = match Message::inflate(&question.id, &question.bundle()) {
            Ok(message) => message,
            Err(error) => {
                (self.tell)(Notice::Refused(error.to_string()));
                return self.vault.done(&question.id);
            }
        };
        let (reply, seconds) = match read(&message) {
            Ok(Asked::Who) => {
                (parcel(question.run_id, &message.reply(Ok(letter::introduction(self.worker.number())), now())), 0.0)
            }
            Ok(Asked::Work(assignment)) => self.answer_assignment(question, &message, &assignment, began)?,
            Err(words) => (self.refusal(question.run_id, &message, &words), 0.0),
        };
        self.push(id, &reply, seconds)?;
        self.vault.done(&question.id)
    }

    fn answer_assignment(
        &mut self,
        question: &Parcel,
        message: &Message,
        assignment: &Assignment,
        began: Instant,
    ) -> Result<(Parcel, f64)> {
        let Assignment { federation, request, .. } = assignment;
        let told = |seconds| Notice::Answered { federation: federation.clone(), round: request.round, seconds };
        if let Some(reply) = self.vault.answer(federation, &question.id)? {
            (self.tell)(told(0.0));
            return Ok((reply, 0.0));
        }
        let state = self.vault.state(federation);
        let done = state.map_err(|error| error.to_string()).and_then(|state| self.worker.work(assignment, state.as_deref()));
        match done.and_then(|done| Ok((letter::written(&done.reply).map_err(|error| error.to_string())?, done.state))) {
            Ok((content, state)) => {
                let reply = parcel(question.run_id, &message.reply(Ok(content), now()));
                self.vault.commit(federation, &question.id, &reply, state.as_deref())?;
                let seconds = began.elapsed().as_secs_f64();
                (self.tell)(told(seconds));
                Ok((reply, seconds))
            }
            Err(words) => Ok((self.refusal(question.run_id, message, &words), 0.0)),
        }
    }

    fn refusal(&mut self, run_id: u64, message: &Message, words: &str) -> Parcel {
        (self.tell)(Notice::Refused(words.into()));
        parcel(run_id, &message.reply(Err(Failure { code: WORK_FAILED, reason: words.into() }), now()))
    }

    /// Announces an answer and brings the objects that are wanted.
    fn push(&self, id: u64, reply: &Parcel, seconds: f64) -> Result<()> {
        let bundle = reply.bundle();
        let request = PushMessagesRequest {
            node: Some(WireNode { node_id: id }),
            messages: vec![Message::announced(&reply.id, &bundle)?],
            trees: vec![bundle.tree(&reply.id)?],
            seconds: vec![seconds],
        };
        let wanted = self.fleet.push_messages(&request)?;
        for object in &wanted.objects_to_push {
            let bytes =
                bundle.bytes(object).ok_or_else(|| Error::object(object, "the SuperLink wants it, but it is not ours"))?;
            self.fleet.push_object(id, reply.run_id, &wanted.session_id, object, bytes)?;
        }
        Ok(())
    }

    /// Waits, unless stopped.
    fn rest(&self, time: Duration) {
        rest(time, self.stopped);
    }
}

/// What a message asks for.
enum Asked {
    /// Who are you?
    Who,
    /// Do something.
    Work(Box<Assignment>),
}

fn read(message: &Message) -> std::result::Result<Asked, String> {
    let content = message.content.as_ref().map_err(|failure| failure.reason.clone())?;
    let kind = message.head.message_type.split('.').next().unwrap_or_default();
    match kind {
        "query" => Ok(Asked::Who),
        "train" | "evaluate" => {
            Assignment::read(content).map(|assignment| Asked::Work(assignment.into())).map_err(|error| error.to_string())
        }
        other => Err(format!("messages of type `{other}` mean nothing to this node")),
    }
}

fn parcel(run_id: u64, message: &Message) -> Parcel {
    let mut bundle = Bundle::default();
    let id = message.deflate(&mut bundle);
    Parcel::of(run_id, &id, &bundle)
}

/// Says that the node is there, every now and then. A beat that is not heard is followed by the next.
fn beat(fleet: &Fleet, id: &AtomicU64, stopped: &dyn Fn() -> bool) {
    while !stopped() {
        rest(HEARTBEAT / 3, stopped);
        let _ = fleet.heartbeat(id.load(Ordering::Relaxed), HEARTBEAT);
    }
}

fn rest(time: Duration, stopped: &dyn Fn() -> bool) {
    let end = Instant::now() + time;
    while !stopped() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
