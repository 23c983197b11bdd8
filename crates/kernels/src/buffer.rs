//! Memory that starts at a cache line, so that no vector in it lies across two.

/// The numbers of a cache line.
pub(crate) const LINE: usize = 16;

/// `len` numbers that start at a cache line, in memory that grows when it is too small; what they are means nothing.
pub(crate) fn aligned(memory: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if memory.len() < len + LINE {
        memory.resize(len + LINE, 0.0);
    }
    let first = memory.as_ptr().align_offset(4 * LINE).min(LINE);
    &mut memory[first..][..len]
}

/// A cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([f32; LINE]);

/// Numbers that start at a cache line; grown when asked for more, never shrunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// The first `len` numbers; zeros where they are new, what was there before elsewhere.
    pub(crate) fn take(&mut self, len: usize) -> &mut [f32] {
        let lines = len.div_ceil(LINE);
        if lines > self.0.len() {
            self.0.resize(lines, Line([0.0; LINE]));
        }
        // SAFETY: a line is sixteen numbers without padding, and there are at least `len` numbers in the lines.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<f32>(), len) }
    }

    /// All numbers.
    pub(crate) fn all(&self) -> &[f32] {
        // SAFETY: a line is sixteen numbers without padding.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<f32>(), LINE * self.0.len()) }
    }
}
