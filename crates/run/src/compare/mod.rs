//! Runs side by side. Those that differ only in their seed are one group; groups are compared over their seeds, all by the same view of their clients' models
//! (see [`View`]).
//!
//! # Layout
//! - `gather`: from paths to finished runs
//! - `group`: experiments that differ only in their seed, and what came out of them
//! - `label`: what they are called
//! - `contrast`: what sets groups apart, and by how much
mod contrast;
mod gather;
mod group;
mod label;

use fedeq_core::{Result, View};
use serde::Serialize;

pub use contrast::{Contestant, Contrast, best, contrasts};
pub use gather::{Finished, Gathered, folders, gather};
pub use group::{Cluster, Group, Measures, Qualities, clusters, division};

/// Groups of runs, and how sure it is that they differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// By which of their clients' models groups are compared.
    pub view: View,
    /// In the order in which they were first met.
    pub groups: Vec<Group>,
    /// On every data set, the places of the most accurate group and of all that a test cannot tell from it; nothing where there is one seed.
    pub best: Vec<usize>,
    /// On every data set, the most accurate group against every other, where both have at least two seeds.
    pub contrasts: Vec<Contrast>,
}

impl Comparison {
    /// Groups runs and compares the groups.
    pub fn of(runs: &[Finished], view: View) -> Result<Self> {
        let groups = group::groups(runs)?;
        let contestants: Vec<Contestant> = groups.iter().map(|group| group.contestant(view)).collect();
        Ok(Self { view, best: best(&contestants), contrasts: contrasts(&contestants), groups })
    }
}
