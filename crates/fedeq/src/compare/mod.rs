//! Runs side by side. Those that differ only in their seed are one group; groups are compared over their seeds.
//!
//! # Layout
//! - `gather`: from paths to finished runs
//! - `cluster`: experiments that differ only in their seed; `group`: what came out of them
//! - this file: what sets groups apart, and by how much
mod cluster;
mod gather;
mod group;

use fedeq_core::Result;
use serde::Serialize;

pub(crate) use cluster::{Cluster, clusters};
pub(crate) use gather::folders;
pub use gather::{Finished, Gathered, gather};
pub use group::{Group, Measures};

use crate::statistics::{Difference, welch};

/// Groups of runs, and how sure it is that they differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// In the order in which they were first met.
    pub groups: Vec<Group>,
    /// The most accurate group against every other, where both have at least two seeds.
    pub contrasts: Vec<Contrast>,
}

/// Two groups whose mean accuracies are compared over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Contrast {
    /// The more accurate group's place in [`Comparison::groups`].
    pub better: usize,
    /// The other one's.
    pub other: usize,
    /// Welch's t-test of their accuracies.
    pub difference: Difference,
}

impl Comparison {
    /// Groups runs and compares the groups.
    pub fn of(runs: &[Finished]) -> Result<Self> {
        let groups = group::groups(runs)?;
        let contrasts = contrasts(&groups);
        Ok(Self { groups, contrasts })
    }
}

fn contrasts(groups: &[Group]) -> Vec<Contrast> {
    let accuracy = |index: usize| &groups[index].measures.accuracy;
    let best = (0..groups.len()).rev().max_by(|&a, &b| accuracy(a).mean.total_cmp(&accuracy(b).mean));
    let Some(better) = best else { return Vec::new() };
    let against =
        |other: usize| welch(accuracy(better), accuracy(other)).map(|difference| Contrast { better, other, difference });
    (0..groups.len()).filter(|&other| other != better).filter_map(against).collect()
}
