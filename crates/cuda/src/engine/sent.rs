//! What clients send, on the device, where the server's mean of it is taken.
use std::any::Any;
use std::sync::Arc;

use fedeq_core::{EngineWeights, Result, SentWeights, Weights};

use super::lanes::{Lanes, Table};
use super::parts::{Parts, Section};
use super::state::Home;
use crate::device::{Buffer, Launch, Pointer, launch};

/// What one lane of a cohort sends.
struct DeviceSent {
    home: Arc<Home>,
    cohort: Arc<Cohort>,
    lane: usize,
}

/// What a cohort sends.
struct Cohort {
    tables: Parts<Table>,
    /// Of every lane, whether all its numbers are.
    finite: Vec<bool>,
}

/// What each lane of a cohort sends. It stays on the device where it has the parts that were received, whose names and shapes it then has.
pub(crate) fn sent(
    home: &Arc<Home>,
    lanes: Lanes<'_>,
    tables: Parts<Table>,
    received: &Parts<Table>,
    like: &[&Weights],
) -> Result<Vec<SentWeights>> {
    let stays = tables.present() == received.present();
    let cohort = Arc::new(Cohort { finite: are_finite(lanes, &tables)?, tables });
    let held = (0..lanes.count).map(|lane| DeviceSent { home: Arc::clone(home), cohort: Arc::clone(&cohort), lane });
    held.zip(like).map(|(held, &like)| if stays { Ok(held.held_like(like)) } else { held.to_host().map(Into::into) }).collect()
}

/// Of every lane, whether all numbers are finite.
fn are_finite(lanes: Lanes<'_>, tables: &Parts<Table>) -> Result<Vec<bool>> {
    let mut finite = vec![true; lanes.count];
    for (section, table) in tables.iter() {
        let here = match table {
            Table::Each(each) => each.iter().map(|stored| stored.is_finite()).collect(),
            Table::Same(stored) => vec![stored.is_finite(); lanes.count],
            Table::Made(made) => lanes.are_finite(section, made)?,
        };
        finite.iter_mut().zip(here).for_each(|(finite, here)| *finite &= here);
    }
    Ok(finite)
}

impl DeviceSent {
    fn held_like(self, like: &Weights) -> SentWeights {
        SentWeights::by_engine(like.clone(), Arc::new(self))
    }

    /// The same in its own form, if it is of the same network on the same device and has the same parts.
    fn alike<'i>(&self, item: &'i dyn EngineWeights) -> Option<&'i Self> {
        let item: &dyn Any = item;
        let item = item.downcast_ref::<Self>()?;
        let parts = |sent: &Self| sent.cohort.tables.present();
        (Arc::ptr_eq(&item.home, &self.home) && parts(item) == parts(self)).then_some(item)
    }

    fn len(&self, section: Section) -> usize {
        section.range(&self.home.layout).len()
    }

    fn on_host(&self, section: Section, table: &Table) -> Result<Arc<Vec<f32>>> {
        match table {
            Table::Each(each) => each[self.lane].on_host(),
            Table::Same(stored) => stored.on_host(),
            Table::Made(made) => {
                let mut numbers = vec![0.0; self.len(section)];
                made.read(&self.home.device, self.lane * numbers.len(), &mut numbers)?;
                Ok(Arc::new(numbers))
            }
        }
    }

    /// Writes the numbers of a section one after the other to where the mean is taken.
    fn copy_to(&self, section: Section, to: Pointer<f32>) -> Result<()> {
        let Some(table) = self.cohort.tables.get(section) else { return Ok(()) };
        let len = self.len(section);
        let (from, offset) = match table {
            Table::Each(each) => (each[self.lane].on_device()?, 0),
            Table::Same(stored) => (stored.on_device()?, 0),
            Table::Made(made) => (Arc::clone(made), self.lane * len),
        };
        self.home.device.copy(from.pointer().add(offset), to, len)
    }

    /// The mean of a section, on the host.
    fn mean_of(&self, section: Section, items: &[(&Self, f64)]) -> Result<Vec<f32>> {
        let (device, len) = (&self.home.device, self.len(section));
        let (all, mean) = (Buffer::<f32>::new(device, items.len() * len)?, Buffer::<f32>::new(device, len)?);
        for (at, (item, _)) in items.iter().enumerate() {
            item.copy_to(section, all.pointer().add(at * len))?;
        }
        let weights: Vec<f64> = items.iter().map(|(_, weight)| *weight).collect();
        let weights = Buffer::of(device, &weights)?;
        launch!(device, Launch::new("mean_of_clients", [len.div_ceil(256), 1, 1], 256);
            all.pointer(), weights.pointer(), mean.pointer(), len as i64, len as i64, items.len() as i32)?;
        let mut numbers = vec![0.0; len];
        mean.read(device, 0, &mut numbers)?;
        Ok(numbers)
    }
}

impl EngineWeights for DeviceSent {
    fn to_host(&self) -> Result<Weights> {
        let mut weights = Weights::default();
        for (section, table) in self.cohort.tables.iter() {
            self.home.name(section, &self.on_host(section, table)?, &mut weights);
        }
        Ok(weights)
    }

    fn is_finite(&self) -> bool {
        self.cohort.finite[self.lane]
    }

    fn mean(&self, items: &[(&dyn EngineWeights, f64)]) -> Option<Result<Weights>> {
        let items = items.iter().map(|(item, weight)| Some((self.alike(*item)?, *weight))).collect::<Option<Vec<_>>>()?;
        let mut mean = Weights::default();
        for (section, _) in self.cohort.tables.iter() {
            match self.mean_of(section, &items) {
                Ok(numbers) => self.home.name(section, &numbers, &mut mean),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(mean))
    }
}
