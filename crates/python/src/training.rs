//! Carrying out a run: the work on a thread of its own, Python on the thread that called.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use fedeq_core::{Error, Result};
use fedeq_python_macros::sheltered;
use fedeq_run::experiment::Experiment;
use fedeq_run::number::counted;
use fedeq_run::place::relocate;
use fedeq_run::present::require_files;
use fedeq_run::run::{FromMemory, Run, RunFolder, Which};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::Arrays;
use crate::error::{Stopped, panicked, raised, refused, without_python};
use crate::external::PythonNetwork;
use crate::fork::require_no_fork;
use crate::relay::{Relay, Report};
use crate::request::Request;

/// Carries out an experiment in a new folder. `watch` is told what happens and may ask to stop, see `fedeq._native.Watcher`. Gives the folder, and whether the run is finished.
#[sheltered]
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are those of `fedeq.run`")]
pub(crate) fn run<'py>(
    py: Python<'py>,
    config: Option<Bound<'py, PyAny>>,
    keywords: Bound<'py, PyDict>,
    settings: Bound<'py, PyDict>,
    arrays: Option<Bound<'py, Arrays>>,
    network: Option<Bound<'py, PyAny>>,
    out: Option<PathBuf>,
    watch: Py<PyAny>,
) -> PyResult<(PathBuf, bool)> {
    let (model, network) = network.as_ref().map(PythonNetwork::of).transpose()?.unzip();
    let request = Request { config, keywords, settings, source: arrays.as_ref().map(|arrays| arrays.get().source()) };
    let experiment = request.experiment(model.as_ref()).map_err(|error| refused(py, &error))?;
    let data = arrays.map(|arrays| arrays.get().take(py)).transpose()?;
    let out = out.unwrap_or_else(|| RunFolder::usual_name(Path::new("runs"), &experiment));
    carry_out(py, &watch, network, move || Run::create_from(&experiment, &out, FromMemory { data, network: model }))
}

/// Continues a run from its last checkpoint, or the one before it. A run that is finished stays as it is.
#[sheltered]
#[pyfunction]
pub(crate) fn resume(
    py: Python<'_>,
    folder: PathBuf,
    previous: bool,
    device: Option<&str>,
    data: Option<PathBuf>,
    network: Option<Bound<'_, PyAny>>,
    watch: Py<PyAny>,
) -> PyResult<(PathBuf, bool)> {
    let device = device.map(str::parse).transpose().map_err(|error| refused(py, &error))?;
    let (folder, is_over) = without_python(py, || {
        let folder = RunFolder::open(&folder)?;
        let is_over = !previous && folder.is_complete();
        if is_over {
            folder.check_finished()?;
        } else if let Some(place) = &data {
            require_files(&folder.experiment()?.data.source, place)?;
        }
        Ok((folder, is_over))
    })?;
    if is_over {
        return Ok((folder.path().to_owned(), true));
    }
    let which = if previous { Which::Previous } else { Which::Latest };
    let (model, network) = network.as_ref().map(PythonNetwork::of).transpose()?.unzip();
    carry_out(py, &watch, network, move || {
        let change = |experiment: &mut Experiment| relocate(experiment, data.as_deref());
        match (model, device) {
            (None, device) => Run::resume(&folder, which, device, change),
            (Some(model), None) => Run::resume_external(&folder, which, change, model),
            (Some(_), Some(_)) => {
                let problem = "`device` does not go with a network of your own, which computes where it likes";
                Err(Error::invalid(problem, "leave it out"))
            }
        }
    })
}

/// How often Python is asked whether somebody pressed Ctrl-C.
const INTERVAL: Duration = Duration::from_millis(50);

/// How a run ended.
struct Ended {
    folder: PathBuf,
    /// Rounds that are kept, and all.
    rounds: [u64; 2],
    outcome: Result<()>,
}

/// What the thread that called has heard and said.
#[derive(Default)]
struct Heard {
    /// Whether a callback asked to stop.
    is_enough: bool,
    /// What Python raised.
    exception: Option<PyErr>,
}

pub(crate) fn carry_out(
    py: Python<'_>,
    watch: &Py<PyAny>,
    network: Option<Arc<PythonNetwork>>,
    begin: impl FnOnce() -> Result<Run> + Send,
) -> PyResult<(PathBuf, bool)> {
    require_no_fork().map_err(|error| refused(py, &error))?;
    let (ended, mut heard) = py.detach(|| {
        let (reports, heard_reports) = sync_channel(0);
        let (replies, heard_replies) = sync_channel(1);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let stop = &stop;
            let work = scope.spawn(move || work(begin, reports, heard_replies, stop));
            let heard = listen(watch, &heard_reports, &replies, stop);
            (work.join(), heard)
        })
    });
    // What the network raised is why the run failed.
    heard.exception = heard.exception.or_else(|| network.and_then(|network| network.exception()));
    match ended {
        Err(panic) => Err(panicked(panic.as_ref())),
        Ok(Err(error)) => Err(heard.exception.unwrap_or_else(|| refused(py, &error))),
        Ok(Ok(ended)) => conclude(py, ended, heard),
    }
}

/// The work. An error is a refusal from before it began.
fn work(
    begin: impl FnOnce() -> Result<Run>,
    reports: SyncSender<Report>,
    replies: Receiver<bool>,
    stop: &AtomicBool,
) -> Result<Ended> {
    let run = begin()?.beside_other_work();
    let prepared = run.prepared();
    let unused = prepared.unused_gpu().map(|gpu| format!("{gpu} is not used; `device=\"cuda\"` trains on it"));
    let remarks = unused.into_iter().chain(prepared.remark()).collect();
    let start = run.start();
    let rounds = start.rounds;
    let mut relay = Relay::begin(start, remarks, reports, replies);
    let outcome = run.train(&mut relay, &|| stop.load(Ordering::Relaxed)).map(|_| ());
    let kept = if outcome.is_ok() { rounds } else { run.folder().kept_rounds().unwrap_or_default() };
    Ok(Ended { folder: run.folder().path().to_owned(), rounds: [kept, rounds], outcome })
}

/// Tells Python what happens until the work is over, and looks whether somebody pressed Ctrl-C.
fn listen(watch: &Py<PyAny>, reports: &Receiver<Report>, replies: &SyncSender<bool>, stop: &AtomicBool) -> Heard {
    let mut heard = Heard::default();
    loop {
        match reports.recv_timeout(INTERVAL) {
            Ok(report) => {
                let is_round = matches!(report, Report::Round { .. });
                heard.tell(watch, report);
                if is_round {
                    let _ = replies.send(heard.wants_to_stop());
                }
            }
            Err(RecvTimeoutError::Timeout) => heard.note(Python::attach(|py| py.check_signals())),
            Err(RecvTimeoutError::Disconnected) => return heard,
        }
        stop.store(heard.wants_to_stop(), Ordering::Relaxed);
    }
}

impl Heard {
    fn wants_to_stop(&self) -> bool {
        self.is_enough || self.exception.is_some()
    }

    /// Nothing more is told to who raised an exception.
    fn tell(&mut self, watch: &Py<PyAny>, report: Report) {
        if self.exception.is_some() {
            return;
        }
        let told = Python::attach(|py| match report {
            Report::Start { lines, round, rounds } => watch.call_method1(py, "started", (lines, round, rounds)).map(|_| false),
            Report::Warning(text) => watch.call_method1(py, "warned", (text,)).map(|_| false),
            Report::Round { numbers, words } => {
                let told = watch.call_method1(py, "settled", (numbers, words));
                told.and_then(|reply| reply.extract::<bool>(py)).and_then(|enough| py.check_signals().map(|()| enough))
            }
        });
        match told {
            Ok(enough) => self.is_enough |= enough,
            Err(exception) => self.exception = Some(exception),
        }
    }

    fn note(&mut self, signals: PyResult<()>) {
        if let Err(exception) = signals {
            self.exception.get_or_insert(exception);
        }
    }
}

/// What there is to return or to raise.
fn conclude(py: Python<'_>, ended: Ended, heard: Heard) -> PyResult<(PathBuf, bool)> {
    let Ended { folder, rounds: [kept, rounds], outcome } = ended;
    let path = folder.display();
    let note = match &outcome {
        Ok(()) => format!("`{path}` is finished"),
        Err(_) => format!(
            "stopped after {kept} of {}\nhint: continue from there with `fedeq.resume(\"{path}\")`",
            counted(rounds as usize, "round")
        ),
    };
    if let Some(exception) = heard.exception {
        if exception.is_instance_of::<PyKeyboardInterrupt>(py) {
            return Err(PyKeyboardInterrupt::new_err(note));
        }
        exception.add_note(py, note)?;
        return Err(exception);
    }
    match outcome {
        Ok(()) => Ok((folder, true)),
        Err(Error::Interrupted) if heard.is_enough => Ok((folder, false)),
        Err(Error::Interrupted) => Err(Stopped::new_err(note)),
        Err(error) => {
            let exception = raised(&error);
            exception
                .add_note(py, format!("the run is in `{path}`; {kept} of {} are kept", counted(rounds as usize, "round")))?;
            Err(exception)
        }
    }
}
