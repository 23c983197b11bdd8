//! What ends a node's work whatever it is doing: a stop, a panic, too much time or memory.
//!
//! A node may end at any moment without losing anything, so this thread ends the process and asks nothing of the one that works.
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fedeq_flower::store::CurrentWork;

use crate::cli::output::tell;
use crate::cli::settings::is_interrupted;
use crate::memory::resident;
#[cfg(unix)]
use crate::program;

/// Watches over the work of a node.
pub(super) struct Guard {
    /// The request at work.
    pub(super) activity: Arc<CurrentWork>,
    /// How long work on a request may take.
    pub(super) most_time: Duration,
    /// The bytes of memory that the process may hold; any where the system does not tell.
    pub(super) most_memory: u64,
}

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long the process may take to end by itself.
const GRACE: Duration = Duration::from_millis(500);

/// Set once any thread panics.
static PANICKED: AtomicBool = AtomicBool::new(false);

impl Guard {
    /// Watches until the process ends.
    pub(super) fn start(self) {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.store(true, Ordering::Relaxed);
            usual(info);
        }));
        thread::spawn(move || self.watch());
    }

    fn watch(&self) {
        let (mut stop, mut panicked) = (Since::default(), Since::default());
        loop {
            thread::sleep(INTERVAL);
            if stop.elapsed(is_interrupted()) > GRACE {
                self.activity.interrupted();
                std::process::exit(0);
            }
            if panicked.elapsed(PANICKED.load(Ordering::Relaxed)) > GRACE {
                self.activity.panicked();
                std::process::exit(1);
            }
            if let Some(reason) = self.excess() {
                self.activity.abandon(&reason);
                tell(&format!("gave up a request: {reason}; the node starts again"));
                start_again();
            }
        }
    }

    /// What the request at work takes too much of.
    fn excess(&self) -> Option<String> {
        let elapsed = self.activity.elapsed()?;
        if elapsed > self.most_time {
            return Some(format!("work on it took more than {} s, which `--max-seconds` allows", self.most_time.as_secs()));
        }
        let held = resident().filter(|bytes| *bytes > self.most_memory)?;
        Some(format!("work on it took {} MB of memory; `--max-memory` allows {}", held >> 20, self.most_memory >> 20))
    }
}

/// When something was first so.
#[derive(Default)]
struct Since(Option<Instant>);

impl Since {
    fn elapsed(&mut self, is_so: bool) -> Duration {
        if is_so { self.0.get_or_insert_with(Instant::now).elapsed() } else { Duration::ZERO }
    }
}

/// Becomes the same program with the same arguments: threads and memory are gone, files are as after a power cut.
#[cfg(unix)]
fn start_again() -> ! {
    use std::os::unix::process::CommandExt;
    if let Some((program, words)) = program::words().ok().as_deref().and_then(<[_]>::split_first) {
        let error = std::process::Command::new(program).args(words).args(program::arguments()).exec();
        tell(&format!("the node cannot start itself again: {error}"));
    }
    std::process::exit(1)
}

/// Whoever started it has to start it again.
#[cfg(not(unix))]
fn start_again() -> ! {
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Not a test: what the next one starts as a process of its own.
    #[test]
    #[ignore = "it panics, for another test"]
    fn a_process_whose_main_thread_hangs_while_another_one_panics() {
        let guard = Guard { activity: Arc::default(), most_time: Duration::MAX, most_memory: u64::MAX };
        guard.start();
        let _ = thread::spawn(|| panic!("a worker")).join();
        thread::sleep(Duration::from_secs(600));
    }

    #[test]
    fn a_panic_of_any_thread_ends_the_process_although_others_go_on() {
        let name = "cli::node::guard::tests::a_process_whose_main_thread_hangs_while_another_one_panics";
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", name, "--ignored"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let begun = Instant::now();
        let ended = loop {
            if let Some(ended) = child.try_wait().expect("ours") {
                break Some(ended);
            }
            if begun.elapsed() > Duration::from_secs(60) {
                let _ = child.kill();
                break None;
            }
            thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.and_then(|ended| ended.code()), Some(1));
    }
}
