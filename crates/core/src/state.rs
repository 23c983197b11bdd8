//! What a client keeps between rounds. It never leaves the client.
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_models::store::Metadata;

use crate::compression::CompressionState;
use crate::engine::Workspace;
use crate::error::{Error, Result};
use crate::params::{Array, Params};
use crate::weights::Weights;
use crate::work::{ClientInfo, Expression};

/// A client's own state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientState {
    /// `theta_i`, `w_i` and the client's own statistics: a whole model.
    pub own: Weights,
    /// `lambda_i`, the dual of `theta_i = theta`; empty where the method has none.
    pub dual: Params,
    /// A second whole model where the method keeps one (Ditto's `v_i`).
    pub second: Option<Weights>,
    /// The share of the second model in a mixture, where the method adapts it (APFL's `alpha_i`).
    pub mixing: Option<f64>,
    /// How often the client has taken part.
    pub participations: u64,
    /// The last round it took part in.
    pub last_round: Option<u64>,
    /// Fixed points remembered for warm starts.
    pub memory: WarmMemory,
    /// What it keeps for the sake of compression.
    pub compression: CompressionState,
}

/// Where remembered fixed points stand in a file, and the note that says whose they are.
const MEMORY: &str = "memory";

impl ClientState {
    /// A client that has not trained yet.
    pub fn fresh(own: Weights, dual: Params, warm_start: WarmStart) -> Self {
        Self { own, dual, memory: WarmMemory::new(warm_start), ..Self::default() }
    }

    /// What a method may know of it.
    pub fn info(&self) -> ClientInfo {
        let Self { participations, last_round, mixing, .. } = *self;
        ClientInfo { participations, last_round, mixing, has_second: self.second.is_some(), ..ClientInfo::default() }
    }

    /// A model made of what the client keeps and what it received.
    pub fn view(&self, model: &Expression, received: &Weights) -> Result<Weights> {
        Workspace::new(received, Cow::Borrowed(self)).evaluate(model)
    }

    /// The head by which the client is evaluated: that of its second model, where the method keeps one.
    pub fn head(&self) -> Params {
        self.second.as_ref().unwrap_or(&self.own).head()
    }

    fn is_finite(&self) -> bool {
        self.own.is_finite() && self.dual.is_finite() && self.mixing.is_none_or(f64::is_finite)
    }

    /// The bytes it takes in memory, to within small change.
    pub fn size(&self) -> usize {
        let weights = |weights: &Weights| 4 * (weights.params.count() + weights.statistics.count());
        weights(&self.own)
            + 4 * self.dual.count()
            + self.second.as_ref().map_or(0, weights)
            + self.memory.bytes()
            + self.compression.size()
    }

    /// The bytes of a file; the same state gives the same bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut all = self.own.packed().under("own");
        all.overwrite(&self.dual.under("dual"));
        if let Some(second) = &self.second {
            all.overwrite(&second.packed().under("second"));
        }
        all.overwrite(&self.compression.packed());
        all.overwrite(&self.remembered()?);
        all.to_bytes_halving(&self.notes(), |name| name == MEMORY)
    }

    /// All fixed points in one array, one a row: they are most of a state, so they are stored as compactly as they are kept.
    fn remembered(&self) -> Result<Params> {
        let rows: Vec<Vec<f32>> = self.memory.entries().map(|(_, row)| row).collect();
        let Some(width) = rows.first().map(Vec::len) else { return Ok(Params::default()) };
        if rows.iter().any(|row| row.len() != width) {
            return Err(Error::message("it remembers states of different sizes"));
        }
        Ok([(MEMORY.to_owned(), Array::new(vec![rows.len(), width], rows.concat()))].into_iter().collect())
    }

    /// Reads the bytes of a file; `like` tells which warm starts are wanted and which layout is expected.
    pub fn from_bytes(bytes: &[u8], like: &Self) -> Result<Self> {
        let (all, notes) = Params::from_bytes_halved(bytes, |name| name == MEMORY)?;
        let own = Weights::stored(&all.below("own"), &like.own)?;
        let dual = all.below("dual").named_like(&like.dual);
        dual.ensure_like(&like.dual)?;
        let second = all.below("second");
        let second = (!second.is_empty()).then(|| Weights::stored(&second, &like.own)).transpose()?;
        let mut state = Self { own, dual, second, memory: like.memory.clone(), ..Self::default() };
        state.participations = number(&notes, "participations")?.ok_or_else(|| Error::message("`participations` is missing"))?;
        state.last_round = number(&notes, "last_round")?;
        state.mixing = number(&notes, "mixing")?;
        state.compression = CompressionState::stored(&all, |key| number(&notes, key), &like.own)?;
        state.restore_memory(all.get(MEMORY), &notes)?;
        Ok(state)
    }

    fn notes(&self) -> Metadata {
        let ids: Vec<String> = self.memory.entries().map(|(id, _)| id.to_string()).collect();
        let mut notes =
            Metadata::from([("participations".into(), self.participations.to_string()), (MEMORY.into(), ids.join(","))]);
        notes.extend(self.last_round.map(|round| ("last_round".into(), round.to_string())));
        notes.extend(self.mixing.map(|mixing| ("mixing".into(), mixing.to_string())));
        notes.extend(self.compression.note());
        notes
    }

    /// Remembers in the order in which it was remembered before.
    fn restore_memory(&mut self, rows: Option<&Array>, notes: &Metadata) -> Result<()> {
        let order = notes.get(MEMORY).map(String::as_str).unwrap_or_default();
        let samples: Vec<&str> = order.split(',').filter(|id| !id.is_empty()).collect();
        let values = rows.map_or(&[][..], |rows| rows.values.as_slice());
        if values.is_empty() != samples.is_empty() || !values.len().is_multiple_of(samples.len().max(1)) {
            return Err(Error::message(format!("it does not hold a state for each of {} samples", samples.len())));
        }
        let width = (values.len() / samples.len().max(1)).max(1);
        for (id, row) in samples.into_iter().zip(values.chunks_exact(width)) {
            let id: u64 = id.parse().map_err(|_| Error::message(format!("`{id}` is not a sample")))?;
            self.memory.restore(id, row);
        }
        Ok(())
    }
}

/// A client's state wherever its engine keeps it: as plain numbers in memory, or in a form of the engine's own, such as buffers on a device.
#[derive(Clone)]
pub struct KeptState(StateForm);

#[derive(Clone)]
enum StateForm {
    Here(ClientState),
    ByEngine(ClientInfo, CompressionState, Arc<dyn EngineState>),
}

/// A client's state in the form in which an engine keeps it between rounds. It never changes: an engine that trains on makes a new one, since the old one may
/// be gone back to.
pub trait EngineState: Any + Send + Sync {
    /// The state as plain numbers, for checkpoints and observers. How often the client took part, its mixing, and what it keeps for compression, is filled in by the caller.
    fn to_host(&self) -> Result<ClientState>;

    /// The [head](ClientState::head) alone, which an observer asks for twice a round.
    fn head(&self) -> Result<Params> {
        self.to_host().map(|state| state.head())
    }

    /// Whether all numbers of the model and its dual are finite.
    fn is_finite(&self) -> bool;

    /// The bytes of the host's memory that it counts for: nothing for what is on a device. Always the same number.
    fn size(&self) -> usize;
}

impl From<ClientState> for KeptState {
    fn from(state: ClientState) -> Self {
        Self(StateForm::Here(state))
    }
}

impl KeptState {
    /// A state that an engine keeps in its own form; `info` is what the method knows of the client after the work.
    pub fn by_engine(info: ClientInfo, state: Arc<dyn EngineState>) -> Self {
        Self(StateForm::ByEngine(info, CompressionState::default(), state))
    }

    /// What a method may know of it.
    pub fn info(&self) -> ClientInfo {
        match &self.0 {
            StateForm::Here(state) => state.info(),
            StateForm::ByEngine(info, ..) => *info,
        }
    }

    /// The state in an engine's own form, if it is kept so.
    pub fn held<S: EngineState>(&self) -> Option<&S> {
        match &self.0 {
            StateForm::Here(_) => None,
            StateForm::ByEngine(.., state) => (state.as_ref() as &dyn Any).downcast_ref(),
        }
    }

    /// The state as plain numbers.
    pub fn to_host(&self) -> Result<Cow<'_, ClientState>> {
        match &self.0 {
            StateForm::Here(state) => Ok(Cow::Borrowed(state)),
            StateForm::ByEngine(info, compression, state) => {
                let ClientInfo { participations, last_round, mixing, .. } = *info;
                let compression = compression.clone();
                Ok(Cow::Owned(ClientState { participations, last_round, mixing, compression, ..state.to_host()? }))
            }
        }
    }

    /// The state as plain numbers, for what continues with it.
    pub fn into_host(self) -> Result<ClientState> {
        match self.0 {
            StateForm::Here(state) => Ok(state),
            StateForm::ByEngine(..) => Ok(self.to_host()?.into_owned()),
        }
    }

    /// The [head](ClientState::head) alone.
    pub fn head(&self) -> Result<Params> {
        match &self.0 {
            StateForm::Here(state) => Ok(state.head()),
            StateForm::ByEngine(.., state) => state.head(),
        }
    }

    /// The bytes it takes in memory, to within small change.
    pub fn size(&self) -> usize {
        match &self.0 {
            StateForm::Here(state) => state.size(),
            StateForm::ByEngine(_, compression, state) => compression.size() + state.size(),
        }
    }

    /// The state as plain numbers, if it is kept so.
    pub(crate) fn here(&self) -> Option<&ClientState> {
        match &self.0 {
            StateForm::Here(state) => Some(state),
            StateForm::ByEngine(..) => None,
        }
    }

    /// What the client keeps for the sake of compression: on the host, whoever keeps the rest.
    pub(crate) fn compression(&self) -> &CompressionState {
        match &self.0 {
            StateForm::Here(state) => &state.compression,
            StateForm::ByEngine(_, compression, _) => compression,
        }
    }

    pub(crate) fn keep_compression(&mut self, kept: CompressionState) {
        match &mut self.0 {
            StateForm::Here(ClientState { compression, .. }) | StateForm::ByEngine(_, compression, _) => *compression = kept,
        }
    }

    pub(crate) fn is_finite(&self) -> bool {
        match &self.0 {
            StateForm::Here(state) => state.is_finite(),
            StateForm::ByEngine(info, _, state) => info.mixing.is_none_or(f64::is_finite) && state.is_finite(),
        }
    }

    /// The client has taken part in a round.
    pub(crate) fn took_part(&mut self, round: u64) {
        match &mut self.0 {
            StateForm::Here(ClientState { participations, last_round, .. })
            | StateForm::ByEngine(ClientInfo { participations, last_round, .. }, ..) => {
                *participations += 1;
                *last_round = Some(round);
            }
        }
    }

    /// Local work is over: fixed points that are not meant to outlast it are forgotten. Those in an engine's own form are the engine's business.
    pub(crate) fn end_phases(&mut self) {
        if let StateForm::Here(state) = &mut self.0 {
            state.memory.end_phases();
        }
    }
}

fn number<N: std::str::FromStr>(notes: &Metadata, key: &str) -> Result<Option<N>> {
    let parsed =
        notes.get(key).map(|text| text.parse().map_err(|_| Error::message(format!("`{key}` is not a number: `{text}`"))));
    parsed.transpose()
}
