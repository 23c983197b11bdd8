//! How much memory a message may take when it is unpacked.
//!
//! A message names its parts, and may name one of them a hundred thousand times: a few megabytes on the way would be gigabytes here. So every part is
//! counted each time it is named, before room is made for it.
use crate::{Error, Result};

/// What a message may take unless somebody says otherwise: the weights of a network of 64 million parameters.
pub const USUAL: usize = 256 << 20;

/// What is left of what a message may take.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    most: usize,
    left: usize,
}

impl Allowance {
    /// So many bytes.
    pub(crate) fn of(most: usize) -> Self {
        Self { most, left: most }
    }

    /// Takes bytes, each of which becomes so many in memory; refuses more than is left.
    pub(crate) fn take(&mut self, bytes: usize, times: usize) -> Result<()> {
        let left = bytes.checked_mul(times).and_then(|wanted| self.left.checked_sub(wanted));
        self.left = left.ok_or(Error::TooLarge { most: self.most })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_given_than_there_is() {
        let mut allowance = Allowance::of(10);
        allowance.take(2, 4).expect("8 of 10");
        assert!(allowance.take(3, 1).is_err() && allowance.take(usize::MAX, 2).is_err());
        allowance.take(2, 1).expect("what is left");
    }
}
