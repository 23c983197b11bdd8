//! A thread beside a run that carries orders in from its folder and news out to it.
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::activity::{Activity, Board};
use super::folder::RunFolder;
use super::gate::Gate;
use super::order::Order;
use super::status::State;

/// How often it goes there and back.
const WALK: Duration = Duration::from_millis(200);

/// It tells at least after so many walks that the run is alive.
const BEAT: u64 = 5;

/// Where orders and news are left, inside the process and outside.
#[derive(Clone, Copy)]
pub(super) struct Attendant<'a> {
    pub(super) folder: &'a RunFolder,
    pub(super) gate: &'a Gate,
    pub(super) board: &'a Board,
}

impl Attendant<'_> {
    /// Does some work, with an attendant beside it until it is over.
    pub(super) fn beside<R>(self, work: impl FnOnce() -> R) -> R {
        // Nothing is ever sent: the attendant leaves when this end is dropped, also by a panic.
        let (over, until) = channel::<()>();
        thread::scope(|scope| {
            let _over = over;
            scope.spawn(move || self.walk(&until));
            work()
        })
    }

    fn walk(self, until: &Receiver<()>) {
        let (mut told, mut walks) = (Activity::default(), 0);
        while until.recv_timeout(WALK) == Err(RecvTimeoutError::Timeout) {
            self.bring_order();
            walks += 1;
            self.take_news(&mut told, walks);
        }
        self.folder.end_activity();
    }

    fn bring_order(self) {
        let Some(order) = self.folder.order() else { return };
        if self.gate.set(order) {
            let state = if order == Order::Pause { State::Paused } else { State::Running };
            // A status that cannot be written now is no reason to lose the run; its last one is written with care.
            let _ = self.folder.write_status(state);
        }
    }

    fn take_news(self, told: &mut Activity, walks: u64) {
        let news = Activity { beat: told.beat, ..self.board.activity() };
        if news != *told || walks.is_multiple_of(BEAT) {
            *told = Activity { beat: walks, ..news };
            self.folder.tell_activity(told);
        }
    }
}
