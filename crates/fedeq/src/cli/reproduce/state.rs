//! What goes with an experiment to another machine: results, runs under way, and how fast machines are. Everything lies below one folder, by relative names.
//!
//! ```text
//! rates.json                               how fast devices were
//! results/NAME/results-SCALE.json          what is finished, here or elsewhere
//! runs/NAME/SCALE/CELL-SEED-IDENTITY/      ordinary run folders: of finished runs without models, of others with their last checkpoint
//! ```
use std::fs;

use super::job::Job;
use super::reproduction::Reproduction;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::tell;
use fedeq_run::number::{bytes, counted};
use fedeq_run::portable::size_of;
use fedeq_run::run::RunFolder;

impl Job<'_> {
    /// Keeps what is needed to continue and nothing else, and says how much that is.
    pub(super) fn close(self) -> Outcome<()> {
        if self.state.is_none() {
            return Ok(());
        }
        let under_way = self.tidy().map_err(Failure::during_work)?;
        let (path, is_quiet) = (self.arguments.state.clone().unwrap_or_default(), self.arguments.run_args.quiet);
        let Some(state) = self.state else { return Ok(()) };
        let size = state.close().map_err(Failure::during_work)?;
        if !is_quiet {
            let runs = match under_way {
                (0, _) => "no run is under way".to_owned(),
                (runs, checkpoints) => {
                    format!("{} under way with {} of checkpoints", counted(runs, "run"), bytes(checkpoints))
                }
            };
            tell(&format!("`{}` holds {}; {runs}", path.display(), bytes(size)));
        }
        Ok(())
    }

    /// Removes what is not needed to continue; gives how many runs are under way, and the bytes of their checkpoints.
    fn tidy(&self) -> fedeq_core::Result<(usize, u64)> {
        let results = self.load()?;
        let (mut runs, mut total) = (0, 0);
        for queued in self.all_runs() {
            let Ok(folder) = RunFolder::open(&queued.run.folder) else { continue };
            if folder.summary()?.is_some() {
                continue;
            }
            if self.is_known(&queued, &results) {
                // It was finished elsewhere.
                folder.remove()?;
                continue;
            }
            folder.keep_only_last_checkpoint()?;
            let models = [folder.checkpoints(), folder.clients()].into_iter().filter(|path| path.is_dir());
            let size: u64 = models.map(|path| size_of(&path)).sum::<fedeq_core::Result<u64>>()?;
            if self.largest_checkpoint.is_some_and(|largest| size > largest) {
                let (name, seed) = (self.name_of(queued.of, queued.cell), queued.run.experiment.seed);
                tell(&format!("{name}, seed {seed}: its checkpoint of {} is not kept", bytes(size)));
                folder.remove()?;
                continue;
            }
            (runs, total) = (runs + 1, total + size);
        }
        // Folders that have become empty say nothing.
        for Reproduction { runs, .. } in &self.experiments {
            let _ = fs::remove_dir(runs);
        }
        Ok((runs, total))
    }
}
