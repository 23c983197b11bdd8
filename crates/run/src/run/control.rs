//! Pausing and stopping a run from outside its process: a command in its folder, a thread that looks for it, and a gate before every client.
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::folder::RunFolder;
use super::metadata::RunState;
use super::progress::{Activity, ProgressTracker};

/// What a run is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlCommand {
    /// Continue.
    #[default]
    #[serde(rename = "go-on")]
    Continue,
    /// Wait after the clients at work.
    Pause,
    /// Stop after the clients at work, as with Ctrl-C.
    Stop,
}

/// What `control.json` says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlFile {
    #[serde(rename = "order")]
    pub(super) command: ControlCommand,
}

/// How often a waiting client looks whether Ctrl-C was pressed.
const GLANCE: Duration = Duration::from_millis(100);

/// Lets clients begin, or not.
#[derive(Default)]
pub(super) struct PauseGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    command: ControlCommand,
    /// When the first client began to wait.
    since: Option<Instant>,
    /// Time spent waiting that has not been asked for yet.
    waited: Duration,
}

impl PauseGate {
    /// What holds from now on; says whether that is anything new.
    pub(super) fn set(&self, command: ControlCommand) -> bool {
        let mut state = self.state();
        let is_new = state.command != command;
        state.command = command;
        self.changed.notify_all();
        is_new
    }

    /// Waits as long as the command is to pause. True means stop.
    pub(super) fn stops(&self, interrupted: &dyn Fn() -> bool) -> bool {
        let mut state = self.state();
        loop {
            let stops = interrupted() || state.command == ControlCommand::Stop;
            if stops || state.command == ControlCommand::Continue {
                state.end_wait();
                return stops;
            }
            state.since.get_or_insert_with(Instant::now);
            let woken = self.changed.wait_timeout(state, GLANCE);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the command is to stop, without waiting for anything.
    pub(super) fn is_stopped(&self) -> bool {
        self.state().command == ControlCommand::Stop
    }

    /// Seconds spent waiting since this was last asked: no part of the work.
    pub(super) fn take_waited(&self) -> f64 {
        std::mem::take(&mut self.state().waited).as_secs_f64()
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GateState {
    fn end_wait(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }
}

/// How often the folder is looked at.
const INTERVAL: Duration = Duration::from_millis(200);

/// Says at least after so many looks that the run is alive.
const BEAT: u64 = 5;

/// How much time lies between two beats at most, while the machine is not overloaded.
pub(super) const BEAT_PERIOD: Duration = INTERVAL.saturating_mul(BEAT as u32);

/// A thread beside a run: it reads commands from the run's folder and writes there who is at work.
#[derive(Clone, Copy)]
pub(super) struct ControlThread<'a> {
    pub(super) folder: &'a RunFolder,
    pub(super) gate: &'a PauseGate,
    pub(super) progress: &'a ProgressTracker,
}

impl ControlThread<'_> {
    /// Does some work, with the thread beside it until it is over.
    pub(super) fn beside<R>(self, work: impl FnOnce() -> R) -> R {
        // Nothing is ever sent: the thread ends when this end is dropped, also by a panic.
        let (over, until) = channel::<()>();
        thread::scope(|scope| {
            let _over = over;
            scope.spawn(move || self.watch(&until));
            work()
        })
    }

    fn watch(self, until: &Receiver<()>) {
        let (mut told, mut looks) = (Activity::default(), 0);
        while until.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            self.apply_command();
            looks += 1;
            self.write_activity(&mut told, looks);
        }
        self.folder.end_activity();
    }

    fn apply_command(self) {
        let Some(command) = self.folder.control_command() else { return };
        if self.gate.set(command) {
            let state = if command == ControlCommand::Pause { RunState::Paused } else { RunState::Running };
            // A status that cannot be written now is no reason to lose the run; its last one is written with care.
            let _ = self.folder.write_status(state);
        }
    }

    fn write_activity(self, told: &mut Activity, looks: u64) {
        let now = Activity { beat: told.beat, ..self.progress.activity() };
        if now != *told || looks.is_multiple_of(BEAT) {
            *told = Activity { beat: looks, ..now };
            self.folder.write_activity(told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn an_open_gate_lets_clients_begin_and_a_stop_does_not() {
        let gate = PauseGate::default();
        assert!(!gate.stops(&|| false));
        assert!(gate.stops(&|| true));
        assert!(gate.set(ControlCommand::Stop) && !gate.set(ControlCommand::Stop));
        assert!(gate.stops(&|| false));
    }

    #[test]
    fn a_pause_ends_when_the_command_changes_and_its_time_is_told_once() {
        let gate = PauseGate::default();
        gate.set(ControlCommand::Pause);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.stops(&|| false));
            while gate.state().since.is_none() {
                thread::yield_now();
            }
            gate.set(ControlCommand::Continue);
            assert!(!waiting.join().expect("no panic"));
        });
        assert!(gate.take_waited() > 0.0);
        assert_eq!(gate.take_waited(), 0.0);
    }

    #[test]
    fn ctrl_c_is_heard_during_a_pause() {
        let (gate, pressed) = (PauseGate::default(), AtomicBool::new(false));
        gate.set(ControlCommand::Pause);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.stops(&|| pressed.load(Ordering::Relaxed)));
            pressed.store(true, Ordering::Relaxed);
            assert!(waiting.join().expect("no panic"));
        });
    }
}
