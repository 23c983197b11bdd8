//! The numbers of a cohort's models on the device, and arithmetic on all of them at once.
use std::sync::Arc;

use fedeq_core::Result;

use super::expression::Arithmetic;
use super::parts::Section;
use super::stored::Stored;
use crate::device::{Buffer, Device, Launch, Pointer, launch};

/// A part of the models of all lanes.
#[derive(Clone)]
pub(crate) enum Table {
    /// What each client keeps or received, where it is.
    Each(Arc<Vec<Arc<Stored>>>),
    /// The same for all.
    Same(Arc<Stored>),
    /// `[lanes][numbers of the part]`, made in this round.
    Made(Arc<Buffer<f32>>),
}

impl Table {
    /// What each lane has.
    pub(crate) fn of(each: Vec<Arc<Stored>>) -> Self {
        match each.first() {
            Some(first) if each.iter().all(|other| Arc::ptr_eq(first, other)) => Self::Same(Arc::clone(first)),
            _ => Self::Each(Arc::new(each)),
        }
    }

    /// Whether it is this, for all lanes.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Each(a), Self::Each(b)) => a.iter().zip(b.iter()).all(|(a, b)| Arc::ptr_eq(a, b)),
            (Self::Same(a), Self::Same(b)) => Arc::ptr_eq(a, b),
            (Self::Made(a), Self::Made(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// Numbers of all lanes where a kernel can read them: lanes `stride` apart, which is 0 if all have the same.
struct Readable {
    numbers: Arc<Buffer<f32>>,
    stride: usize,
}

impl Readable {
    fn pointer(&self) -> Pointer<f32> {
        self.numbers.pointer()
    }
}

/// Arithmetic on the models of so many lanes.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<'a> {
    pub(crate) device: &'a Arc<Device>,
    pub(crate) layout: &'a crate::layout::Layout,
    pub(crate) count: usize,
}

/// Numbers a block of the kernels below takes care of.
const BLOCK: usize = 1024;
/// Blocks a lane that add up its norm.
const NORM_BLOCKS: usize = 64;

impl Lanes<'_> {
    fn len(&self, section: Section) -> usize {
        section.range(self.layout).len()
    }

    /// Copies a part of all lanes to where lanes are `stride` numbers apart.
    pub(crate) fn copy_to(&self, section: Section, table: &Table, to: Pointer<f32>, stride: usize) -> Result<()> {
        let len = self.len(section);
        match table {
            Table::Each(each) => {
                for (lane, stored) in each.iter().enumerate() {
                    let from = stored.on_device()?;
                    self.copy(from.pointer(), 0, to.add(lane * stride), 0, len, 1)?;
                }
                Ok(())
            }
            Table::Same(stored) => self.copy(stored.on_device()?.pointer(), 0, to, stride, len, self.count),
            Table::Made(made) => self.copy(made.pointer(), len, to, stride, len, self.count),
        }
    }

    /// A table of its own of what is where lanes are `stride` numbers apart.
    pub(crate) fn copy_from(&self, section: Section, from: Pointer<f32>, stride: usize) -> Result<Table> {
        let len = self.len(section);
        let made = Buffer::new(self.device, self.count * len)?;
        self.copy(from, stride, made.pointer(), len, len, self.count)?;
        Ok(Table::Made(Arc::new(made)))
    }

    fn copy(
        &self,
        from: Pointer<f32>,
        from_stride: usize,
        to: Pointer<f32>,
        to_stride: usize,
        len: usize,
        lanes: usize,
    ) -> Result<()> {
        let nothing = Pointer::<f32>::NULL;
        let [to_stride, from_stride] = [to_stride, from_stride].map(|stride| stride as i64);
        launch!(self.device, Launch::new("lanes_plus", [len.div_ceil(BLOCK), lanes, 1], 256);
            to, from, nothing, to_stride, from_stride, 0_i64, len as i64, 0.0_f32)
    }

    fn readable(&self, section: Section, table: &Table) -> Result<Readable> {
        let stride = self.len(section);
        match table {
            Table::Each(_) => {
                let made = Buffer::new(self.device, self.count * stride)?;
                self.copy_to(section, table, made.pointer(), stride)?;
                Ok(Readable { numbers: Arc::new(made), stride })
            }
            Table::Same(stored) => Ok(Readable { numbers: stored.on_device()?, stride: 0 }),
            Table::Made(made) => Ok(Readable { numbers: Arc::clone(made), stride }),
        }
    }

    /// What one lane has, in memory of its own.
    pub(crate) fn lane(&self, section: Section, made: &Buffer<f32>, lane: usize) -> Result<Arc<Buffer<f32>>> {
        let len = self.len(section);
        let own = Buffer::new(self.device, len)?;
        self.copy(made.pointer().add(lane * len), 0, own.pointer(), 0, len, 1)?;
        Ok(Arc::new(own))
    }

    /// Of every lane, whether all numbers of a table that was made here are finite.
    pub(crate) fn are_finite(&self, section: Section, made: &Buffer<f32>) -> Result<Vec<bool>> {
        let len = self.len(section);
        self.are_finite_at(made.pointer(), len, len)
    }

    /// The same for `len` numbers of lanes that are `stride` apart.
    pub(crate) fn are_finite_at(&self, numbers: Pointer<f32>, stride: usize, len: usize) -> Result<Vec<bool>> {
        let bad = Buffer::<i32>::zeros(self.device, self.count)?;
        launch!(self.device, Launch::new("lanes_finite", [len.div_ceil(BLOCK), self.count, 1], 256);
            numbers, stride as i64, len as i64, bad.pointer())?;
        let mut found = vec![0; self.count];
        bad.read(self.device, 0, &mut found)?;
        Ok(found.into_iter().map(|bad| bad == 0).collect())
    }

    /// The inner product of two tables, lane by lane.
    pub(crate) fn dots(&self, section: Section, first: &Table, second: &Table) -> Result<Vec<f64>> {
        let len = self.len(section);
        let (partial, sums) =
            (Buffer::<f64>::new(self.device, self.count * NORM_BLOCKS)?, Buffer::<f64>::new(self.device, self.count)?);
        let (first, second) = (self.readable(section, first)?, self.readable(section, second)?);
        launch!(self.device, Launch::new("lanes_dot_partial", [NORM_BLOCKS, self.count, 1], 256);
            first.pointer(), second.pointer(), partial.pointer(), first.stride as i64, second.stride as i64, len as i64)?;
        launch!(self.device, Launch::new("lanes_sum", [self.count.div_ceil(128), 1, 1], 128);
            partial.pointer(), sums.pointer(), NORM_BLOCKS as i32, self.count as i32)?;
        let mut found = vec![0.0; self.count];
        sums.read(self.device, 0, &mut found)?;
        Ok(found)
    }

    /// The norm of `first - second` of every lane; of the first alone where there is no second.
    pub(crate) fn norms(&self, section: Section, first: &Table, second: Option<&Table>) -> Result<Vec<f64>> {
        let len = self.len(section);
        let partial = Buffer::<f64>::new(self.device, self.count * NORM_BLOCKS)?;
        let norms = Buffer::<f64>::new(self.device, self.count)?;
        let second = second.map(|second| self.readable(section, second)).transpose()?;
        let (other, other_stride) = second.as_ref().map_or((Pointer::NULL, 0), |second| (second.pointer(), second.stride));
        let look = |numbers: Pointer<f32>, stride: usize, from: usize, lanes: usize| {
            launch!(self.device, Launch::new("lanes_norm_partial", [NORM_BLOCKS, lanes, 1], 256);
                numbers, if second.is_some() { other.add(from * other_stride) } else { Pointer::NULL }, partial.pointer().add(from * NORM_BLOCKS),
                stride as i64, other_stride as i64, len as i64)
        };
        match first {
            // Where they are: a copy of all of them would take as much memory again.
            Table::Each(each) => {
                for (lane, stored) in each.iter().enumerate() {
                    look(stored.on_device()?.pointer(), 0, lane, 1)?;
                }
            }
            _ => {
                let first = self.readable(section, first)?;
                look(first.pointer(), first.stride, 0, self.count)?;
            }
        }
        launch!(self.device, Launch::new("lanes_norm", [self.count.div_ceil(128), 1, 1], 128);
            partial.pointer(), norms.pointer(), NORM_BLOCKS as i32, self.count as i32)?;
        let mut found = vec![0.0; self.count];
        norms.read(self.device, 0, &mut found)?;
        Ok(found)
    }
}

impl Arithmetic for Lanes<'_> {
    type Numbers = Table;

    fn plus(&self, section: Section, first: &Table, factors: &[f32], second: &Table) -> Result<Table> {
        let len = self.len(section);
        let (first, second) = (self.readable(section, first)?, self.readable(section, second)?);
        let sum = Buffer::new(self.device, self.count * len)?;
        let (grid, stride) = ([len.div_ceil(BLOCK), self.count, 1], len as i64);
        let [first_stride, second_stride] = [first.stride, second.stride].map(|stride| stride as i64);
        match factors {
            [factor, others @ ..] if others.iter().all(|other| other == factor) => {
                launch!(self.device, Launch::new("lanes_plus", grid, 256);
                    sum.pointer(), first.pointer(), second.pointer(), stride, first_stride, second_stride, stride, *factor)?;
            }
            _ => {
                let factors = Buffer::of(self.device, factors)?;
                launch!(self.device, Launch::new("lanes_plus_each", grid, 256);
                    sum.pointer(), first.pointer(), second.pointer(), factors.pointer(), stride, first_stride, second_stride, stride)?;
            }
        }
        Ok(Table::Made(Arc::new(sum)))
    }

    fn scaled(&self, section: Section, factor: f32, of: &Table) -> Result<Table> {
        let len = self.len(section);
        let of = self.readable(section, of)?;
        let scaled = Buffer::new(self.device, self.count * len)?;
        launch!(self.device, Launch::new("lanes_scale", [len.div_ceil(BLOCK), self.count, 1], 256);
            scaled.pointer(), of.pointer(), len as i64, of.stride as i64, len as i64, factor)?;
        Ok(Table::Made(Arc::new(scaled)))
    }
}
