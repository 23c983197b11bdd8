//! Which memory each buffer of a plan has, and when another may have it: all of them in one piece of device memory.

/// Which buffer, and of how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// Bytes that buffers begin at a multiple of.
const ALIGNMENT: usize = 256;

/// Buffers while a plan is made: when each is first written and last read.
#[derive(Debug, Default)]
pub(crate) struct Lifetimes {
    wanted: Vec<Lifetime>,
}

#[derive(Clone, Copy, Debug)]
struct Lifetime {
    bytes: usize,
    first: usize,
    last: usize,
}

impl Lifetimes {
    /// A buffer of so many bytes, needed at one moment so far.
    pub(crate) fn add(&mut self, bytes: usize, at: usize) -> Slot {
        self.wanted.push(Lifetime { bytes: bytes.next_multiple_of(ALIGNMENT), first: at, last: at });
        Slot(self.wanted.len() - 1)
    }

    /// The buffer has at least so many bytes.
    pub(crate) fn grow(&mut self, slot: Slot, bytes: usize) {
        let lifetime = &mut self.wanted[slot.0];
        lifetime.bytes = lifetime.bytes.max(bytes.next_multiple_of(ALIGNMENT));
    }

    /// The buffer is needed at this moment too, and at all those between.
    pub(crate) fn need(&mut self, slot: Slot, at: usize) {
        let lifetime = &mut self.wanted[slot.0];
        lifetime.first = lifetime.first.min(at);
        lifetime.last = lifetime.last.max(at);
    }

    /// Gives every buffer its place: the largest first, each at the lowest offset that is free while it lives.
    pub(crate) fn assign(&self) -> Arena {
        let mut order: Vec<usize> = (0..self.wanted.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(self.wanted[index].bytes));
        let mut offsets = vec![0; self.wanted.len()];
        let mut placed: Vec<usize> = Vec::new();
        let mut bytes = 0;
        for index in order {
            let me = self.wanted[index];
            let mut taken: Vec<(usize, usize)> = placed
                .iter()
                .filter(|&&other| self.wanted[other].first <= me.last && me.first <= self.wanted[other].last)
                .map(|&other| (offsets[other], offsets[other] + self.wanted[other].bytes))
                .collect();
            taken.sort_unstable();
            let at = first_gap(&taken, me.bytes);
            offsets[index] = at;
            bytes = bytes.max(at + me.bytes);
            placed.push(index);
        }
        Arena { offsets, bytes }
    }
}

/// The lowest offset with so many bytes free before, between or behind what is taken, which is sorted.
fn first_gap(taken: &[(usize, usize)], bytes: usize) -> usize {
    let mut at = 0;
    for &(begin, end) in taken {
        if at + bytes <= begin {
            return at;
        }
        at = at.max(end);
    }
    at
}

/// The places of a plan's buffers.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    offsets: Vec<usize>,
    bytes: usize,
}

impl Arena {
    /// How many bytes it takes in all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a buffer begins.
    pub(crate) fn offset(&self, slot: Slot) -> usize {
        self.offsets[slot.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_share_memory_unless_they_live_at_the_same_time() {
        let mut lifetimes = Lifetimes::default();
        let spans = [(4096, 0, 1), (2048, 1, 2), (2048, 2, 3), (1024, 0, 3), (512, 3, 3)];
        let slots = spans.map(|(bytes, first, last)| {
            let slot = lifetimes.add(bytes, first);
            lifetimes.need(slot, last);
            slot
        });
        let arena = lifetimes.assign();
        for (a, &(size, first, last)) in slots.iter().zip(&spans) {
            for (b, &(other, from, to)) in slots.iter().zip(&spans).filter(|(b, _)| *b != a) {
                let apart = arena.offset(*a) + size <= arena.offset(*b) || arena.offset(*b) + other <= arena.offset(*a);
                assert!(apart || last < from || to < first);
            }
        }
        assert_eq!(arena.bytes(), 4096 + 2048 + 1024, "no more than is alive at the fullest moment");
    }
}
