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
        /// Memory for stored states, in bytes; the states stored longest ago go first.
        #[serde(default = "WarmStart::default_capacity")]
        capacity: usize,
        /// How they are stored.
        #[serde(default)]
        precision: Precision,
    },
}

impl WarmStart {
    /// Memory for stored states where nobody says how much, in bytes.
    pub const CAPACITY: usize = 8 << 20;

    fn default_capacity() -> usize {
        Self::CAPACITY
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

/// Remembers fixed points between solves. Belongs to whoever owns the samples: in federated learning, to the client.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use fedeq_equilibrium::{Precision, WarmMemory, WarmStart};
///
/// let device = Device::default();
/// let mut memory = WarmMemory::new(WarmStart::BySample { capacity: 1 << 20, precision: Precision::Half });
/// memory.remember(&[7, 9], &Tensor::<2>::ones([2, 3], &device));
/// let start = memory.recall(&[9, 4], Tensor::<2>::zeros([2, 3], &device));
/// assert_eq!(start.into_data().try_to_vec::<f32>().unwrap(), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WarmMemory {
    policy: WarmStart,
    /// By sample id: when it was stored, and what.
    states: BTreeMap<u64, (u64, Stored)>,
    /// Sample ids by the time they were stored.
    order: BTreeMap<u64, u64>,
    clock: u64,
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

    /// Bytes of states held; never above the capacity.
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

    /// Where to start for these samples: their remembered states, and the rows of `otherwise` for the rest.
    pub fn recall<const D: usize>(&self, ids: &[u64], otherwise: Tensor<D>) -> Tensor<D> {
        let shape = otherwise.dims();
        let width = shape[1..].iter().product();
        let found: Vec<Option<&Stored>> = self.find(ids).into_iter().map(|state| state.filter(|s| s.len() == width)).collect();
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

    /// Stores the fixed points of these samples; rows that are not finite are passed over.
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
            WarmStart::BySample { capacity, precision } => {
                for (&id, row) in ids.iter().zip(rows) {
                    if let Some(state) = Stored::new(row, precision) {
                        self.store(id, state, capacity);
                    }
                }
            }
        }
    }

    /// Every remembered sample and its state, the one stored longest ago first; [`restore`](Self::restore) in this order
    /// rebuilds the memory.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Vec<f32>)> + '_ {
        self.order.values().map(|id| (*id, self.states[id].1.to_single()))
    }

    /// Puts back an entry that [`entries`](Self::entries) gave, as the newest one.
    pub fn restore(&mut self, id: u64, state: &[f32]) {
        if let WarmStart::BySample { capacity, precision } = self.policy {
            let row: Vec<f64> = state.iter().map(|&value| value.into()).collect();
            if let Some(state) = Stored::new(&row, precision) {
                self.store(id, state, capacity);
            }
        }
    }

    /// Forgets the previous batch, which means nothing to whoever comes next.
    pub fn forget_previous(&mut self) {
        self.previous = None;
    }

    fn find(&self, ids: &[u64]) -> Vec<Option<&Stored>> {
        match &self.previous {
            Some(previous) => previous.iter().map(Some).collect(),
            None => ids.iter().map(|id| self.states.get(id).map(|(_, state)| state)).collect(),
        }
    }

    fn store(&mut self, id: u64, state: Stored, capacity: usize) {
        self.forget(id);
        let size = state.bytes();
        if size > capacity {
            return;
        }
        while self.bytes + size > capacity {
            let (_, &oldest) = self.order.first_key_value().expect("bytes are held, so somebody is remembered");
            self.forget(oldest);
        }
        self.clock += 1;
        self.bytes += size;
        self.order.insert(self.clock, id);
        self.states.insert(id, (self.clock, state));
    }

    fn forget(&mut self, id: u64) {
        if let Some((time, state)) = self.states.remove(&id) {
            self.bytes -= state.bytes();
            self.order.remove(&time);
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
