//! Clients' states on the device.
use std::sync::{Arc, Mutex};

use fedeq_core::{Array, ClientState, EngineState, KeptState, Params, Result, Weights};
use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_models::{Graph, Part};

use super::parts::{Parts, Section, parts_of};
use super::stored::{Storage, Stored, lock};
use super::warm::KeptStates;
use crate::device::{Buffer, Device};
use crate::layout::Layout;

/// A network on a device, and what clients keep there.
pub(crate) struct Home {
    pub(crate) device: Arc<Device>,
    pub(crate) graph: Arc<Graph>,
    pub(crate) layout: Layout,
    pub(crate) storage: Arc<Storage>,
    pub(crate) warm_start: WarmStart,
    uploaded: Mutex<Vec<Uploaded>>,
}

/// What came from the host not long ago. Fresh clients share most of their arrays, and all clients of a round receive the same.
struct Uploaded {
    section: Section,
    /// Those of the host; none for zeros.
    arrays: Vec<Arc<Vec<f32>>>,
    stored: Arc<Stored>,
}

/// How many of them are remembered.
const UPLOADED: usize = 16;

impl Home {
    pub(crate) fn new(
        device: &Arc<Device>,
        graph: Arc<Graph>,
        layout: Layout,
        storage: Arc<Storage>,
        warm_start: WarmStart,
    ) -> Self {
        Self { device: Arc::clone(device), graph, layout, storage, warm_start, uploaded: Mutex::default() }
    }

    /// A model, or a part of one, on the device.
    pub(crate) fn upload(&self, weights: &Weights) -> Result<Parts<Arc<Stored>>> {
        let control = weights.control();
        parts_of(&self.graph, weights).map(|section, ()| {
            let weights = if let Section::Control(_) = section { &control } else { weights };
            self.upload_section(section, weights)
        })
    }

    fn upload_section(&self, section: Section, weights: &Weights) -> Result<Arc<Stored>> {
        let arrays = self.arrays(section, weights);
        if let Some(known) = self.known(section, &arrays) {
            return Ok(known);
        }
        // Such as fresh duals, each of which is an array of its own.
        let zeros = arrays.len() == self.count(section) && arrays.iter().all(|array| are_zero(array));
        if let Some(known) = zeros.then(|| self.known(section, &[])).flatten() {
            return Ok(known);
        }
        let stored = self.upload_anew(section, weights)?;
        let mut uploaded = lock(&self.uploaded);
        let arrays = if zeros { Vec::new() } else { arrays };
        uploaded.insert(0, Uploaded { section, arrays, stored: Arc::clone(&stored) });
        uploaded.truncate(UPLOADED);
        Ok(stored)
    }

    /// How many arrays the host has for a section.
    fn count(&self, section: Section) -> usize {
        match section.kind() {
            Some(kind) => kind.parameters(&self.graph).count(),
            None => 3 * self.graph.statistics.len(),
        }
    }

    /// What these arrays became not long ago; those of zeros are known by no arrays at all.
    fn known(&self, section: Section, arrays: &[Arc<Vec<f32>>]) -> Option<Arc<Stored>> {
        let mut uploaded = lock(&self.uploaded);
        let same = |one: &Uploaded| {
            one.section == section
                && one.arrays.len() == arrays.len()
                && one.arrays.iter().zip(arrays).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let found = uploaded.iter().position(same)?;
        uploaded[..=found].rotate_right(1);
        Some(Arc::clone(&uploaded[0].stored))
    }

    /// Whether numbers that were uploaded are all zero.
    fn is_zero(&self, section: Section, stored: &Arc<Stored>) -> bool {
        self.known(section, &[]).is_some_and(|zeros| Arc::ptr_eq(&zeros, stored))
    }

    /// The host's arrays of a section, in the order of the network.
    fn arrays(&self, section: Section, weights: &Weights) -> Vec<Arc<Vec<f32>>> {
        let values = |array: Option<&Array>| array.map(|array| Arc::clone(&array.values));
        match section.kind() {
            None => {
                let names = self.graph.statistics.iter().flat_map(|running| running.names());
                names.filter_map(|name| values(weights.statistics.get(&name))).collect()
            }
            Some(kind) => {
                kind.parameters(&self.graph).filter_map(|parameter| values(weights.params.get(&parameter.path))).collect()
            }
        }
    }

    fn upload_anew(&self, section: Section, weights: &Weights) -> Result<Arc<Stored>> {
        let mut numbers = vec![0.0; section.range(&self.layout).len()];
        match section.kind() {
            Some(kind) => self.layout.write_kind(&self.graph, &weights.params, kind, &mut numbers)?,
            None => self.layout.write_statistics(&self.graph, weights, &mut numbers)?,
        }
        let finite = numbers.iter().all(|value| value.is_finite());
        self.storage.keep(Arc::new(Buffer::of(&self.device, &numbers)?), finite)
    }

    /// Adds the named arrays of a section whose numbers are on the host in the order of the device.
    pub(crate) fn name(&self, section: Section, numbers: &[f32], weights: &mut Weights) {
        let read = |kind| self.layout.read_kind(&self.graph, numbers, kind);
        match section {
            Section::Parameters(kind) => weights.params.overwrite(&read(kind)),
            Section::Control(kind) => *weights = weights.beside(&read(kind)),
            Section::Statistics => weights.statistics = self.layout.read_statistics(&self.graph, numbers),
        }
    }

    fn download(&self, parts: &Parts<Arc<Stored>>) -> Result<Weights> {
        let mut weights = Weights::default();
        for (section, stored) in parts.iter() {
            self.name(section, &stored.on_host()?, &mut weights);
        }
        Ok(weights)
    }

    /// The state of a client as it is kept here: as it was left, or brought from the host.
    pub(crate) fn state(self: &Arc<Self>, state: &KeptState) -> Result<DeviceState> {
        match state.held::<DeviceState>() {
            Some(held) if Arc::ptr_eq(&held.home, self) => Ok(held.clone()),
            _ => self.from_host(&*state.to_host()?),
        }
    }

    fn from_host(self: &Arc<Self>, state: &ClientState) -> Result<DeviceState> {
        let dual = self.upload(&Weights { params: state.dual.clone(), ..Weights::default() })?;
        let is_zero = dual.iter().all(|(section, stored)| self.is_zero(section, stored));
        let holding = Holding {
            own: self.upload(&state.own)?,
            dual,
            second: state.second.as_ref().map(|second| self.upload(second)).transpose()?,
            dual_norm: if is_zero { 0.0 } else { state.dual.norm() },
            warm: KeptStates::from_host(&self.device, &state.memory)?,
        };
        Ok(DeviceState::new(self, holding))
    }
}

/// Whether all numbers are +0.
fn are_zero(values: &[f32]) -> bool {
    // A whole block is looked at before anything is decided, which vector instructions do at once.
    values.chunks(4096).all(|block| block.iter().fold(0, |bits, value| bits | value.to_bits()) == 0)
}

/// A client's state between rounds. It never changes.
#[derive(Clone)]
pub(crate) struct DeviceState {
    pub(crate) home: Arc<Home>,
    pub(crate) own: Parts<Arc<Stored>>,
    pub(crate) dual: Parts<Arc<Stored>>,
    pub(crate) second: Option<Parts<Arc<Stored>>>,
    pub(crate) dual_norm: f64,
    /// Fixed points that outlast a round; nothing if there are none.
    pub(crate) warm: Option<KeptStates>,
    /// The bytes of the host's memory that it counts for.
    counted: usize,
}

/// What a state is made of.
pub(crate) struct Holding {
    pub(crate) own: Parts<Arc<Stored>>,
    pub(crate) dual: Parts<Arc<Stored>>,
    pub(crate) second: Option<Parts<Arc<Stored>>>,
    pub(crate) dual_norm: f64,
    pub(crate) warm: Option<KeptStates>,
}

impl DeviceState {
    /// A state that counts for nothing on the host, as long as there is room for all of them on the device: the next one then makes another leave.
    pub(crate) fn new(home: &Arc<Home>, holding: Holding) -> Self {
        let Holding { own, dual, second, dual_norm, warm } = holding;
        let bytes = |parts: &Parts<Arc<Stored>>| parts.iter().map(|(_, stored)| stored.bytes()).sum::<usize>();
        let all = bytes(&own) + bytes(&dual) + second.as_ref().map_or(0, bytes);
        let counted = if home.storage.overflows() { all } else { 0 };
        Self { home: Arc::clone(home), own, dual, second, dual_norm, warm, counted }
    }
}

impl EngineState for DeviceState {
    fn to_host(&self) -> Result<ClientState> {
        let memory = match &self.warm {
            Some(warm) => warm.to_host(&self.home.device, self.home.warm_start)?,
            None => WarmMemory::new(self.home.warm_start),
        };
        Ok(ClientState {
            own: self.home.download(&self.own)?,
            dual: self.home.download(&self.dual)?.params,
            second: self.second.as_ref().map(|second| self.home.download(second)).transpose()?,
            memory,
            ..ClientState::default()
        })
    }

    fn head(&self) -> Result<Params> {
        let model = self.second.as_ref().unwrap_or(&self.own);
        Ok(self.home.download(&model.only(Part::Personal).without_statistics())?.params)
    }

    fn is_finite(&self) -> bool {
        self.own.iter().chain(self.dual.iter()).all(|(_, stored)| stored.is_finite())
    }

    fn size(&self) -> usize {
        self.counted
    }
}
