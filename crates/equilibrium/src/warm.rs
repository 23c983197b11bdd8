//! Warm starts: a solve begins where an earlier one ended.
use std::collections::BTreeMap;

use half::f16;
use half::slice::HalfFloatSliceExt;
use half::vec::HalfFloatVecExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::states::HostStates;

/// Where a solve starts. Plain data; [`WarmMemory`] makes it live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WarmStart {
    /// Always from the model's own start.
    #[default]
    Off,
    /// From the fixed points of the previous batch, position by position, if it was of the same size.
    PreviousBatch,
    /// From the sample's own last fixed point.
    BySample {
        /// The most memory for stored states, in bytes; if left out, what the states of all samples take. Once it is full, the samples in it
        /// stay and others are not stored: samples come by in ever new order, and whoever made room for the newest would have
        /// forgotten nearly all of them by the time they come again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capacity: Option<usize>,
        /// How they are stored.
        #[serde(default)]
        precision: StoredPrecision,
        /// Whether a client keeps its states for the next round it takes part in. They then have to be kept somewhere
        /// meanwhile, and are as old as its last round when they are needed again, see [`WarmMemory::end_phases`].
        #[serde(default)]
        lasting: bool,
    },
}

impl WarmStart {
    /// From the sample's own last fixed point of the same client's same round, in half precision, whatever memory that takes.
    pub fn by_sample() -> Self {
        Self::BySample { capacity: None, precision: StoredPrecision::Half, lasting: false }
    }

    /// The most bytes that the states of so many samples take, each of so many numbers.
    pub fn bytes(&self, samples: usize, numbers: usize) -> usize {
        match self {
            Self::Off => 0,
            Self::PreviousBatch => samples.saturating_mul(StoredPrecision::Single.bytes(numbers)),
            Self::BySample { capacity, precision, .. } => {
                let all = samples.saturating_mul(precision.bytes(numbers));
                capacity.map_or(all, |capacity| all.min(capacity))
            }
        }
    }
}

/// How stored states are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StoredPrecision {
    /// 32 bits a number.
    #[default]
    Single,
    /// 16 bits a number, which is plenty for a starting point. States beyond the range of f16 (65,504) are not stored.
    Half,
}

/// From here on, numbers are rounded to infinity in 16 bits.
const BEYOND_HALF: f32 = 65_520.0;

impl StoredPrecision {
    /// Whether all numbers can be stored as finite ones.
    fn holds(self, row: &[f32]) -> bool {
        match self {
            Self::Single => row.iter().all(|value| value.is_finite()),
            Self::Half => row.iter().all(|value| value.abs() < BEYOND_HALF),
        }
    }

    /// The bytes of a state of so many numbers.
    fn bytes(self, numbers: usize) -> usize {
        match self {
            Self::Single => numbers.saturating_mul(4),
            Self::Half => numbers.saturating_mul(2),
        }
    }
}

/// Remembers fixed points between solves. Belongs to whoever owns the samples: in federated learning, to the client.
///
/// ```
/// use fedeq_equilibrium::{HostStates, WarmMemory, WarmStart};
///
/// let mut memory = WarmMemory::new(WarmStart::by_sample());
/// memory.remember(&[7, 9], &HostStates::new(vec![1.0; 6], 2, 3));
/// let mut start = HostStates::zeros(2, 3);
/// memory.recall(&[9, 4], &mut start);
/// assert_eq!(start.values(), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WarmMemory {
    policy: WarmStart,
    /// By sample id.
    states: BTreeMap<u64, StoredState>,
    bytes: usize,
    previous: Option<Vec<StoredState>>,
}

/// One sample's state in the precision asked for.
#[derive(Clone, Debug, PartialEq)]
enum StoredState {
    Single(Vec<f32>),
    Half(Vec<f16>),
}

impl WarmMemory {
    /// An empty memory.
    pub fn new(policy: WarmStart) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Where solves start.
    pub fn policy(&self) -> WarmStart {
        self.policy
    }

    /// Bytes of states held by id; never above the capacity.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many samples are remembered by id.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether nothing is remembered by id.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// How many of these samples would start from a remembered state of so many numbers.
    pub fn knows(&self, ids: &[u64], numbers: usize) -> usize {
        self.known(ids, numbers).filter(|&known| known).count()
    }

    /// Which of these samples would.
    pub(crate) fn known<'a>(&'a self, ids: &'a [u64], numbers: usize) -> impl Iterator<Item = bool> + 'a {
        ids.iter().enumerate().map(move |(row, &id)| self.state_of(row, id, ids.len(), numbers).is_some())
    }

    /// Where to start for these samples: `own` is what a model starts from by itself, and its rows are overwritten for samples whose state
    /// is remembered. Nothing is, if there are not as many rows as samples.
    pub fn recall(&self, samples: &[u64], own: &mut HostStates) {
        if samples.len() != own.rows() {
            return;
        }
        for (row, &sample) in samples.iter().enumerate() {
            if let Some(state) = self.state_of(row, sample, samples.len(), own.width()) {
                state.copy_to(own.row_mut(row));
            }
        }
    }

    /// Stores the fixed points of these samples, as far as there is room; rows that are not finite are passed over. Nothing is stored, if
    /// there are not as many rows as samples.
    pub fn remember(&mut self, samples: &[u64], z: &HostStates) {
        if z.rows() == 0 || z.width() == 0 || samples.len() != z.rows() {
            return;
        }
        match self.policy {
            WarmStart::Off => {}
            WarmStart::PreviousBatch => {
                let mut previous = self.previous.take().unwrap_or_default();
                previous.resize_with(z.rows(), || StoredState::Single(Vec::new()));
                let rows = previous.iter_mut().enumerate();
                let all = rows.fold(true, |all, (row, state)| all & state.overwrite(z.row(row), StoredPrecision::Single));
                self.previous = all.then_some(previous);
            }
            WarmStart::BySample { capacity, precision, .. } => {
                for (row, &id) in samples.iter().enumerate() {
                    self.store(id, z.row(row), precision, capacity);
                }
            }
        }
    }

    /// Every remembered sample and its state; [`restore`](Self::restore) rebuilds the memory from them.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Vec<f32>)> + '_ {
        self.states.iter().map(|(&id, state)| (id, state.to_single()))
    }

    /// Puts back an entry that [`entries`](Self::entries) gave.
    pub fn restore(&mut self, id: u64, state: &[f32]) {
        if let WarmStart::BySample { capacity, precision, .. } = self.policy {
            self.store(id, state, precision, capacity);
        }
    }

    /// The phases of a round are over: only states that are meant for the next round are kept. The previous batch never is, which means nothing to
    /// whoever comes next.
    pub fn end_phases(&mut self) {
        self.previous = None;
        if !matches!(self.policy, WarmStart::BySample { lasting: true, .. }) {
            self.states.clear();
            self.bytes = 0;
        }
    }

    /// The remembered state of the sample at some position of a batch, if it has so many numbers.
    fn state_of(&self, position: usize, id: u64, batch: usize, numbers: usize) -> Option<&StoredState> {
        let found = match &self.previous {
            Some(previous) if previous.len() == batch => previous.get(position),
            Some(_) => None,
            None => self.states.get(&id),
        };
        found.filter(|state| state.len() == numbers)
    }

    fn store(&mut self, id: u64, row: &[f32], precision: StoredPrecision, capacity: Option<usize>) {
        if !precision.holds(row) {
            return;
        }
        if let Some(state) = self.states.get_mut(&id).filter(|state| state.len() == row.len()) {
            state.overwrite(row, precision); // In its place: nothing is allocated.
            return;
        }
        self.forget(id);
        let size = precision.bytes(row.len());
        if capacity.is_none_or(|capacity| self.bytes + size <= capacity) {
            self.bytes += size;
            let mut state = StoredState::Single(Vec::new());
            state.overwrite(row, precision);
            self.states.insert(id, state);
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(state) = self.states.remove(&id) {
            self.bytes -= state.bytes();
        }
    }
}

impl StoredState {
    /// Becomes another state, in its own memory where that fits; stays what it is and says so if a value cannot be stored as a finite number.
    fn overwrite(&mut self, row: &[f32], precision: StoredPrecision) -> bool {
        if !precision.holds(row) {
            return false;
        }
        match (precision, &mut *self) {
            (StoredPrecision::Single, Self::Single(values)) => {
                values.clear();
                values.extend_from_slice(row);
            }
            (StoredPrecision::Half, Self::Half(values)) if values.len() == row.len() => values.convert_from_f32_slice(row),
            (StoredPrecision::Single, Self::Half(_)) => *self = Self::Single(row.to_vec()),
            (StoredPrecision::Half, _) => *self = Self::Half(Vec::from_f32_slice(row)),
        }
        true
    }

    fn len(&self) -> usize {
        match self {
            Self::Single(values) => values.len(),
            Self::Half(values) => values.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Single(values) => 4 * values.len(),
            Self::Half(values) => 2 * values.len(),
        }
    }

    fn copy_to(&self, row: &mut [f32]) {
        match self {
            Self::Single(values) => row.copy_from_slice(values),
            Self::Half(values) => values.convert_to_f32_slice(row),
        }
    }

    fn to_single(&self) -> Vec<f32> {
        match self {
            Self::Single(values) => values.clone(),
            Self::Half(values) => values.to_f32_vec(),
        }
    }
}
