//! Whether a process works on a run: what tells a running run from a killed one, for all who ask.
use std::thread;
use std::time::{Duration, Instant};

use super::control::BEAT_PERIOD;
use super::folder::RunFolder;
use super::progress::Activity;

/// What has been seen of the process of a run: its lock, and its beat. Over some network disks locks do not reach us, and only the beat tells.
#[derive(Debug, Default)]
pub struct Heartbeat {
    /// Locks work on this disk: one was seen.
    lock_seen: bool,
    beat: Option<u64>,
    /// When the beat was last seen to change.
    moved: Option<Instant>,
}

/// A process on another machine's disk that has not moved for so long is dead.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a beat is waited for by those who look once.
const PATIENCE: Duration = BEAT_PERIOD.saturating_mul(3);
/// A beat written longer ago than this is not waited for. Clocks of machines that share a disk agree so far.
const RECENT: Duration = Duration::from_secs(60);
/// How often the folder is looked at meanwhile.
const GLANCE: Duration = Duration::from_millis(100);

impl Heartbeat {
    /// Whether a process is working on the run: it holds the lock, or no lock was ever seen and it beats. `activity` is what the folder says now.
    pub fn is_alive(&mut self, folder: &RunFolder, activity: Option<&Activity>) -> bool {
        let is_locked = folder.is_locked();
        self.lock_seen |= is_locked;
        let beat = activity.map(|activity| activity.beat);
        if self.beat.is_some() && beat.is_some() && beat != self.beat {
            self.moved = Some(Instant::now());
        }
        self.beat = beat;
        let beats = self.moved.is_some_and(|moved| moved.elapsed() < SILENCE);
        is_locked || (!self.lock_seen && beats)
    }

    /// The same for those who look once: a beat that was written lately is waited for.
    pub(super) fn is_alive_now(folder: &RunFolder) -> bool {
        let mut heartbeat = Self::default();
        let until = Instant::now() + PATIENCE;
        loop {
            let activity = folder.activity();
            if heartbeat.is_alive(folder, activity.as_ref()) {
                return true;
            }
            let is_recent = activity.is_some() && folder.activity_age().is_none_or(|age| age < RECENT);
            if heartbeat.lock_seen || !is_recent || Instant::now() >= until {
                return false;
            }
            thread::sleep(GLANCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::run::RunState;

    /// The folder of a run that says it is running.
    fn running() -> (tempfile::TempDir, RunFolder) {
        let place = tempfile::TempDir::new().expect("a folder");
        fs::write(place.path().join("status.json"), r#"{ "state": "running", "pid": 1 }"#).expect("written");
        let folder = RunFolder::at(place.path().to_owned());
        (place, folder)
    }

    fn beat(folder: &RunFolder, beat: u64) {
        folder.write_activity(&Activity { beat, ..Activity::default() });
    }

    #[test]
    fn a_run_whose_lock_is_held_is_running_and_killed_afterwards() {
        let (_place, folder) = running();
        let lock = folder.lock().expect("free");
        assert_eq!(folder.state().expect("read"), RunState::Running);
        drop(lock);
        assert_eq!(folder.state().expect("read"), RunState::Killed);
    }

    #[test]
    fn a_run_whose_lock_does_not_reach_us_is_running_as_long_as_it_beats() {
        let (_place, folder) = running();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(|count| {
                    beat(&folder, count);
                    thread::sleep(Duration::from_millis(50));
                });
            });
            while folder.activity().is_none() {
                thread::yield_now();
            }
            let found = folder.state();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(found.expect("read"), RunState::Running);
        });
        assert_eq!(folder.state().expect("read"), RunState::Killed, "it no longer beats");
    }

    #[test]
    fn whoever_watches_and_whoever_looks_once_say_the_same() {
        let (_place, folder) = running();
        beat(&folder, 5);
        let mut watching = Heartbeat::default();
        let mut watched = || folder.watched_state(&mut watching, folder.activity().as_ref()).expect("read");
        assert_eq!(watched(), RunState::Killed);
        assert_eq!(folder.state().expect("read"), RunState::Killed);
        beat(&folder, 10);
        assert_eq!(watched(), RunState::Running);
        // Where a lock was seen, its absence is the end, however the beat may be.
        let lock = folder.lock().expect("free");
        assert_eq!([watched(), folder.state().expect("read")], [RunState::Running; 2]);
        drop(lock);
        beat(&folder, 15);
        assert_eq!(watched(), RunState::Killed);
    }

    #[test]
    fn a_run_that_ended_while_it_was_looked_at_is_not_killed() {
        let (place, folder) = running();
        beat(&folder, 5);
        thread::scope(|scope| {
            let looking = scope.spawn(|| folder.state());
            fs::write(place.path().join("status.json"), r#"{ "state": "stopped", "pid": 1 }"#).expect("written");
            assert_eq!(looking.join().expect("no panic").expect("read"), RunState::Stopped);
        });
    }
}
