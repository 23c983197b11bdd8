//! Who is at work right now, for people who look on.
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fedeq_core::{ClientState, Params, Task, Witness};
use serde::{Deserialize, Serialize};

use super::folder::RunFolder;
use super::heads::Head;
use super::reach::LARGEST;

/// What `activity.json` says. It is written while a run is being carried out, and is no part of its results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Grows as long as the process lives: on a disk where locks do not work, this tells that it does.
    pub beat: u64,
    /// Rounds that are over.
    pub round: u64,
    /// What clients were asked to do last.
    pub task: Option<Task>,
    /// Clients that wait for their turn.
    pub waiting: BTreeSet<usize>,
    /// Clients at work.
    pub working: BTreeSet<usize>,
    /// Clients that are done.
    pub done: BTreeSet<usize>,
}

impl Activity {
    fn called(&mut self, task: Task, clients: &[usize]) {
        // Clients that do not work in step are called a few at a time: those who are done with the same task stay in sight.
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
}

impl RunFolder {
    /// Who is at work; nothing where no process has said so.
    pub fn activity(&self) -> Option<Activity> {
        self.json(&self.activity_file(), LARGEST).ok()
    }

    /// Tells who is at work. Not synced to disk, and not worth stopping a run for if it fails.
    pub(super) fn tell_activity(&self, activity: &Activity) {
        let partial = self.path().join("activity.json.partial");
        let written = serde_json::to_string(activity).is_ok_and(|json| fs::write(&partial, json).is_ok());
        if written {
            let _ = fs::rename(&partial, self.activity_file());
        }
    }

    /// Nobody is at work any more.
    pub(super) fn end_activity(&self) {
        let _ = fs::remove_file(self.activity_file());
    }
}

/// Sees clients come and go, and what becomes of their heads.
#[derive(Default)]
pub(super) struct Board {
    news: Mutex<News>,
}

#[derive(Default)]
struct News {
    activity: Activity,
    /// The heads that clients at work began with.
    before: Vec<(usize, Params)>,
    /// The heads trained since they were last asked for.
    trained: Vec<Head>,
}

impl Board {
    /// A board of a run that has come so far.
    pub(super) fn after(round: u64) -> Self {
        let board = Self::default();
        board.news().activity.round = round;
        board
    }

    /// Who is at work.
    pub(super) fn activity(&self) -> Activity {
        self.news().activity.clone()
    }

    /// A round is over; gives the heads that were trained in it, in order of their clients.
    pub(super) fn settle(&self, round: u64) -> Vec<Head> {
        let mut news = self.news();
        news.activity = Activity { round, ..Activity::default() };
        let mut trained = std::mem::take(&mut news.trained);
        trained.sort_by_key(|head| head.client);
        trained
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The head by which a client is judged: that of its second model, where the method keeps one.
fn head_of(state: &ClientState) -> Params {
    state.second.as_ref().unwrap_or(&state.own).head()
}

impl Witness for Board {
    fn called(&self, task: Task, clients: &[usize]) {
        self.news().activity.called(task, clients);
    }

    fn begins(&self, client: usize, state: &ClientState) {
        let mut news = self.news();
        news.activity.begins(client);
        if matches!(news.activity.task, Some(Task::Train | Task::Finish)) {
            news.before.push((client, head_of(state)));
        }
    }

    fn ends(&self, client: usize, state: &ClientState) {
        let mut news = self.news();
        news.activity.ends(client);
        if let Some(place) = news.before.iter().position(|(other, _)| *other == client) {
            let (_, before) = news.before.swap_remove(place);
            let head = Head::between(client, &before, &head_of(state));
            // Most methods have nothing left to do when training is over.
            if head.moved > 0.0 || news.activity.task == Some(Task::Train) {
                news.trained.push(head);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(activity: &Activity) -> [Vec<usize>; 3] {
        [&activity.waiting, &activity.working, &activity.done].map(|set| set.iter().copied().collect())
    }

    #[test]
    fn clients_wait_work_and_are_done() {
        let board = Board::after(4);
        board.called(Task::Train, &[2, 5, 7]);
        board.begins(5, &ClientState::default());
        board.begins(2, &ClientState::default());
        board.ends(5, &ClientState::default());
        assert_eq!(sets(&board.activity()), [vec![7], vec![2], vec![5]]);
        assert_eq!(board.activity().round, 4);
    }

    #[test]
    fn heads_come_in_order_of_their_clients_and_only_from_training() {
        let board = Board::default();
        for (task, clients) in [(Task::Train, [3, 1]), (Task::Evaluate, [0, 1])] {
            board.called(task, &clients);
            clients.iter().for_each(|&client| board.begins(client, &ClientState::default()));
            clients.iter().for_each(|&client| board.ends(client, &ClientState::default()));
        }
        assert_eq!(board.settle(1).iter().map(|head| head.client).collect::<Vec<_>>(), [1, 3]);
        assert!(board.settle(2).is_empty() && sets(&board.activity()).iter().all(Vec::is_empty));
    }
}
