//! The node: pull, keep, work, commit, push, for ever.
//!
//! # Layout
//! - this file: joining, and the loop
//! - `fetch`: from the SuperLink into the vault
//! - `answer`: from the vault back to the SuperLink
//! - `refusal`: what a server is told when a question is not answered
mod answer;
mod fetch;
mod refusal;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fedeq_core::{Reply, Task};

use crate::fleet::{Fleet, Welcome};
use crate::letter::Assignment;
use crate::pace::Pace;
use crate::vault::Vault;
use crate::wire::Metadata;
use crate::{Error, Result};

pub use refusal::Refusal;

/// Does the work that is asked for: the same that a simulated client does.
pub trait Worker {
    /// Which client of the federation it is, from 0.
    fn number(&self) -> u64;

    /// Answers, from the state as it was kept, and gives the state to keep if it changed. What is refused changes nothing; the words are
    /// for who runs the node, and are not sent.
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
        /// What was to be done.
        task: Task,
        /// In which round.
        round: u64,
        /// With how much work; 0 for an answer that was given before.
        seconds: f64,
    },
    /// A question was turned down for this reason; the server is told a [`Refusal`].
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
    /// The most bytes that a message may take, on its way and unpacked.
    pub message_limit: usize,
    /// Asked often; true means stop.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

const HEARTBEAT: Duration = Duration::from_secs(30);

impl Node<'_> {
    /// Joins, answers, and stays until it is stopped. Comes back by itself when the SuperLink was away. A panic of the worker passes through, after
    /// the question was noted: it is refused from then on.
    pub fn serve(&mut self) -> Result<()> {
        let Some(id) = self.join()? else { return Ok(()) };
        let id = AtomicU64::new(id);
        let is_over = AtomicBool::new(false);
        let (fleet, stopped) = (self.fleet, self.stopped);
        thread::scope(|scope| {
            // Also if there is a panic: nobody may say that a node is there which does not answer.
            let _end = SetWhenDropped(&is_over);
            scope.spawn(|| beat(fleet, &id, &|| stopped() || is_over.load(Ordering::Relaxed)));
            self.answer_all(&id)
        })?;
        // Whether the SuperLink hears it or not, the node is gone.
        let _ = self.fleet.deactivate(id.load(Ordering::Relaxed));
        Ok(())
    }

    fn answer_all(&mut self, id: &AtomicU64) -> Result<()> {
        let mut pace = Pace::default();
        while !(self.stopped)() {
            let before = self.fleet.answered();
            match self.step(id.load(Ordering::Relaxed)) {
                Ok(answered) => pace.heard(answered > 0),
                Err(error) if error.is_passing() => self.miss(&mut pace, before, &error),
                // A SuperLink that was restarted does not know its nodes.
                Err(error @ Error::Stranger { .. }) => {
                    self.miss(&mut pace, before, &error);
                    let Some(known) = self.join()? else { break };
                    id.store(known, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
            self.rest(pace.wait());
        }
        Ok(())
    }

    /// Makes itself known and gives its number; waits for a SuperLink that is away. Nothing if it is stopped meanwhile.
    fn join(&mut self) -> Result<Option<u64>> {
        let mut pace = Pace::default();
        while !(self.stopped)() {
            let before = self.fleet.answered();
            match self.introduce() {
                Ok(id) => {
                    self.vault.note_number(id)?;
                    (self.tell)(Notice::Joined(id));
                    return Ok(Some(id));
                }
                Err(error) if error.is_passing() => self.miss(&mut pace, before, &error),
                Err(error) => return Err(error),
            }
            self.rest(pace.wait());
        }
        Ok(None)
    }

    /// Makes itself known and gives its number.
    ///
    /// A node that was killed is still there for the SuperLink for a minute, which activates nobody who is there. With the number it had before, a heartbeat
    /// is enough; without it, the minute has to pass.
    fn introduce(&self) -> Result<u64> {
        if let Some(id) = self.vault.number() {
            match self.fleet.heartbeat(id, HEARTBEAT) {
                Ok(true) => return Ok(id),
                Err(error) if error.is_passing() => return Err(error),
                // That was another SuperLink, or it has forgotten.
                Ok(false) | Err(_) => {}
            }
        }
        let welcome = self.fleet.register()?;
        if let Welcome::New(id) = welcome {
            self.vault.note_number(id)?;
        }
        match (self.fleet.activate(HEARTBEAT), welcome) {
            (Err(Error::Refused { call, problem }), Welcome::Known) => Err(Error::Away { call, problem }),
            (activated, _) => activated,
        }
    }

    /// A call failed, after so many that were answered when this began.
    fn miss(&mut self, pace: &mut Pace, answered: u64, error: &Error) {
        pace.missed(self.fleet.answered() > answered);
        (self.tell)(Notice::Away(error.to_string(), pace.wait().as_secs_f64()));
    }

    /// Answers what waits and what is new; tells how many questions that were. What is here is worked on also while the SuperLink is away.
    fn step(&mut self, id: u64) -> Result<usize> {
        let fetched = self.fetch(id);
        let waiting = self.vault.inbox().waiting()?;
        for question in &waiting {
            self.answer(id, question)?;
        }
        fetched.map(|()| waiting.len())
    }

    /// Waits, unless stopped.
    fn rest(&self, time: Duration) {
        rest(time, self.stopped);
    }
}

/// Sets a flag at the end of a scope, however that is left.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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

/// Refuses a question that nobody waits for any more.
fn require_in_time(head: &Metadata) -> Result<()> {
    let is_late = head.created_at + head.ttl < now();
    if is_late { Err(Error::Late { id: head.message_id.clone() }) } else { Ok(()) }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
