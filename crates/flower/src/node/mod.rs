//! The node: pull, store, work, commit, push, until it is stopped.
//!
//! # Layout
//! - this file: registration, and the main loop
//! - `fetch`: from the SuperLink into the inbox
//! - `reply`: from the inbox back to the SuperLink
//! - `refusal`: what a server is told when a request is refused
mod fetch;
mod refusal;
mod reply;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fedeq_core::{ClientTask, Reply};

use crate::connection::{Connection, Registration};
use crate::envelope::Envelope;
use crate::limit::NodeLimits;
use crate::polling::PollInterval;
use crate::store::{NodeStore, Proposal};
use crate::wire::MessageMetadata;
use crate::{Error, Result};

pub use refusal::Refusal;

/// Carries out requests: the same work that a simulated client does.
pub trait Worker {
    /// Which client of the federation it is, from 0.
    fn client(&self) -> u64;

    /// What a request is to the node's owner; refuses one that the owner has not agreed to. No data is touched for that.
    fn review(&self, envelope: &Envelope) -> std::result::Result<Accepted, Objection>;

    /// Carries out a request, from the state as it was stored, and gives the new state if it changed. A refused request changes nothing; the error is
    /// for the node's log, and is not sent.
    fn work(&mut self, envelope: &Envelope, state: Option<&[u8]>) -> std::result::Result<WorkResult, String>;
}

/// A request that the node's owner has agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The name of the agreement that it belongs to.
    pub agreement: String,
    /// Whether the server says by it that training is over. Then nothing is trained any more.
    pub ends_training: bool,
}

/// Why a node does not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// What the server is told.
    pub refusal: Refusal,
    /// The reason, for the node's log.
    pub reason: String,
    /// The experiment, if its owner may want to look at it.
    pub proposal: Option<Proposal>,
}

/// Work that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkResult {
    /// What is sent.
    pub reply: Reply,
    /// The client's new state, if it changed.
    pub state: Option<Vec<u8>>,
}

/// An entry of a node's log.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The SuperLink knows it under this node id.
    Joined(u64),
    /// The SuperLink did not answer; the next try is in so many seconds.
    Unreachable(String, f64),
    /// A reply was sent.
    Replied {
        /// In which federation.
        federation: String,
        /// What was to be done.
        task: ClientTask,
        /// In which round.
        round: u64,
        /// How long the work took; 0 for a reply that was repeated.
        seconds: f64,
    },
    /// A request was refused for this reason; the server is told a [`Refusal`].
    Refused(String),
}

/// A node of a federation.
pub struct Node<'a> {
    /// The connection to the SuperLink.
    pub connection: &'a Connection,
    /// What it keeps on disk.
    pub store: &'a NodeStore,
    /// Carries out the requests.
    pub worker: &'a mut dyn Worker,
    /// Called with every entry of the log.
    pub notify: &'a mut dyn FnMut(Notice),
    /// What others may take of the device.
    pub limits: NodeLimits,
    /// Called often; true means stop.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

const HEARTBEAT: Duration = Duration::from_secs(30);

impl Node<'_> {
    /// Joins and replies until it is stopped. Reconnects by itself when the SuperLink was unreachable. A panic of the worker passes through, after it was
    /// recorded: the request is refused from then on.
    pub fn serve(&mut self) -> Result<()> {
        let Some(id) = self.join()? else { return Ok(()) };
        let id = AtomicU64::new(id);
        let is_over = AtomicBool::new(false);
        let (connection, stopped) = (self.connection, self.stopped);
        thread::scope(|scope| {
            // Also after a panic: a node that does not reply must not send heartbeats.
            let _end = SetWhenDropped(&is_over);
            scope.spawn(|| send_heartbeats(connection, &id, &|| stopped() || is_over.load(Ordering::Relaxed)));
            self.reply_to_all(&id)
        })?;
        // The node ends whether the SuperLink hears of it or not.
        let _ = self.connection.deactivate(id.load(Ordering::Relaxed));
        Ok(())
    }

    fn reply_to_all(&mut self, id: &AtomicU64) -> Result<()> {
        let mut interval = PollInterval::default();
        while !(self.stopped)() {
            let before = self.connection.answered();
            match self.step(id.load(Ordering::Relaxed)) {
                Ok(replied) => interval.succeeded(replied > 0),
                Err(error) if error.is_transient() => self.log_failure(&mut interval, before, &error),
                // A SuperLink that was restarted does not know its nodes.
                Err(error @ Error::UnknownNode { .. }) => {
                    self.log_failure(&mut interval, before, &error);
                    let Some(known) = self.join()? else { break };
                    id.store(known, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
            self.wait(interval.duration());
        }
        Ok(())
    }

    /// Registers and gives the node id; waits for a SuperLink that is unreachable. Nothing if it is stopped meanwhile.
    fn join(&mut self) -> Result<Option<u64>> {
        let mut interval = PollInterval::default();
        while !(self.stopped)() {
            let before = self.connection.answered();
            match self.register() {
                Ok(id) => {
                    self.store.save_node_id(id)?;
                    (self.notify)(Notice::Joined(id));
                    return Ok(Some(id));
                }
                Err(error) if error.is_transient() => self.log_failure(&mut interval, before, &error),
                Err(error) => return Err(error),
            }
            self.wait(interval.duration());
        }
        Ok(None)
    }

    /// Registers and gives the node id.
    ///
    /// A SuperLink takes a node that was killed for active for another minute, and does not activate it again before. With the id it had before, a heartbeat
    /// is enough; without it, the minute has to pass.
    fn register(&self) -> Result<u64> {
        if let Some(id) = self.store.node_id() {
            match self.connection.heartbeat(id, HEARTBEAT) {
                Ok(true) => return Ok(id),
                Err(error) if error.is_transient() => return Err(error),
                // The id is from another SuperLink, or from before this one lost its database.
                Ok(false) | Err(_) => {}
            }
        }
        let registration = self.connection.register()?;
        if let Registration::New(id) = registration {
            self.store.save_node_id(id)?;
        }
        match (self.connection.activate(HEARTBEAT), registration) {
            (Err(Error::Refused { call, problem }), Registration::Known) => Err(Error::Unreachable { call, problem }),
            (activated, _) => activated,
        }
    }

    /// Logs that a call failed. `answered` is how many calls had been answered when this step began.
    fn log_failure(&mut self, interval: &mut PollInterval, answered: u64, error: &Error) {
        interval.failed(self.connection.answered() > answered);
        (self.notify)(Notice::Unreachable(error.to_string(), interval.duration().as_secs_f64()));
    }

    /// Fetches new requests and replies to all that wait; gives their number. Requests that are here are worked on also while the SuperLink is unreachable.
    fn step(&mut self, id: u64) -> Result<usize> {
        let fetched = self.fetch(id);
        let waiting = self.store.inbox().waiting()?;
        for request in &waiting {
            self.reply_to(id, request)?;
        }
        fetched.map(|()| waiting.len())
    }

    /// Waits, unless stopped.
    fn wait(&self, time: Duration) {
        wait(time, self.stopped);
    }
}

/// Sets a flag at the end of a scope, also after a panic.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends heartbeats. One that fails is followed by the next.
fn send_heartbeats(connection: &Connection, id: &AtomicU64, stopped: &dyn Fn() -> bool) {
    while !stopped() {
        wait(HEARTBEAT / 3, stopped);
        let _ = connection.heartbeat(id.load(Ordering::Relaxed), HEARTBEAT);
    }
}

fn wait(time: Duration, stopped: &dyn Fn() -> bool) {
    let end = Instant::now() + time;
    while !stopped() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// Refuses a message whose time to live is over.
fn require_not_expired(head: &MessageMetadata) -> Result<()> {
    let is_expired = head.created_at + head.ttl < now();
    if is_expired { Err(Error::Expired { id: head.message_id.clone() }) } else { Ok(()) }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
