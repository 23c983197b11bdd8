//! From paths to finished runs.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result};

use crate::experiment::Experiment;
use crate::run::{Links, RunFolder, RunSummary, runs_below};

/// A run that is complete.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its folder.
    pub path: PathBuf,
    /// What was asked for.
    pub experiment: Experiment,
    /// What came out.
    pub summary: RunSummary,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// Complete runs, each experiment once.
    pub runs: Vec<Finished>,
    /// Runs that are not finished.
    pub unfinished: Vec<PathBuf>,
    /// Runs of an experiment and a seed that were already there.
    pub repeated: Vec<PathBuf>,
    /// What was gathered already.
    seen: BTreeSet<String>,
}

/// The runs at some paths: run folders, or folders that hold run folders.
pub fn gather(paths: &[PathBuf]) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    for path in paths {
        for run in folders(path)? {
            match run.summary()? {
                Some(summary) => gathered.add(&run, summary)?,
                None if run.path() == path => return Err(unfinished(path)),
                None => gathered.unfinished.push(run.path().to_owned()),
            }
        }
    }
    if gathered.runs.is_empty() {
        return Err(Error::invalid("none of the runs is finished", "finish them with `fedeq resume`"));
    }
    Ok(gathered)
}

impl Gathered {
    fn add(&mut self, run: &RunFolder, summary: RunSummary) -> Result<()> {
        let finished = Finished { path: run.path().to_owned(), experiment: run.experiment()?, summary };
        if self.seen.insert(finished.experiment.identity()?) {
            self.runs.push(finished);
        } else {
            self.repeated.push(finished.path);
        }
        Ok(())
    }
}

/// A run that is named must be finished.
fn unfinished(path: &Path) -> Error {
    let path = path.display();
    Error::invalid(format!("`{path}` is not finished"), format!("finish it with `fedeq resume {path}`"))
}

/// The run folder at a path, or those in the folder there, in order of their names.
pub fn folders(path: &Path) -> Result<Vec<RunFolder>> {
    let runs: Vec<RunFolder> = runs_below(path, Links::Followed).into_values().map(RunFolder::at).collect();
    if runs.is_empty() {
        let problem = format!("`{}` is not a run folder, and there is none in it", path.display());
        return Err(Error::invalid(problem, "give folders that `fedeq run` named, or one that holds them, such as `runs`"));
    }
    Ok(runs)
}
