//! All journals of a run together: what a checkpoint vouches for, and cutting them back to it.
use std::collections::BTreeMap;
use std::fs::{self, File};

use fedeq_core::{Error, Result};

use super::folder::RunFolder;
use super::journal::{Stamp, cut, keep_lines, length};
use super::timing::Timing;

/// The journals that are the same for the same experiment, to the byte.
const STAMPED: [&str; 4] = ["rounds.jsonl", "evaluations.jsonl", "heads.jsonl", "metrics.csv"];

/// How long every journal was at some moment.
#[derive(Clone, Debug)]
pub(super) struct Lengths(Vec<(&'static str, u64)>);

impl RunFolder {
    /// Makes sure that all journals are on disk, and says what those hold that are the same for the same experiment.
    pub(super) fn stamp_journals(&self) -> Result<BTreeMap<String, Stamp>> {
        Stamp::of(&self.timings_file())?;
        self.sync_events();
        STAMPED.iter().map(|name| Ok(((*name).to_owned(), Stamp::of(&self.path().join(name))?))).collect()
    }

    /// TensorBoard's files are for looking at: a system that cannot sync them has lost nothing of the run.
    fn sync_events(&self) {
        let files = fs::read_dir(self.tensorboard()).into_iter().flatten().flatten();
        files.filter_map(|entry| File::open(entry.path()).ok()).for_each(|file| drop(file.sync_all()));
    }

    /// Cuts the journals back to a checkpoint after so many rounds. If one of them is damaged, none is touched.
    pub(super) fn cut_journals(&self, stamps: &BTreeMap<String, Stamp>, round: u64) -> Result<()> {
        self.check_journals(stamps, round)?;
        for name in STAMPED {
            stamp_of(stamps, name).cut_back(&self.path().join(name))?;
        }
        keep_lines(&self.timings_file(), |line| serde_json::from_str(line).is_ok_and(|line: Timing| line.round <= round))
    }

    /// Refuses journals that do not begin with what a checkpoint after so many rounds says they held.
    pub(super) fn check_journals(&self, stamps: &BTreeMap<String, Stamp>, round: u64) -> Result<()> {
        for name in STAMPED {
            stamp_of(stamps, name).check(&self.path().join(name))?;
        }
        self.check_timings(round)
    }

    /// Times differ from run to run, so no stamp is taken of them; but there is a line for every round.
    fn check_timings(&self, round: u64) -> Result<()> {
        let path = self.timings_file();
        let timings = if path.is_file() { self.timings()? } else { Vec::new() };
        let told: Vec<u64> = timings.iter().map(|timing| timing.round).filter(|told| *told <= round).collect();
        if told.iter().copied().eq(1..=round) {
            return Ok(());
        }
        Err(Error::damaged(&path, format!("it tells of {} of {round} rounds", told.len())))
    }

    /// How long the journals are now.
    pub(super) fn journal_lengths(&self) -> Lengths {
        let names = STAMPED.into_iter().chain(["timings.jsonl"]);
        Lengths(names.map(|name| (name, length(&self.path().join(name)))).collect())
    }

    /// Cuts the journals back to what they were in this process.
    pub(super) fn cut_to_lengths(&self, Lengths(lengths): &Lengths) -> Result<()> {
        lengths.iter().try_for_each(|(name, bytes)| cut(&self.path().join(name), *bytes))
    }
}

fn stamp_of(stamps: &BTreeMap<String, Stamp>, name: &str) -> Stamp {
    stamps.get(name).cloned().unwrap_or_default()
}
