//! A time after which work must have ended, as machines with a job limit have it.
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fedeq_core::{Error, Event, InProcess, Observer, Result};

use crate::run::SimulationObserver;

/// How long work may take, as a person types it.
///
/// ```
/// use fedeq_run::limit::TimeBudget;
/// use std::time::Duration;
/// assert_eq!("25m".parse::<TimeBudget>()?.0, Duration::from_secs(25 * 60));
/// assert_eq!("1h30m".parse::<TimeBudget>()?.0, Duration::from_secs(90 * 60));
/// assert!("25".parse::<TimeBudget>().is_err());
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBudget(pub Duration);

/// A year: more is a slip.
const MOST_SECONDS: u64 = 366 * 86_400;

impl FromStr for TimeBudget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            let hint = "write seconds, minutes, hours or days, such as `90s`, `25m`, `2h`, `1h30m` or `1d`, up to `366d`";
            Error::invalid(format!("the time budget is `{text}`, which is no time (`--time-budget`)"), hint)
        };
        let seconds = seconds_of(text).filter(|seconds| (1..=MOST_SECONDS).contains(seconds)).ok_or_else(malformed)?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

/// Numbers with units, each unit once and the largest first.
fn seconds_of(text: &str) -> Option<u64> {
    let (mut rest, mut total, mut last) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let (number, unit) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
        let size = match unit.chars().next()? {
            'd' => 86_400,
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        if size >= last {
            return None;
        }
        total = number.parse::<u64>().ok()?.checked_mul(size)?.checked_add(total)?;
        (rest, last) = (&unit[1..], size);
    }
    Some(total)
}

/// When work must have ended. Without a budget it never is over.
#[derive(Debug)]
pub struct TimeLimit {
    begun: Instant,
    budget: Option<Duration>,
    /// The bytes that are to be written once work has ended: checkpoints of the runs under way.
    to_write: AtomicU64,
    /// Bytes a second that are written then.
    speed: f64,
}

/// Bytes a second that even a shared disk takes.
const DISK: f64 = 150e6;
/// Bytes a second that are compressed and written.
const ARCHIVE: f64 = 40e6;

impl TimeLimit {
    /// A limit that counts from now; what is kept is afterwards packed into an archive, or is not.
    pub fn new(budget: Option<TimeBudget>, is_packed: bool) -> Self {
        let speed = if is_packed { ARCHIVE } else { DISK };
        Self { begun: Instant::now(), budget: budget.map(|TimeBudget(time)| time), to_write: AtomicU64::new(0), speed }
    }

    /// Whether no further work may begin.
    pub fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Whether work of so many seconds ends in time.
    pub fn allows(&self, seconds: f64) -> bool {
        self.left().is_none_or(|left| left.as_secs_f64() >= seconds)
    }

    /// The time for work that is left: without what it takes to write checkpoints, and a little more for whatever else is slow.
    pub fn left(&self) -> Option<Duration> {
        let budget = self.budget?;
        let seconds = budget.as_secs_f64();
        let spare = (0.02 * seconds).clamp(0.3, 30.0);
        let writing = self.to_write.load(Ordering::Relaxed) as f64 / self.speed;
        let reserve = (spare + writing).min(0.5 * seconds);
        Some(budget.saturating_sub(Duration::from_secs_f64(reserve)).saturating_sub(self.begun.elapsed()))
    }

    /// Whether another run may begin whose checkpoint has so many bytes: the time to write it must not be taken from runs under way.
    pub fn has_time_to_write(&self, bytes: u64) -> bool {
        let is_alone = self.to_write.load(Ordering::Relaxed) == 0;
        is_alone || self.allows(bytes as f64 / self.speed)
    }

    /// Reserves the time to write so many bytes.
    fn reserve(&self, bytes: u64) {
        self.to_write.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.to_write.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Says when one run must stop: at the end of a round if the next one would not end before the limit, so that nothing is done in vain.
#[derive(Debug)]
pub struct RunClock<'a> {
    limit: &'a TimeLimit,
    /// The round after which it is enough for now.
    until: Option<u64>,
    has_reached: AtomicBool,
    stops: AtomicBool,
    rounds: AtomicU64,
}

impl<'a> RunClock<'a> {
    /// The clock of a run that is about to begin.
    pub fn new(limit: &'a TimeLimit) -> Self {
        let [has_reached, stops] = [false; 2].map(AtomicBool::new);
        Self { limit, until: None, has_reached, stops, rounds: AtomicU64::new(0) }
    }

    /// The same for a run that is stopped after a round, to be continued perhaps.
    pub fn until(self, round: Option<u64>) -> Self {
        Self { until: round, ..self }
    }

    /// Whether the run was stopped since it is far enough.
    pub fn has_reached(&self) -> bool {
        self.has_reached.load(Ordering::Relaxed)
    }

    /// Whether the run must stop. Once it must, that stays so: when it gives its reserve back, there seems to be time again.
    pub fn is_over(&self) -> bool {
        if self.limit.is_over() {
            self.stops.store(true, Ordering::Relaxed);
        }
        self.stops.load(Ordering::Relaxed)
    }

    /// The rounds that were over since it began.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Sees rounds end, beside another observer. Until it is dropped, time is reserved to write a checkpoint of so many bytes.
    pub fn observer(&'a self, inner: Box<SimulationObserver<'a>>, checkpoint: u64) -> ClockObserver<'a> {
        self.limit.reserve(checkpoint);
        ClockObserver { inner, clock: self, since: Instant::now(), longest: 0.0, checkpoint }
    }
}

/// Measures rounds for a [`RunClock`].
pub struct ClockObserver<'a> {
    inner: Box<SimulationObserver<'a>>,
    clock: &'a RunClock<'a>,
    since: Instant,
    /// The seconds of the longest round so far, with its evaluation.
    longest: f64,
    checkpoint: u64,
}

impl<'t> Observer<InProcess<'t>> for ClockObserver<'_> {
    fn observe(&mut self, event: &Event<'_>, transport: &mut InProcess<'t>) -> Result<ControlFlow<()>> {
        if let Event::Settled { last, server } = event {
            if !*last && self.clock.until.is_some_and(|round| server.round >= round) {
                self.clock.has_reached.store(true, Ordering::Relaxed);
                self.clock.stops.store(true, Ordering::Relaxed);
            }
            self.clock.rounds.fetch_add(1, Ordering::Relaxed);
            self.longest = self.longest.max(self.since.elapsed().as_secs_f64());
            self.since = Instant::now();
            if !*last && !self.clock.limit.allows(self.longest) {
                self.clock.stops.store(true, Ordering::Relaxed);
            }
        }
        self.inner.observe(event, transport)
    }
}

impl Drop for ClockObserver<'_> {
    fn drop(&mut self) {
        self.clock.limit.give_back(self.checkpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let seconds = |text: &str| text.parse::<TimeBudget>().map(|budget| budget.0.as_secs()).ok();
        assert_eq!(
            ["90s", "25m", "2h", "1d", "1h30m", "2h5s", "366d"].map(seconds),
            [Some(90), Some(1_500), Some(7_200), Some(86_400), Some(5_400), Some(7_205), Some(31_622_400)]
        );
        for nonsense in [
            "",
            "0s",
            "0h0m",
            "25",
            "m",
            "-5m",
            "1.5h",
            "5 m",
            "30m1h",
            "5m5m",
            "5M",
            "367d",
            "99999999999999999999s",
            "5ms",
            "soon",
        ] {
            assert_eq!(seconds(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn time_is_left_to_write_what_is_kept() {
        let limit = TimeLimit::new(Some(TimeBudget(Duration::from_secs(100))), false);
        let left = limit.left().expect("a limit").as_secs_f64();
        assert!((97.0..98.1).contains(&left) && limit.allows(90.0) && !limit.allows(99.0), "{left}");
        limit.reserve(3_000_000_000);
        let less = limit.left().expect("a limit").as_secs_f64();
        assert!((76.0..78.1).contains(&less), "{less}");
        limit.reserve(u64::MAX / 4);
        assert!(limit.left().expect("a limit").as_secs_f64() > 49.0, "at least half of it is for work");
        assert!(TimeLimit::new(None, false).allows(1e300) && !TimeLimit::new(None, true).is_over());
    }

    #[test]
    fn a_run_that_had_to_stop_is_not_told_that_there_is_time_again() {
        let limit = TimeLimit {
            begun: Instant::now() - Duration::from_secs(70),
            ..TimeLimit::new(Some(TimeBudget(Duration::from_secs(100))), false)
        };
        let clock = RunClock::new(&limit);
        assert!(!clock.is_over() && limit.has_time_to_write(6_000_000_000), "nothing else is under way");
        limit.reserve(1_500_000_000);
        assert!(!clock.is_over() && limit.has_time_to_write(1_500_000_000) && !limit.has_time_to_write(3_000_000_000));
        limit.reserve(3_000_000_000);
        assert!(clock.is_over());
        limit.give_back(4_500_000_000);
        assert!(clock.is_over() && !limit.is_over());
    }
}
