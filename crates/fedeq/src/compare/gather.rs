//! From paths to finished runs.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result};

use crate::experiment::Experiment;
use crate::run::{RunFolder, Summary};

/// A run that is complete.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its folder.
    pub path: PathBuf,
    /// What was asked for.
    pub experiment: Experiment,
    /// What came out.
    pub summary: Summary,
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
    /// What is there already.
    seen: BTreeSet<String>,
}

/// The runs at some paths: run folders, or folders that hold run folders.
pub fn gather(paths: &[PathBuf]) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    for path in paths {
        match RunFolder::open(path) {
            Ok(run) => gathered.add_named(&run)?,
            Err(error) => gathered.add_below(path, error)?,
        }
    }
    if gathered.runs.is_empty() {
        return Err(Error::invalid("none of the runs is finished", "finish them with `fedeq resume`"));
    }
    Ok(gathered)
}

impl Gathered {
    /// A run that somebody named must be finished.
    fn add_named(&mut self, run: &RunFolder) -> Result<()> {
        let path = run.path().display();
        let summary = run.summary()?.ok_or_else(|| {
            Error::invalid(format!("`{path}` is not finished"), format!("finish it with `fedeq resume {path}`"))
        })?;
        self.add(run, summary)
    }

    /// All runs in a folder; `otherwise` says what is wrong if there are none.
    fn add_below(&mut self, folder: &Path, otherwise: Error) -> Result<()> {
        let runs = runs_below(folder);
        if runs.is_empty() {
            return Err(otherwise);
        }
        for run in runs {
            match run.summary()? {
                Some(summary) => self.add(&run, summary)?,
                None => self.unfinished.push(run.path().to_owned()),
            }
        }
        Ok(())
    }

    fn add(&mut self, run: &RunFolder, summary: Summary) -> Result<()> {
        let finished = Finished { path: run.path().to_owned(), experiment: run.experiment()?, summary };
        if self.seen.insert(finished.experiment.identity()?) {
            self.runs.push(finished);
        } else {
            self.repeated.push(finished.path);
        }
        Ok(())
    }
}

/// The run folders directly in a folder, in order of their names.
fn runs_below(folder: &Path) -> Vec<RunFolder> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| RunFolder::open(path).ok()).collect()
}
