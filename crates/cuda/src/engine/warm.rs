//! Fixed points that solves start from: those of a cohort while it trains, and those that a client keeps.
use std::collections::BTreeMap;
use std::sync::Arc;

use fedeq_core::Result;
use fedeq_equilibrium::{StoredPrecision, WarmMemory, WarmStart};
use half::f16;

use super::schedule::Schedule;
use crate::device::{Buffer, Device, Pointer};

/// Which slot of its lane's memory belongs to which sample, step by step; -1 where it has none. `[steps][lanes][most]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) recall: Vec<i32>,
    pub(crate) remember: Vec<i32>,
}

/// Whose states are remembered where, lane by lane. It follows [`WarmMemory`], whose numbers are elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    policy: WarmStart,
    slots: usize,
    /// By sample.
    places: Vec<BTreeMap<u64, i32>>,
    /// How many samples the last batch of each lane had.
    previous: Vec<Option<usize>>,
}

impl Directory {
    /// For lanes with at most so many slots each.
    pub(crate) fn new(policy: WarmStart, lanes: usize, slots: usize) -> Self {
        Self { policy, slots, places: vec![BTreeMap::new(); lanes], previous: vec![None; lanes] }
    }

    /// Slots that a lane wants: a state of `each` numbers for every sample, as far as the capacity goes, or for every place of a batch.
    pub(crate) fn slots(policy: WarmStart, samples: usize, most: usize, each: usize) -> usize {
        match policy {
            WarmStart::Off => 0,
            WarmStart::PreviousBatch => most,
            WarmStart::BySample { capacity, precision, .. } => {
                let fit = capacity.map_or(usize::MAX, |capacity| capacity / (each * size_of_number(precision)).max(1));
                samples.min(fit)
            }
        }
    }

    /// A lane begins with the states of these samples, in the order of its slots.
    pub(crate) fn begin(&mut self, lane: usize, ids: &[u64]) {
        self.places[lane] = ids.iter().take(self.slots).enumerate().map(|(slot, &id)| (id, slot as i32)).collect();
    }

    /// The samples of a lane in the order of their slots.
    pub(crate) fn ids(&self, lane: usize) -> Vec<u64> {
        let mut ids = vec![0; self.places[lane].len()];
        self.places[lane].iter().for_each(|(&id, &slot)| ids[slot as usize] = id);
        ids
    }

    /// The slots of a schedule's samples: whoever comes first is remembered.
    pub(crate) fn places(&mut self, schedule: &Schedule) -> Places {
        let (lanes, most) = (schedule.lanes(), schedule.most());
        let mut places = Places { recall: vec![-1; schedule.samples().len()], remember: vec![-1; schedule.samples().len()] };
        for step in 0..schedule.steps() {
            for lane in 0..lanes {
                let batch = schedule.batch(step, lane);
                let at = (step * lanes + lane) * most;
                if batch.is_empty() {
                    continue;
                }
                for (index, &sample) in batch.iter().enumerate() {
                    let (recall, remember) = self.slot_of(lane, index, sample as u64, batch.len());
                    places.recall[at + index] = recall;
                    places.remember[at + index] = remember;
                }
                self.previous[lane] = Some(batch.len());
            }
        }
        places
    }

    fn slot_of(&mut self, lane: usize, index: usize, id: u64, batch: usize) -> (i32, i32) {
        match self.policy {
            WarmStart::Off => (-1, -1),
            WarmStart::PreviousBatch => {
                let same_size = self.previous[lane] == Some(batch);
                (if same_size { index as i32 } else { -1 }, index as i32)
            }
            WarmStart::BySample { .. } => {
                let places = &mut self.places[lane];
                let (taken, slots) = (places.len(), self.slots);
                let slot = match places.get(&id) {
                    Some(&slot) => slot,
                    None if taken < slots => {
                        places.insert(id, taken as i32);
                        taken as i32
                    }
                    None => -1,
                };
                (slot, slot)
            }
        }
    }
}

fn size_of_number(precision: StoredPrecision) -> usize {
    match precision {
        StoredPrecision::Single => size_of::<f32>(),
        StoredPrecision::Half => size_of::<f16>(),
    }
}

/// How a policy stores states.
pub(crate) fn precision_of(policy: WarmStart) -> StoredPrecision {
    match policy {
        WarmStart::BySample { precision, .. } => precision,
        WarmStart::Off | WarmStart::PreviousBatch => StoredPrecision::Single,
    }
}

/// The memory of a cohort's fixed points: `[lanes][slots][each]`, and `[lanes][slots]` which of them are known.
pub(crate) struct Memory {
    pub(crate) directory: Directory,
    pub(crate) each: usize,
    pub(crate) slots: usize,
    precision: StoredPrecision,
    states: Buffer<u8>,
    known: Buffer<u8>,
}

impl Memory {
    pub(crate) fn new(device: &Device, policy: WarmStart, lanes: usize, slots: usize, each: usize) -> Result<Self> {
        let precision = precision_of(policy);
        Ok(Self {
            directory: Directory::new(policy, lanes, slots),
            each,
            slots,
            precision,
            states: Buffer::new(device, lanes * slots * each * size_of_number(precision))?,
            known: Buffer::zeros(device, lanes * slots)?,
        })
    }

    /// The bytes of so many lanes.
    pub(crate) fn bytes(policy: WarmStart, lanes: usize, slots: usize, each: usize) -> u64 {
        (lanes * slots * (each * size_of_number(precision_of(policy)) + 1)) as u64
    }

    pub(crate) fn bytes_in_use(&self) -> u64 {
        self.states.bytes() + self.known.bytes()
    }

    /// Forgets everything: other clients begin.
    pub(crate) fn clear(&mut self, device: &Device, policy: WarmStart, lanes: usize) -> Result<()> {
        self.directory = Directory::new(policy, lanes, self.slots);
        device.fill_zero(self.known.pointer(), self.known.len())
    }

    /// Whether it has room for this, and no more.
    pub(crate) fn is_for(&self, lanes: usize, slots: usize, each: usize) -> bool {
        (self.known.len(), self.slots, self.each) == (lanes * slots, slots, each)
    }

    pub(crate) fn is_half(&self) -> bool {
        self.precision == StoredPrecision::Half
    }

    pub(crate) fn states(&self) -> Pointer<u8> {
        self.states.pointer()
    }

    pub(crate) fn known(&self) -> Pointer<u8> {
        self.known.pointer()
    }

    fn lane_bytes(&self) -> usize {
        self.slots * self.each * size_of_number(self.precision)
    }

    /// A lane begins with what its client kept.
    pub(crate) fn begin(&mut self, device: &Device, lane: usize, kept: &KeptStates) -> Result<()> {
        if kept.each != self.each || kept.precision != self.precision {
            return Ok(()); // Of another network or in another precision: as on the host, they are not used.
        }
        let count = kept.ids.len().min(self.slots);
        let number = size_of_number(self.precision);
        self.directory.begin(lane, &kept.ids[..count]);
        self.states.copy_from(device, lane * self.lane_bytes(), &kept.states, 0, count * self.each * number)?;
        self.known.copy_from(device, lane * self.slots, &kept.known, 0, count)
    }

    /// What a lane's client keeps; nothing if there is nothing.
    pub(crate) fn keep(&self, device: &Device, lane: usize) -> Result<Option<KeptStates>> {
        let ids = self.directory.ids(lane);
        if ids.is_empty() {
            return Ok(None);
        }
        let bytes = ids.len() * self.each * size_of_number(self.precision);
        let mut states = Buffer::new(device, bytes)?;
        let mut known = Buffer::new(device, ids.len())?;
        states.copy_from(device, 0, &self.states, lane * self.lane_bytes(), bytes)?;
        known.copy_from(device, 0, &self.known, lane * self.slots, ids.len())?;
        let (states, known) = (Arc::new(states), Arc::new(known));
        Ok(Some(KeptStates { ids: Arc::new(ids), precision: self.precision, each: self.each, states, known }))
    }
}

/// The fixed points that a client keeps between rounds.
#[derive(Clone)]
pub(crate) struct KeptStates {
    /// Whose they are.
    ids: Arc<Vec<u64>>,
    precision: StoredPrecision,
    each: usize,
    states: Arc<Buffer<u8>>,
    known: Arc<Buffer<u8>>,
}

impl KeptStates {
    /// Those that a client kept on the host.
    pub(crate) fn from_host(device: &Device, memory: &WarmMemory) -> Result<Option<Self>> {
        let entries: Vec<(u64, Vec<f32>)> = memory.entries().collect();
        let Some(each) = entries.first().map(|(_, row)| row.len()) else { return Ok(None) };
        let entries: Vec<(u64, Vec<f32>)> = entries.into_iter().filter(|(_, row)| row.len() == each).collect();
        let precision = precision_of(memory.policy());
        let bytes: Vec<u8> = entries.iter().flat_map(|(_, row)| bytes_of(row, precision)).collect();
        Ok(Some(Self {
            precision,
            each,
            states: Arc::new(Buffer::of(device, &bytes)?),
            known: Arc::new(Buffer::of(device, &vec![1; entries.len()])?),
            ids: Arc::new(entries.into_iter().map(|(id, _)| id).collect()),
        }))
    }

    /// The same on the host.
    pub(crate) fn to_host(&self, device: &Device, policy: WarmStart) -> Result<WarmMemory> {
        let (mut states, mut known) = (vec![0; self.states.len()], vec![0; self.known.len()]);
        self.states.read(device, 0, &mut states)?;
        self.known.read(device, 0, &mut known)?;
        let mut memory = WarmMemory::new(policy);
        let rows = states.chunks_exact(self.each * size_of_number(self.precision));
        for ((&id, row), known) in self.ids.iter().zip(rows).zip(known) {
            if known != 0 {
                memory.restore(id, &numbers_of(row, self.precision));
            }
        }
        Ok(memory)
    }
}

fn bytes_of(row: &[f32], precision: StoredPrecision) -> Vec<u8> {
    match precision {
        StoredPrecision::Single => row.iter().flat_map(|value| value.to_le_bytes()).collect(),
        StoredPrecision::Half => row.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect(),
    }
}

fn numbers_of(bytes: &[u8], precision: StoredPrecision) -> Vec<f32> {
    match precision {
        StoredPrecision::Single => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        StoredPrecision::Half => bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::Arc;

    use fedeq_data::shard::Shard;
    use fedeq_data::{Dataset, Labels, Samples, Vectors};
    use fedeq_equilibrium::HostStates;

    use super::*;

    fn schedule(samples: usize, most: usize) -> Schedule {
        let dataset = Arc::new(Dataset {
            name: "numbers".into(),
            samples: Samples::Vectors(Vectors { width: 1, values: vec![0.0; samples] }),
            labels: Labels::Classes { names: vec!["a".into()], values: vec![0; samples] },
            owners: None,
            test_start: None,
        });
        let shard = Shard::new(dataset, (0..samples as u32).collect()).expect("samples of the data set");
        Schedule::in_order(&[&shard], NonZeroUsize::new(most).expect("not 0"))
    }

    /// What the host's memory would know, batch by batch, and what the directory says.
    fn agrees(policy: WarmStart, samples: usize, most: usize, passes: usize) {
        const EACH: usize = 4;
        let schedule = schedule(samples, most);
        let slots = Directory::slots(policy, samples, most, EACH);
        let (mut host, mut known) = (WarmMemory::new(policy), vec![false; slots]);
        let mut directory = Directory::new(policy, 1, slots);
        for _ in 0..passes {
            let places = directory.places(&schedule);
            for step in 0..schedule.steps() {
                let ids: Vec<u64> = schedule.batch(step, 0).iter().map(|&id| id as u64).collect();
                let row = |table: &[i32], index: usize| table[step * most + index];
                let warm = |index: &usize| usize::try_from(row(&places.recall, *index)).is_ok_and(|slot| known[slot]);
                assert_eq!((0..ids.len()).filter(warm).count(), host.knows(&ids, EACH), "{policy:?}, step {step}");
                host.remember(&ids, &HostStates::zeros(ids.len(), EACH));
                for index in 0..ids.len() {
                    if let Ok(slot) = usize::try_from(row(&places.remember, index)) {
                        known[slot] = true;
                    }
                }
            }
        }
        let remembered: Vec<u64> = host.entries().map(|(id, _)| id).collect();
        let mut ids = directory.ids(0);
        ids.sort_unstable();
        assert_eq!(ids, remembered);
    }

    #[test]
    fn the_same_samples_are_remembered_as_on_the_host() {
        for capacity in [None, Some(0), Some(5 * 16), Some(5 * 16 + 7), Some(1000)] {
            for precision in [StoredPrecision::Single, StoredPrecision::Half] {
                agrees(WarmStart::BySample { capacity, precision, lasting: true }, 17, 5, 3);
            }
        }
        agrees(WarmStart::PreviousBatch, 17, 5, 3);
        agrees(WarmStart::PreviousBatch, 15, 5, 2);
        agrees(WarmStart::Off, 15, 5, 2);
    }

    #[test]
    fn numbers_come_back_from_bytes() {
        let row = [1.0, -2.5, 0.125, 3.0];
        for precision in [StoredPrecision::Single, StoredPrecision::Half] {
            assert_eq!(numbers_of(&bytes_of(&row, precision), precision), row);
        }
    }
}
