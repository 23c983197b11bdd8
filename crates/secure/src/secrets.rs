//! Where secret bytes come from: the system's randomness, HKDF, and ChaCha20 as a generator.
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use frost_ristretto255::rand_core::{CryptoRng, Error as RandError, RngCore};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// 32 secret bytes, wiped when they are dropped.
pub(crate) type Key = Zeroizing<[u8; 32]>;

/// All the randomness of one client in one session: everything else it draws is derived from these 32 bytes and the session's tag.
pub struct Entropy(Key);

impl Entropy {
    /// Fresh randomness of the operating system: what every real client must use.
    pub fn from_system() -> Result<Self> {
        let mut bytes = Key::default();
        getrandom::fill(bytes.as_mut_slice()).map_err(|_| Error::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// Chosen bytes, for tests and simulations that must be repeatable. A client that uses the same bytes twice in one session, with different
    /// vectors, gives the difference of the two away.
    pub fn fixed(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A generator for one purpose.
    pub(crate) fn generator(&self, tag: &[u8; 32], purpose: &[u8]) -> Generator {
        Generator::new(&derive(tag, self.0.as_slice(), &[purpose]))
    }
}

/// HKDF-SHA256 with the session's tag as salt, so that nothing derived in one session is of use in another.
pub(crate) fn derive(tag: &[u8; 32], secret: &[u8], info: &[&[u8]]) -> Key {
    let mut key = Key::default();
    let hkdf = Hkdf::<Sha256>::new(Some(tag), secret);
    hkdf.expand_multi_info(info, key.as_mut_slice()).expect("32 bytes are fewer than HKDF can give");
    key
}

/// ChaCha20's key stream. A key is used for one generator only, so the nonce is zero. It wipes its state when it is dropped.
pub(crate) struct Generator(ChaCha20);

impl Generator {
    pub(crate) fn new(key: &Key) -> Self {
        Self(ChaCha20::new((&**key).into(), &[0; 12].into()))
    }
}

impl RngCore for Generator {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill_bytes(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
        self.0.apply_keystream(bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> std::result::Result<(), RandError> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for Generator {}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5869, test case 1, and RFC 8439's first key stream: the crates are used as their standards say.
    #[test]
    fn keys_and_streams_are_those_of_the_standards() {
        let salt: Vec<u8> = (0..13).collect();
        let mut okm = [0; 42];
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        Hkdf::<Sha256>::new(Some(&salt), &[0x0b; 22]).expand_multi_info(&[&info[..4], &info[4..]], &mut okm).unwrap();
        assert_eq!(okm[..8], [0x3c, 0xb2, 0x5f, 0x25, 0xfa, 0xac, 0xd5, 0x7a]);

        let mut stream = [0; 8];
        Generator::new(&Key::default()).fill_bytes(&mut stream);
        assert_eq!(stream, [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
    }
}
