//! Where clients pass before they begin: it lets them through, holds them up or sends them home.
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::order::Order;

/// How often a waiting client looks whether somebody pressed Ctrl-C.
const GLANCE: Duration = Duration::from_millis(100);

/// Lets clients begin, or not.
#[derive(Default)]
pub(super) struct Gate {
    standing: Mutex<Standing>,
    changed: Condvar,
}

#[derive(Default)]
struct Standing {
    order: Order,
    /// When the first client began to wait.
    since: Option<Instant>,
    /// Time spent waiting that nobody has asked about yet.
    waited: Duration,
}

impl Gate {
    /// What holds from now on; says whether that is anything new.
    pub(super) fn set(&self, order: Order) -> bool {
        let mut standing = self.standing();
        let is_new = standing.order != order;
        standing.order = order;
        self.changed.notify_all();
        is_new
    }

    /// Waits as long as the order is to pause. True means stop.
    pub(super) fn stops(&self, interrupted: &dyn Fn() -> bool) -> bool {
        let mut standing = self.standing();
        loop {
            let stops = interrupted() || standing.order == Order::Stop;
            if stops || standing.order == Order::GoOn {
                standing.end_wait();
                return stops;
            }
            standing.since.get_or_insert_with(Instant::now);
            let woken = self.changed.wait_timeout(standing, GLANCE);
            standing = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Seconds spent waiting since this was last asked: no part of the work.
    pub(super) fn take_waited(&self) -> f64 {
        std::mem::take(&mut self.standing().waited).as_secs_f64()
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    fn end_wait(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn an_open_gate_lets_pass_and_a_stop_sends_home() {
        let gate = Gate::default();
        assert!(!gate.stops(&|| false));
        assert!(gate.stops(&|| true));
        assert!(gate.set(Order::Stop) && !gate.set(Order::Stop));
        assert!(gate.stops(&|| false));
    }

    #[test]
    fn a_pause_ends_when_the_order_changes_and_its_time_is_told_once() {
        let gate = Gate::default();
        gate.set(Order::Pause);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.stops(&|| false));
            while gate.standing().since.is_none() {
                thread::yield_now();
            }
            gate.set(Order::GoOn);
            assert!(!waiting.join().expect("no panic"));
        });
        assert!(gate.take_waited() > 0.0);
        assert_eq!(gate.take_waited(), 0.0);
    }

    #[test]
    fn ctrl_c_is_heard_during_a_pause() {
        let (gate, pressed) = (Gate::default(), AtomicBool::new(false));
        gate.set(Order::Pause);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.stops(&|| pressed.load(Ordering::Relaxed)));
            pressed.store(true, Ordering::Relaxed);
            assert!(waiting.join().expect("no panic"));
        });
    }
}
