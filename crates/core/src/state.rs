//! What a client keeps between rounds. It never leaves the client.
use fedeq_equilibrium::{WarmMemory, WarmStart};

use crate::error::{Error, Result};
use crate::params::{Array, Metadata, Params};
use crate::weights::Weights;

/// A client's own state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientState {
    /// `theta_i`, `w_i` and the client's own statistics: a whole model.
    pub own: Weights,
    /// `lambda_i`, the dual of `theta_i = theta`; empty where the method has none.
    pub dual: Params,
    /// A second whole model where the method keeps one (Ditto's `v_i`).
    pub second: Option<Weights>,
    /// How often the client has taken part.
    pub participations: u64,
    /// The last round it took part in.
    pub last_round: Option<u64>,
    /// Fixed points remembered for warm starts.
    pub memory: WarmMemory,
}

impl ClientState {
    /// A client that has not trained yet.
    pub fn fresh(own: Weights, dual: Params, warm_start: WarmStart) -> Self {
        Self { own, dual, memory: WarmMemory::new(warm_start), ..Self::default() }
    }

    /// The bytes it takes in memory, to within small change.
    pub fn size(&self) -> usize {
        let weights = |weights: &Weights| 4 * (weights.params.count() + weights.statistics.count());
        weights(&self.own) + 4 * self.dual.count() + self.second.as_ref().map_or(0, weights) + self.memory.bytes()
    }

    /// The bytes of a file; the same state gives the same bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut all = self.own.packed().under("own");
        all.overwrite(&self.dual.under("dual"));
        if let Some(second) = &self.second {
            all.overwrite(&second.packed().under("second"));
        }
        let remembered = self.memory.entries().map(|(id, row)| (format!("memory/{id:020}"), Array::new(vec![row.len()], row)));
        all.overwrite(&remembered.collect());
        all.to_bytes(&self.notes())
    }

    /// Reads the bytes of a file; `like` tells which warm starts are wanted and which layout is expected.
    pub fn from_bytes(bytes: &[u8], like: &Self) -> Result<Self> {
        let (all, notes) = Params::from_bytes(bytes)?;
        let own = Weights::unpacked(&all.below("own"));
        own.ensure_like(&like.own)?;
        let dual = all.below("dual");
        dual.ensure_like(&like.dual)?;
        let second = all.below("second");
        let second = (!second.is_empty()).then(|| Weights::unpacked(&second));
        second.iter().try_for_each(|second| second.ensure_like(&like.own))?;
        let mut state = Self { own, dual, second, memory: like.memory.clone(), ..Self::default() };
        state.participations = number(&notes, "participations")?.ok_or_else(|| Error::message("`participations` is missing"))?;
        state.last_round = number(&notes, "last_round")?;
        state.restore_memory(&all.below("memory"), &notes)?;
        Ok(state)
    }

    fn notes(&self) -> Metadata {
        let ids: Vec<String> = self.memory.entries().map(|(id, _)| id.to_string()).collect();
        let mut notes =
            Metadata::from([("participations".into(), self.participations.to_string()), ("memory".into(), ids.join(","))]);
        notes.extend(self.last_round.map(|round| ("last_round".into(), round.to_string())));
        notes
    }

    /// Remembers in the order in which it was remembered before.
    fn restore_memory(&mut self, rows: &Params, notes: &Metadata) -> Result<()> {
        let order = notes.get("memory").map(String::as_str).unwrap_or_default();
        for id in order.split(',').filter(|id| !id.is_empty()) {
            let id: u64 = id.parse().map_err(|_| Error::message(format!("`{id}` is not a sample")))?;
            let row =
                rows.get(&format!("{id:020}")).ok_or_else(|| Error::message(format!("the state of sample {id} is missing")))?;
            self.memory.restore(id, &row.values);
        }
        Ok(())
    }
}

fn number(notes: &Metadata, key: &str) -> Result<Option<u64>> {
    let parsed =
        notes.get(key).map(|text| text.parse().map_err(|_| Error::message(format!("`{key}` is not a number: `{text}`"))));
    parsed.transpose()
}
