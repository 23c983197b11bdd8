//! Warm starts: a solve begins where an earlier one ended.
use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use half::f16;
use serde::{Deserialize, Serialize};

use crate::host::to_host;

/// Where a solve starts. Plain data; [`WarmMemory`] makes it live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
        /// forgotten nearly everybody by the time they come again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capacity: Option<usize>,
        /// How they are stored.
        #[serde(default)]
        precision: Precision,
        /// Whether states outlast a stretch of training, see [`WarmMemory::end_stretch`]. They then have to be kept somewhere
        /// meanwhile, and are as old as that stretch when they are needed again.
        #[serde(default)]
        lasting: bool,
    },
}

impl WarmStart {
    /// From the sample's own last fixed point of the same stretch of training, in half precision, whatever memory that takes.
    pub fn by_sample() -> Self {
        Self::BySample { capacity: None, precision: Precision::Half, lasting: false }
    }

    /// The most bytes that the states of so many samples take, each of so many numbers.
    pub fn bytes(&self, samples: usize, numbers: usize) -> usize {
        match self {
            Self::Off => 0,
            Self::PreviousBatch => samples.saturating_mul(Precision::Single.bytes(numbers)),
            Self::BySample { capacity, precision, .. } => {
                let all = samples.saturating_mul(precision.bytes(numbers));
                capacity.map_or(all, |capacity| all.min(capacity))
            }
        }
    }
}

/// How stored states are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32 bits a number.
    #[default]
    Single,
    /// 16 bits a number, which is plenty for a starting point. States beyond the range of f16 (65,504) are not stored.
    Half,
}

impl Precision {
    /// The bytes of a state of so many numbers.
    fn bytes(self, numbers: usize) -> usize {
        match self {
            Self::Single => 4 * numbers,
            Self::Half => 2 * numbers,
        }
    }
}

/// Remembers fixed points between solves. Belongs to whoever owns the samples: in federated learning, to the client.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use fedeq_equilibrium::{WarmMemory, WarmStart};
///
/// let device = Device::default();
/// let mut memory = WarmMemory::new(WarmStart::by_sample());
/// memory.remember(&[7, 9], &Tensor::<2>::ones([2, 3], &device));
/// let start = memory.recall(&[9, 4], Tensor::<2>::zeros([2, 3], &device));
/// assert_eq!(start.into_data().try_to_vec::<f32>().unwrap(), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WarmMemory {
    policy: WarmStart,
    /// By sample id.
    states: BTreeMap<u64, Stored>,
    bytes: usize,
    previous: Option<Vec<Stored>>,
}

/// One sample's state in the precision asked for.
#[derive(Clone, Debug, PartialEq)]
enum Stored {
    Single(Vec<f32>),
    Half(Vec<f16>),
}

impl WarmMemory {
    /// An empty memory.
    pub fn new(policy: WarmStart) -> Self {
        Self { policy, ..Self::default() }
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
        self.find(ids, numbers).into_iter().flatten().count()
    }

    /// Where to start for these samples: their remembered states, and the rows of `otherwise` for the rest.
    pub fn recall<const D: usize>(&self, ids: &[u64], otherwise: Tensor<D>) -> Tensor<D> {
        let shape = otherwise.dims();
        let width = shape[1..].iter().product();
        let found = self.find(ids, width);
        if found.len() != shape[0] || found.iter().all(Option::is_none) {
            return otherwise;
        }
        let options = (&otherwise.device(), otherwise.dtype());
        let mut values = if found.iter().all(Option::is_some) { vec![0.0; shape[0] * width] } else { to_host(otherwise) };
        for (row, state) in values.chunks_mut(width).zip(found) {
            if let Some(state) = state {
                state.copy_to(row);
            }
        }
        Tensor::from_data(TensorData::new(values, shape), options)
    }

    /// Stores the fixed points of these samples, as far as there is room; rows that are not finite are passed over.
    pub fn remember<const D: usize>(&mut self, ids: &[u64], z: &Tensor<D>) {
        let shape = z.dims();
        if self.policy == WarmStart::Off || shape.contains(&0) || ids.len() != shape[0] {
            return;
        }
        let values = to_host(z.clone().without_autodiff());
        let rows = values.chunks(shape[1..].iter().product());
        match self.policy {
            WarmStart::Off => {}
            WarmStart::PreviousBatch => {
                self.previous = rows.map(|row| Stored::new(row, Precision::Single)).collect();
            }
            WarmStart::BySample { capacity, precision, .. } => {
                for (&id, row) in ids.iter().zip(rows) {
                    if let Some(state) = Stored::new(row, precision) {
                        self.store(id, state, capacity);
                    }
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
            let row: Vec<f64> = state.iter().map(|&value| value.into()).collect();
            if let Some(state) = Stored::new(&row, precision) {
                self.store(id, state, capacity);
            }
        }
    }

    /// A stretch of training is over: only states that are meant to outlast it are kept. The previous batch never is, which means nothing to
    /// whoever comes next.
    pub fn end_stretch(&mut self) {
        self.previous = None;
        if !matches!(self.policy, WarmStart::BySample { lasting: true, .. }) {
            self.states.clear();
            self.bytes = 0;
        }
    }

    /// The remembered states of these samples, as far as they have so many numbers.
    fn find(&self, ids: &[u64], numbers: usize) -> Vec<Option<&Stored>> {
        let found = |(at, id): (usize, &u64)| match &self.previous {
            Some(previous) if previous.len() == ids.len() => previous.get(at),
            Some(_) => None,
            None => self.states.get(id),
        };
        ids.iter().enumerate().map(|sample| found(sample).filter(|state| state.len() == numbers)).collect()
    }

    fn store(&mut self, id: u64, state: Stored, capacity: Option<usize>) {
        self.forget(id);
        let size = state.bytes();
        if capacity.is_none_or(|capacity| self.bytes + size <= capacity) {
            self.bytes += size;
            self.states.insert(id, state);
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(state) = self.states.remove(&id) {
            self.bytes -= state.bytes();
        }
    }
}

impl Stored {
    /// Nothing if a value cannot be stored as a finite number.
    fn new(row: &[f64], precision: Precision) -> Option<Self> {
        match precision {
            Precision::Single => {
                let row: Vec<f32> = row.iter().map(|&value| value as f32).collect();
                row.iter().all(|value| value.is_finite()).then_some(Self::Single(row))
            }
            Precision::Half => {
                let row: Vec<f16> = row.iter().map(|&value| f16::from_f64(value)).collect();
                row.iter().all(|value| value.is_finite()).then_some(Self::Half(row))
            }
        }
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

    fn copy_to(&self, row: &mut [f64]) {
        match self {
            Self::Single(values) => row.iter_mut().zip(values).for_each(|(to, &from)| *to = from.into()),
            Self::Half(values) => row.iter_mut().zip(values).for_each(|(to, &from)| *to = from.into()),
        }
    }

    fn to_single(&self) -> Vec<f32> {
        match self {
            Self::Single(values) => values.clone(),
            Self::Half(values) => values.iter().map(|value| value.to_f32()).collect(),
        }
    }
}
