//! Seeds derived by name, so that no draw depends on the order in which draws happen.
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};

/// A source of randomness that is split by name rather than consumed in sequence.
///
/// `seed.derive("shuffle", [round, client])` gives the same stream whatever else was drawn before and whichever thread asks,
/// which is what makes a run reproducible to the byte for any number of workers.
///
/// ```
/// use fedeq_data::Seed;
/// let seed = Seed::new(7);
/// assert_eq!(seed.derive("shuffle", [3, 1]), Seed::new(7).derive("shuffle", [3, 1]));
/// assert_ne!(seed.derive("shuffle", [3, 1]), seed.derive("shuffle", [1, 3]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed([u8; 32]);

impl Seed {
    /// The root seed of a run.
    pub fn new(value: u64) -> Self {
        Self(Sha256::new().chain_update(b"fedeq").chain_update(value.to_le_bytes()).finalize().into())
    }

    /// A root seed of 256 bits that cannot be guessed, from bytes that are secret.
    pub fn from_secret(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The seed for one named purpose, told apart further by numbers (round, client, epoch, ...).
    pub fn derive(&self, purpose: &str, indices: impl IntoIterator<Item = u64>) -> Self {
        let length = (purpose.len() as u64).to_le_bytes();
        let mut state = Sha256::new();
        [&self.0, &length[..], purpose.as_bytes()].into_iter().for_each(|part| state.update(part));
        indices.into_iter().for_each(|index| state.update(index.to_le_bytes()));
        Self(state.finalize().into())
    }

    /// A generator started from this seed; ChaCha8 gives the same stream on every platform.
    pub fn rng(&self) -> ChaCha8Rng {
        ChaCha8Rng::from_seed(self.0)
    }

    /// A 64-bit seed, for generators of other libraries.
    pub fn to_u64(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight of 32 bytes"))
    }
}
