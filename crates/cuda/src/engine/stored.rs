//! What clients keep between rounds: on the device as far as the budget goes, then in the host's memory.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fedeq_core::Result;

use crate::device::{Buffer, Device};

/// The numbers of a part of a model. They never change; where they are may.
pub(crate) struct Stored {
    len: usize,
    /// Whether all of them are.
    finite: bool,
    /// When they were last asked for.
    used: AtomicU64,
    place: Mutex<Place>,
    storage: Arc<Storage>,
}

#[derive(Clone)]
enum Place {
    Device(Arc<Buffer<f32>>),
    Host(Arc<Vec<f32>>),
}

/// All that is stored, and how much of it may be on the device.
pub(crate) struct Storage {
    device: Arc<Device>,
    budget: u64,
    /// On the device, and wherever it is.
    bytes: AtomicU64,
    all_bytes: AtomicU64,
    clock: AtomicU64,
    all: Mutex<Vec<Weak<Stored>>>,
}

impl Storage {
    pub(crate) fn new(device: &Arc<Device>, budget: u64) -> Arc<Self> {
        let count = AtomicU64::default;
        Arc::new(Self {
            device: Arc::clone(device),
            budget,
            bytes: count(),
            all_bytes: count(),
            clock: count(),
            all: Mutex::default(),
        })
    }

    /// Bytes that may be on the device.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes on the device.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there is more than may be on the device, so that the host has to hold some of it.
    pub(crate) fn overflows(&self) -> bool {
        self.all_bytes.load(Ordering::Relaxed) > self.budget
    }

    /// Keeps numbers that are on the device; whatever was not used for longest makes room for them.
    pub(crate) fn keep(self: &Arc<Self>, numbers: Arc<Buffer<f32>>, finite: bool) -> Result<Arc<Stored>> {
        self.bytes.fetch_add(numbers.bytes(), Ordering::Relaxed);
        self.all_bytes.fetch_add(numbers.bytes(), Ordering::Relaxed);
        let stored = Arc::new(Stored {
            len: numbers.len(),
            finite,
            used: AtomicU64::new(self.now()),
            place: Mutex::new(Place::Device(numbers)),
            storage: Arc::clone(self),
        });
        lock(&self.all).push(Arc::downgrade(&stored));
        self.make_room(self.budget, Some(&stored))?;
        Ok(stored)
    }

    /// Moves numbers to the host until no more than so many bytes are on the device.
    pub(crate) fn make_room(&self, most: u64, but: Option<&Arc<Stored>>) -> Result<()> {
        if self.bytes() <= most {
            return Ok(());
        }
        let mut all = lock(&self.all);
        all.retain(|stored| stored.strong_count() > 0);
        let mut here: Vec<Arc<Stored>> = all.iter().filter_map(Weak::upgrade).collect();
        drop(all);
        here.sort_by_key(|stored| stored.used.load(Ordering::Relaxed));
        for stored in here {
            if self.bytes() <= most {
                break;
            }
            if !but.is_some_and(|kept| Arc::ptr_eq(kept, &stored)) {
                stored.leave_device()?;
            }
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

impl Stored {
    pub(crate) fn is_finite(&self) -> bool {
        self.finite
    }

    /// The bytes it takes, wherever that is.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.len
    }

    /// The numbers on the device; a copy for the time being if they are kept on the host.
    pub(crate) fn on_device(&self) -> Result<Arc<Buffer<f32>>> {
        self.used.store(self.storage.now(), Ordering::Relaxed);
        match &*lock(&self.place) {
            Place::Device(numbers) => Ok(Arc::clone(numbers)),
            Place::Host(numbers) => Ok(Arc::new(Buffer::of(&self.storage.device, numbers)?)),
        }
    }

    /// The numbers on the host.
    pub(crate) fn on_host(&self) -> Result<Arc<Vec<f32>>> {
        let place = lock(&self.place).clone();
        match place {
            Place::Device(numbers) => {
                let mut values = vec![0.0; self.len];
                numbers.read(&self.storage.device, 0, &mut values)?;
                Ok(Arc::new(values))
            }
            Place::Host(numbers) => Ok(numbers),
        }
    }

    fn leave_device(&self) -> Result<()> {
        let numbers = self.on_host()?;
        let before = std::mem::replace(&mut *lock(&self.place), Place::Host(numbers));
        self.storage.leaves(&before);
        Ok(())
    }
}

impl Storage {
    fn leaves(&self, place: &Place) {
        if let Place::Device(numbers) = place {
            self.bytes.fetch_sub(numbers.bytes(), Ordering::Relaxed);
        }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.storage.leaves(place);
        // As a buffer has room for one number at least.
        self.storage.all_bytes.fetch_sub(4 * self.len.max(1) as u64, Ordering::Relaxed);
    }
}

/// The lock, also after a panic with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
