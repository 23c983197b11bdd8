//! Who is at work right now, and what becomes of the clients' personal heads, for people who watch a run.
//!
//! Heads are seen from the clients' own side. None ever reaches the server or the journal: only how large it is, and how far it moved.
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fedeq_core::{ClientObserver, ClientTask, Event, KeptState, Observer, Params, Result};
use serde::{Deserialize, Serialize};

use super::folder::RunFolder;
use super::journal::Journal;

/// What `activity.json` says. It is written while a run is being carried out, and is no part of its results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Grows as long as the process lives: on a disk where locks do not work, this tells that it does.
    pub beat: u64,
    /// Rounds that are over.
    pub round: u64,
    /// What clients were asked to do last.
    pub task: Option<ClientTask>,
    /// Clients that wait for their turn.
    pub waiting: BTreeSet<usize>,
    /// Clients at work.
    pub working: BTreeSet<usize>,
    /// Clients that are done.
    pub done: BTreeSet<usize>,
}

impl Activity {
    fn called(&mut self, task: ClientTask, clients: &[usize]) {
        // Asynchronous clients are called a few at a time: those who are done with the same task stay in sight.
        if self.task != Some(task) {
            self.done.clear();
        }
        self.task = Some(task);
        self.waiting = clients.iter().copied().collect();
        self.done.retain(|client| !self.waiting.contains(client));
    }

    fn begins(&mut self, client: usize) {
        self.waiting.remove(&client);
        self.working.insert(client);
    }

    fn ends(&mut self, client: usize) {
        self.working.remove(&client);
        self.done.insert(client);
    }

    /// Whether clients train their heads.
    fn asks_for_heads(&self) -> bool {
        matches!(self.task, Some(ClientTask::Train | ClientTask::Finish))
    }
}

/// Sees clients come and go, and what becomes of their heads.
#[derive(Default)]
pub(super) struct ProgressTracker {
    now: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    activity: Activity,
    /// The heads that clients at work began with.
    before: Vec<(usize, Params)>,
    /// The heads trained since they were last asked for.
    trained: Vec<Head>,
}

impl ProgressTracker {
    /// The tracker of a run that has come so far.
    pub(super) fn after(round: u64) -> Self {
        let tracker = Self::default();
        tracker.now().activity.round = round;
        tracker
    }

    /// Who is at work.
    pub(super) fn activity(&self) -> Activity {
        self.now().activity.clone()
    }

    /// Clients elsewhere were asked to do something, and are at work for all we know.
    pub(super) fn asked(&self, task: ClientTask, clients: &[usize]) {
        let mut now = self.now();
        now.activity.called(task, clients);
        clients.iter().for_each(|client| now.activity.begins(*client));
    }

    /// A client elsewhere has replied.
    pub(super) fn replied(&self, client: usize) {
        self.now().activity.ends(client);
    }

    /// A round is over; gives the heads that were trained in it, in order of their clients.
    pub(super) fn settle(&self, round: u64) -> Vec<Head> {
        let mut now = self.now();
        now.activity = Activity { round, ..Activity::default() };
        let mut trained = std::mem::take(&mut now.trained);
        trained.sort_by_key(|head| head.client);
        trained
    }

    fn now(&self) -> MutexGuard<'_, Progress> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The head by which a client is evaluated; nothing where it cannot be read just now.
fn head_of(state: &KeptState) -> Option<Params> {
    state.head().ok()
}

impl ClientObserver for ProgressTracker {
    fn called(&self, task: ClientTask, clients: &[usize]) {
        self.now().activity.called(task, clients);
    }

    // Heads are asked for without the lock: an engine may use all cores to answer, and threads that wait for each other there take up other clients meanwhile, who want the lock too.
    fn begins(&self, client: usize, state: &KeptState) {
        let asks_for_heads = self.now().activity.asks_for_heads();
        let before = if asks_for_heads { head_of(state) } else { None };
        let mut now = self.now();
        now.activity.begins(client);
        now.before.extend(before.map(|head| (client, head)));
    }

    fn ends(&self, client: usize, state: &KeptState) {
        let (before, task) = self.now().ends(client);
        let Some((before, after)) = before.and_then(|before| Some((before, head_of(state)?))) else { return };
        let head = Head::between(client, &before, &after);
        // Most methods have nothing left to do when training is over.
        if head.moved > 0.0 || task == Some(ClientTask::Train) {
            self.now().trained.push(head);
        }
    }
}

impl Progress {
    /// A client is done: with what, and the head it began with.
    fn ends(&mut self, client: usize) -> (Option<Params>, Option<ClientTask>) {
        self.activity.ends(client);
        let place = self.before.iter().position(|(other, _)| *other == client);
        (place.map(|place| self.before.swap_remove(place).1), self.activity.task)
    }
}

/// One line of `heads.jsonl`: the heads trained in a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heads {
    /// Rounds that were over.
    pub round: u64,
    /// In order of their clients.
    pub heads: Vec<Head>,
}

/// What training did to a client's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Whose it is.
    pub client: usize,
    /// `||w_i||` afterwards.
    pub norm: f64,
    /// `||w_i - w_i before||`.
    pub moved: f64,
}

impl Head {
    pub(super) fn between(client: usize, before: &Params, after: &Params) -> Self {
        Self { client, norm: after.norm(), moved: after.minus(before).norm() }
    }
}

/// Writes the journal of heads.
pub(super) struct HeadRecorder<'a> {
    tracker: &'a ProgressTracker,
    journal: Journal,
}

impl<'a> HeadRecorder<'a> {
    /// Continues where the journal ends.
    pub(super) fn open(folder: &RunFolder, tracker: &'a ProgressTracker) -> Result<Self> {
        Ok(Self { tracker, journal: Journal::open(folder.heads_file())? })
    }
}

impl<T: ?Sized> Observer<T> for HeadRecorder<'_> {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        if let Event::Settled { server, .. } = event {
            let heads = self.tracker.settle(server.round);
            self.journal.json(&Heads { round: server.round, heads })?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fedeq_core::{ClientInfo, ClientState, EngineState};

    use super::*;

    fn fresh() -> KeptState {
        ClientState::default().into()
    }

    fn sets(activity: &Activity) -> [Vec<usize>; 3] {
        [&activity.waiting, &activity.working, &activity.done].map(|set| set.iter().copied().collect())
    }

    #[test]
    fn clients_wait_work_and_are_done() {
        let tracker = ProgressTracker::after(4);
        tracker.called(ClientTask::Train, &[2, 5, 7]);
        tracker.begins(5, &fresh());
        tracker.begins(2, &fresh());
        tracker.ends(5, &fresh());
        assert_eq!(sets(&tracker.activity()), [vec![7], vec![2], vec![5]]);
        assert_eq!(tracker.activity().round, 4);
    }

    #[test]
    fn heads_come_in_order_of_their_clients_and_only_from_training() {
        let tracker = ProgressTracker::default();
        for (task, clients) in [(ClientTask::Train, [3, 1]), (ClientTask::Evaluate, [0, 1])] {
            tracker.called(task, &clients);
            clients.iter().for_each(|&client| tracker.begins(client, &fresh()));
            clients.iter().for_each(|&client| tracker.ends(client, &fresh()));
        }
        assert_eq!(tracker.settle(1).iter().map(|head| head.client).collect::<Vec<_>>(), [1, 3]);
        assert!(tracker.settle(2).is_empty() && sets(&tracker.activity()).iter().all(Vec::is_empty));
    }

    /// A state whose engine looks whether it is waited for with the lock.
    struct Watchful(Arc<ProgressTracker>);

    impl EngineState for Watchful {
        fn to_host(&self) -> Result<ClientState> {
            assert!(self.0.now.try_lock().is_ok(), "the lock is held");
            Ok(ClientState::default())
        }

        fn is_finite(&self) -> bool {
            true
        }

        fn size(&self) -> usize {
            0
        }
    }

    #[test]
    fn no_engine_is_waited_for_with_the_lock() {
        let tracker = Arc::new(ProgressTracker::default());
        let state = KeptState::by_engine(ClientInfo::default(), Arc::new(Watchful(Arc::clone(&tracker))));
        tracker.called(ClientTask::Train, &[1]);
        tracker.begins(1, &state);
        tracker.ends(1, &state);
        assert_eq!(tracker.settle(1).len(), 1, "its head was asked for");
    }
}
