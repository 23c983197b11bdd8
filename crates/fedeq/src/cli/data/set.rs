//! Which data set a person means, and where it is.
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_data::Dataset;
use fedeq_data::source::{Source, catalog};

use crate::cli::failure::{Failure, Outcome};
use crate::cli::settings::parsed;
use crate::cli::settings::usual_folder;
use fedeq_run::closest::closest;
use fedeq_run::experiment::{Experiment, Override};
use fedeq_run::present::{found_at, require_present};

/// Where data sets are looked for.
#[derive(Args, Clone, Debug)]
pub(super) struct DataFolder {
    /// The folder that data sets are kept in [default: $FEDEQ_DATA, or data]
    #[arg(long = "data", value_name = "DIR")]
    given: Option<PathBuf>,
}

impl DataFolder {
    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.given.clone().unwrap_or_else(usual_folder)
    }
}

/// A data set by name or by path.
#[derive(Args, Clone, Debug)]
pub(super) struct Set {
    /// A name from `fedeq data list`, or the path of your own data: a CSV file, a JSON-lines file, a file of arrays, or a folder of
    /// pictures by client and class
    #[arg(value_name = "NAME", default_value = "digits", add = crate::cli::completions::data_sets())]
    name: String,
    #[command(flatten)]
    folder: DataFolder,
    /// A setting of the data set, such as `data.source.label=outcome` for the column of a CSV file that is to be predicted; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl Set {
    /// Reads it.
    pub(super) fn load(&self) -> Outcome<Dataset> {
        let path = Path::new(&self.name);
        match known(&self.name) {
            Some(source) if source.entry().places.is_empty() => {
                self.refuse_folder("is part of the program")?;
                Ok(self.with_settings(source)?.load(path)?)
            }
            Some(source) => {
                let folder = self.folder.path();
                require_present(&source, &folder)?;
                Ok(self.with_settings(source)?.load(&folder)?)
            }
            None if path.exists() => {
                self.refuse_folder("is a path of its own")?;
                Ok(self.with_settings(found_at(path)?)?.load(path)?)
            }
            None => Err(unknown(&self.name)),
        }
    }

    /// The source with the settings that were given of it, which are read as those of an experiment.
    fn with_settings(&self, source: Source) -> Outcome<Source> {
        let mut settings = parsed(&self.settings)?;
        if let Some(other) = settings.iter().find(|setting| !setting.path.iter().take(2).eq(["data", "source"])) {
            let problem = format!("`--set {other}` is no setting of a data set");
            return Err(Failure::request(problem, "give settings that begin with `data.source.`"));
        }
        if settings.is_empty() {
            return Ok(source);
        }
        settings.push(Override::new("data.source.name", source.name()));
        Ok(Experiment::read(None, &settings).map_err(Failure::refused)?.data.source)
    }

    /// Refuses a data folder in which nothing would be looked for.
    fn refuse_folder(&self, reason: &str) -> Outcome<()> {
        let Some(folder) = &self.folder.given else { return Ok(()) };
        let folder = folder.display();
        let problem = format!("`--data {folder}` is given, and `{}` {reason}: nothing there would be used", self.name);
        Err(Failure::request(problem, format!("leave it out, or name what to look at: `{folder}`, or one of `fedeq data list`")))
    }

    /// The name as it was typed.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// The source of that name.
pub(super) fn known(name: &str) -> Option<Source> {
    Source::all().into_iter().find(|source| source.name() == name)
}

/// There is no such name; perhaps it was mistyped.
pub(super) fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = catalog().map(|entry| entry.name).collect();
    let hint = match closest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? `fedeq data list` shows all names"),
        None => format!("choose one of {}, or give the path of your own data", names.join(", ")),
    };
    Failure::request(format!("there is no data set or path `{name}`"), hint)
}
