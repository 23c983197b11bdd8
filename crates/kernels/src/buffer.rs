//! Memory that starts at a cache line, so that no vector in it lies across two.

/// A cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([f32; 16]);

/// Numbers that start at a cache line; grown when asked for more, never shrunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// The first `len` numbers; zeros where they are new, what was there before elsewhere.
    pub(crate) fn take(&mut self, len: usize) -> &mut [f32] {
        let lines = len.div_ceil(16);
        if lines > self.0.len() {
            self.0.resize(lines, Line([0.0; 16]));
        }
        // SAFETY: a line is sixteen numbers without padding, and there are at least `len` numbers in the lines.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<f32>(), len) }
    }

    /// All numbers.
    pub(crate) fn all(&self) -> &[f32] {
        // SAFETY: a line is sixteen numbers without padding.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<f32>(), 16 * self.0.len()) }
    }
}
