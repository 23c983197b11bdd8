//! Resuming runs, each in a process of its own.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Runs that were resumed from here.
pub(super) struct Starts {
    program: Vec<OsString>,
    under_way: BTreeMap<String, Child>,
    /// What went wrong the last time.
    troubles: BTreeMap<String, String>,
}

impl Starts {
    pub(super) fn new(program: Vec<OsString>) -> Self {
        Self { program, under_way: BTreeMap::new(), troubles: BTreeMap::new() }
    }

    /// Resumes a run, unless that is under way already.
    pub(super) fn resume(&mut self, run: &str, folder: &Path) -> std::io::Result<()> {
        self.troubles.remove(run);
        if !self.under_way.contains_key(run) {
            self.under_way.insert(run.to_owned(), resume_command(&self.program, folder).spawn()?);
        }
        Ok(())
    }

    /// Whether a run was resumed from here and its process lives.
    pub(super) fn is_under_way(&self, run: &str) -> bool {
        self.under_way.contains_key(run)
    }

    /// Why the last attempt to resume a run failed.
    pub(super) fn trouble(&self, run: &str) -> Option<&str> {
        self.troubles.get(run).map(String::as_str)
    }

    /// Sees who has ended, and how.
    pub(super) fn look(&mut self) {
        let ended = |child: &mut Child| child.try_wait().ok().flatten();
        let over: Vec<String> = self.under_way.iter_mut().filter_map(|(run, child)| ended(child).map(|_| run.clone())).collect();
        for run in over {
            let trouble = self.under_way.remove(&run).and_then(last_words);
            self.troubles.extend(trouble.map(|words| (run, words)));
        }
    }
}

fn resume_command(program: &[OsString], folder: &Path) -> Command {
    let mut command = Command::new(program.first().map_or("fedeq".as_ref(), OsString::as_os_str));
    command.args(program.iter().skip(1)).args(["resume", "--quiet"]).arg("--").arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Ctrl-C in the dashboard's terminal ends the dashboard, not the runs.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

/// What a process that failed had to say; one that was stopped by somebody did not fail.
fn last_words(mut child: Child) -> Option<String> {
    const STOPPED: i32 = 130;
    let status = child.wait().ok()?;
    if status.success() || status.code() == Some(STOPPED) {
        return None;
    }
    let mut words = String::new();
    child.stderr.take()?.read_to_string(&mut words).ok()?;
    Some(words.trim().to_owned()).filter(|words| !words.is_empty()).or_else(|| Some(format!("it ended with {status}")))
}
