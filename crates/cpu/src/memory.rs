//! The numbers on their way through a network: which memory each of them has, and when another may have it.
//!
//! A plan knows for every buffer when it is first written and last read. Buffers whose times do not overlap share a slot, so that a
//! training step needs the memory of what is alive at its fullest moment. It comes from a [pool](Pool) and goes back there where something else needs it.
use crate::pool::Pool;

/// Which buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer(usize);

/// The input of the network, which belongs to whoever calls.
pub(crate) const INPUT: Buffer = Buffer(0);

/// Where the numbers of a buffer are.
#[derive(Clone, Copy, Debug)]
struct Place {
    slot: usize,
    len: usize,
}

/// Buffers while a plan is made.
#[derive(Debug)]
pub(crate) struct Lifetimes {
    wanted: Vec<Lifetime>,
}

#[derive(Clone, Copy, Debug)]
struct Lifetime {
    len: usize,
    first: usize,
    last: usize,
}

impl Lifetime {
    fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl Lifetimes {
    /// None but the input.
    pub(crate) fn new() -> Self {
        Self { wanted: vec![Lifetime { len: 0, first: 0, last: 0 }] }
    }

    /// A buffer of so many numbers, needed at one moment so far.
    pub(crate) fn add(&mut self, len: usize, at: usize) -> Buffer {
        self.wanted.push(Lifetime { len, first: at, last: at });
        Buffer(self.wanted.len() - 1)
    }

    /// The buffer is needed at this moment too.
    pub(crate) fn need(&mut self, buffer: Buffer, at: usize) {
        let lifetime = &mut self.wanted[buffer.0];
        lifetime.first = lifetime.first.min(at);
        lifetime.last = lifetime.last.max(at);
    }

    /// Gives every buffer a slot: the largest buffers first, each into the smallest slot that is free while it lives.
    pub(crate) fn assign(self) -> Memory {
        let mut order: Vec<usize> = (1..self.wanted.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(self.wanted[index].len));
        let mut slots: Vec<(usize, Vec<Lifetime>)> = Vec::new();
        let mut places = vec![Place { slot: usize::MAX, len: 0 }; self.wanted.len()];
        for index in order {
            let lifetime = self.wanted[index];
            let free = slots.iter().rposition(|(_, taken)| !taken.iter().any(|taken| taken.overlaps(&lifetime)));
            let slot = free.unwrap_or_else(|| {
                slots.push((lifetime.len, Vec::new()));
                slots.len() - 1
            });
            slots[slot].1.push(lifetime);
            places[index] = Place { slot, len: lifetime.len };
        }
        let slot = |(len, taken)| Slot { len, taken, numbers: Vec::new() };
        Memory { places, slots: slots.into_iter().map(slot).collect() }
    }
}

/// The memory of a plan.
#[derive(Debug)]
pub(crate) struct Memory {
    places: Vec<Place>,
    slots: Vec<Slot>,
}

/// Memory of buffers whose times do not overlap.
#[derive(Debug)]
struct Slot {
    len: usize,
    taken: Vec<Lifetime>,
    /// Nothing until it is first used, or while it is given back.
    numbers: Vec<f32>,
}

impl Memory {
    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.iter().map(|slot| 4 * slot.len).sum()
    }

    /// The same together with an input, and where further memory comes from.
    pub(crate) fn with_input<'a>(&'a mut self, input: &'a [f32], pool: &'a mut Pool) -> Numbers<'a> {
        Numbers { input, memory: self, pool }
    }

    /// Gives all memory back, and forgets what was in it.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.slots.iter_mut().for_each(|slot| pool.give(std::mem::take(&mut slot.numbers)));
    }

    /// What a buffer holds.
    pub(crate) fn read(&self, buffer: Buffer) -> &[f32] {
        let Place { slot, len } = self.places[buffer.0];
        &self.slots[slot].numbers[..len]
    }
}

/// Memory during a pass.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    input: &'a [f32],
    memory: &'a mut Memory,
    /// Memory for work beside that.
    pub(crate) pool: &'a mut Pool,
}

impl Numbers<'_> {
    /// What a buffer holds.
    pub(crate) fn read(&self, buffer: Buffer) -> &[f32] {
        if buffer == INPUT { self.input } else { self.memory.read(buffer) }
    }

    /// Lets `fill` write a buffer while it reads others. What it held before is still there.
    pub(crate) fn write<R>(&mut self, buffer: Buffer, fill: impl FnOnce(&mut Self, &mut [f32]) -> R) -> R {
        let Place { slot, len } = self.memory.places[buffer.0];
        let Slot { len: full, numbers, .. } = &mut self.memory.slots[slot];
        let mut taken = std::mem::take(numbers);
        if taken.len() < *full {
            taken = self.pool.take(*full);
        }
        let result = fill(self, &mut taken[..len]);
        self.memory.slots[slot].numbers = taken;
        result
    }

    /// Gives the memory that is not needed at this moment to the pool, for work that needs much of its own; it is taken again when it is needed.
    pub(crate) fn release_idle(&mut self, at: usize) {
        for slot in &mut self.memory.slots {
            if !slot.taken.iter().any(|taken| (taken.first..=taken.last).contains(&at)) {
                self.pool.give(std::mem::take(&mut slot.numbers));
            }
        }
    }

    /// Lets `fill` compute a gradient, and leaves it or its sum with what was there in its place.
    pub(crate) fn write_gradient<R>(&mut self, target: Target, fill: impl FnOnce(&mut Self, &mut [f32]) -> R) -> R {
        let Some(temporary) = target.added_by else { return self.write(target.buffer, fill) };
        let result = self.write(temporary, fill);
        self.write(target.buffer, |numbers, sum| add(sum, numbers.read(temporary)));
        result
    }
}

/// Where the gradient of a value goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) buffer: Buffer,
    /// Where it is computed first, if another layer has written its part of the gradient already.
    pub(crate) added_by: Option<Buffer>,
}

/// `sum += part`
pub(crate) fn add(sum: &mut [f32], part: &[f32]) {
    for (sum, part) in sum.iter_mut().zip(part) {
        *sum += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_share_a_slot_unless_they_live_at_the_same_time() {
        let mut lifetimes = Lifetimes::new();
        let [a, b, c] = [(4, 0, 1), (3, 1, 2), (2, 2, 3)].map(|(len, first, last)| {
            let buffer = lifetimes.add(len, first);
            lifetimes.need(buffer, last);
            buffer
        });
        let mut memory = lifetimes.assign();
        assert_eq!(memory.bytes(), 4 * (4 + 3), "the third buffer lives in the slot of the first");
        let mut pool = Pool::default();
        let mut numbers = memory.with_input(&[], &mut pool);
        numbers.write(a, |_, a| a.fill(1.0));
        numbers.write(b, |numbers, b| b.copy_from_slice(&numbers.read(a)[..3]));
        numbers.write(c, |numbers, c| c.copy_from_slice(&numbers.read(b)[1..]));
        assert_eq!(numbers.read(c), [1.0, 1.0]);
        numbers.release_idle(0);
        assert_eq!(numbers.pool.bytes(), 4 * 3, "at first only the first buffer is needed");
        memory.release(&mut pool);
        assert_eq!(pool.bytes(), 4 * (4 + 3));
    }

    #[test]
    fn a_second_gradient_is_added_to_the_first() {
        let mut lifetimes = Lifetimes::new();
        let (buffer, temporary) = (lifetimes.add(2, 0), lifetimes.add(2, 0));
        let (mut memory, mut pool) = (lifetimes.assign(), Pool::default());
        let mut numbers = memory.with_input(&[], &mut pool);
        numbers.write_gradient(Target { buffer, added_by: None }, |_, gradient| gradient.copy_from_slice(&[1.0, 2.0]));
        numbers.write_gradient(Target { buffer, added_by: Some(temporary) }, |_, gradient| gradient.fill(3.0));
        assert_eq!(numbers.read(buffer), [4.0, 5.0]);
    }
}
