//! Memory that is not needed at present.
//!
//! A solve needs the memory of many states, the way back as much for other things, and batches of another size or another part of the network the same again. None of
//! them run at the same time on one thread, so they share pieces of memory; after a few steps the pool has all that any of them needs, and the system is asked for nothing.

/// A piece serves requests for no less than this share of it: a small request does not take a large piece away.
const SHARE: usize = 4;

/// Pieces of memory, each to be used by whoever needs one of about its size.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Vec<Vec<f32>>,
}

impl Pool {
    /// So many numbers, whose values mean nothing.
    pub(crate) fn take(&mut self, len: usize) -> Vec<f32> {
        let mut piece = self.find(len);
        if piece.capacity() < len {
            piece = Vec::with_capacity(len); // What was too small is gone by then.
        }
        piece.resize(len, 0.0);
        piece
    }

    /// The smallest piece that is large enough, or else the largest of those that are not, which makes room for a larger one.
    fn find(&mut self, len: usize) -> Vec<f32> {
        let sizes = || self.free.iter().map(Vec::capacity).enumerate();
        let enough = sizes().filter(|(_, size)| (len..=len.saturating_mul(SHARE)).contains(size)).min_by_key(|(_, size)| *size);
        let largest = || sizes().filter(|(_, size)| (len.div_ceil(SHARE)..len).contains(size)).max_by_key(|(_, size)| *size);
        match enough.or_else(largest) {
            Some((at, size)) if size >= len => self.free.swap_remove(at),
            Some((at, _)) => {
                self.free.swap_remove(at);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Takes a piece back.
    pub(crate) fn give(&mut self, piece: Vec<f32>) {
        if piece.capacity() > 0 {
            self.free.push(piece);
        }
    }

    /// How many bytes lie here.
    pub(crate) fn bytes(&self) -> usize {
        self.free.iter().map(|piece| 4 * piece.capacity()).sum()
    }

    /// Gives the largest pieces back to the system until no more than so many bytes are left.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.free.sort_unstable_by_key(Vec::capacity);
        while self.bytes() > bytes {
            self.free.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_used_again_by_requests_of_about_its_size() {
        let mut pool = Pool::default();
        let (large, small) = (pool.take(1000), pool.take(10));
        let places = [large.as_ptr(), small.as_ptr()];
        pool.give(large);
        pool.give(small);
        assert_eq!(pool.bytes(), 4 * 1010);
        let [again, other, fresh] = [300, 9, 5].map(|len| pool.take(len));
        assert_eq!(([again.as_ptr(), other.as_ptr()], [again.len(), other.len(), fresh.len()]), (places, [300, 9, 5]));
    }

    #[test]
    fn a_piece_that_is_too_small_makes_room_for_a_larger_one() {
        let mut pool = Pool::default();
        let piece = pool.take(100);
        pool.give(piece);
        let larger = pool.take(150);
        assert_eq!((larger.len(), pool.bytes()), (150, 0));
        pool.give(larger);
        for len in [50, 60] {
            let piece = vec![0.0; len];
            pool.give(piece);
        }
        pool.shrink_to(4 * 120);
        assert_eq!(pool.bytes(), 4 * 110);
    }
}
