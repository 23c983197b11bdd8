//! What two clients agree on: X25519, and the keys derived from it to seal shares and to mask vectors.
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use frost_ristretto255::rand_core::RngCore;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::secrets::{Generator, Key, derive};
use crate::sharing::{Secret, Share};

/// The purposes of derived keys. Each ends in a zero, so that none begins another.
const MASK_KEY: &[u8] = b"mask key\0";
const PAIR_MASK: &[u8] = b"pair mask\0";
const SEAL: &[u8] = b"seal\0";

/// Bytes of two sealed shares.
pub(crate) const BOX_BYTES: usize = 32 + 32 + 16;

/// One client's pair of keys for this session.
pub(crate) struct KeyPair {
    secret: StaticSecret,
    public: [u8; 32],
}

impl KeyPair {
    pub(crate) fn random(generator: &mut Generator) -> Self {
        let mut bytes = Key::default();
        generator.fill_bytes(bytes.as_mut_slice());
        Self::from_bytes(&bytes)
    }

    /// The keys behind a shared secret: who puts it together again can mask as its owner did.
    pub(crate) fn from_secret(tag: &[u8; 32], secret: &Secret) -> Self {
        Self::from_bytes(&secret.key(tag, MASK_KEY))
    }

    fn from_bytes(bytes: &Key) -> Self {
        let secret = StaticSecret::from(**bytes);
        let public = PublicKey::from(&secret).to_bytes();
        Self { secret, public }
    }

    pub(crate) fn public(&self) -> &[u8; 32] {
        &self.public
    }

    fn agree(&self, peer: End<'_>) -> Result<Key> {
        let shared = self.secret.diffie_hellman(&PublicKey::from(*peer.public));
        if shared.was_contributory() { Ok(Zeroizing::new(shared.to_bytes())) } else { Err(Error::BadKey(peer.client)) }
    }
}

/// Whether a public key has low order: what is agreed with it is known to all.
pub(crate) fn has_low_order(public: &[u8; 32]) -> bool {
    !StaticSecret::from([1; 32]).diffie_hellman(&PublicKey::from(*public)).was_contributory()
}

/// One of the two who agree.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) client: u16,
    pub(crate) public: &'a [u8; 32],
}

fn pair_key(tag: &[u8; 32], shared: &Key, purpose: &[u8], first: End<'_>, second: End<'_>) -> Key {
    let (one, two) = (first.client.to_le_bytes(), second.client.to_le_bytes());
    derive(tag, shared.as_slice(), &[purpose, &one, first.public, &two, second.public])
}

/// The key of the mask that two clients have in common, the same for both.
pub(crate) fn mask_key(tag: &[u8; 32], mine: &KeyPair, me: u16, peer: End<'_>) -> Result<Key> {
    let shared = mine.agree(peer)?;
    let me = End { client: me, public: mine.public() };
    let (first, second) = if me.client < peer.client { (me, peer) } else { (peer, me) };
    Ok(pair_key(tag, &shared, PAIR_MASK, first, second))
}

/// The shares that one client holds of another: of the secret behind its mask key, and of its own mask.
pub(crate) struct HeldShares {
    pub(crate) mask_key: Share,
    pub(crate) self_mask: Share,
}

/// Encrypts two shares for one holder. The key serves for this message alone, so its nonce is zero.
pub(crate) fn seal(tag: &[u8; 32], mine: &KeyPair, me: u16, to: End<'_>, shares: &HeldShares) -> Result<Vec<u8>> {
    let key = pair_key(tag, &mine.agree(to)?, SEAL, End { client: me, public: mine.public() }, to);
    let plain = Zeroizing::new([shares.mask_key.as_slice(), shares.self_mask.as_slice()].concat());
    let cipher = ChaCha20Poly1305::new((&*key).into());
    Ok(cipher.encrypt(&Nonce::default(), Payload { msg: &plain, aad: tag }).expect("64 bytes can be encrypted"))
}

/// Decrypts two shares, if they are what their sender sealed for this client in this session.
pub(crate) fn open(tag: &[u8; 32], mine: &KeyPair, me: u16, from: End<'_>, sealed: &[u8]) -> Option<HeldShares> {
    let key = pair_key(tag, &mine.agree(from).ok()?, SEAL, from, End { client: me, public: mine.public() });
    let cipher = ChaCha20Poly1305::new((&*key).into());
    let plain = Zeroizing::new(cipher.decrypt(&Nonce::default(), Payload { msg: sealed, aad: tag }).ok()?);
    let (mask_key, self_mask) = plain.split_first_chunk::<32>()?;
    Some(HeldShares { mask_key: Zeroizing::new(*mask_key), self_mask: Zeroizing::new(self_mask.try_into().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(seed: u8) -> KeyPair {
        KeyPair::random(&mut Generator::new(&Zeroizing::new([seed; 32])))
    }

    fn end(client: u16, keys: &KeyPair) -> End<'_> {
        End { client, public: keys.public() }
    }

    #[test]
    fn both_ends_derive_the_same_mask_and_another_session_another_one() {
        let (one, two) = (pair(1), pair(2));
        let key = mask_key(&[0; 32], &one, 1, end(2, &two)).unwrap();
        assert_eq!(*key, *mask_key(&[0; 32], &two, 2, end(1, &one)).unwrap());
        assert_ne!(*key, *mask_key(&[1; 32], &one, 1, end(2, &two)).unwrap());
        assert_ne!(*key, *mask_key(&[0; 32], &one, 1, end(3, &two)).unwrap());
    }

    #[test]
    fn a_box_opens_for_its_recipient_in_its_session_and_only_untouched() {
        let (one, two) = (pair(1), pair(2));
        let shares = HeldShares { mask_key: Zeroizing::new([7; 32]), self_mask: Zeroizing::new([8; 32]) };
        let sealed = seal(&[0; 32], &one, 1, end(2, &two), &shares).unwrap();
        assert_eq!(sealed.len(), BOX_BYTES);
        let opened = open(&[0; 32], &two, 2, end(1, &one), &sealed).unwrap();
        assert_eq!((*opened.mask_key, *opened.self_mask), ([7; 32], [8; 32]));
        assert!(open(&[1; 32], &two, 2, end(1, &one), &sealed).is_none());
        assert!(open(&[0; 32], &two, 3, end(1, &one), &sealed).is_none());
        assert!(open(&[0; 32], &pair(3), 2, end(1, &one), &sealed).is_none());
        assert!(open(&[0; 32], &one, 1, end(2, &two), &sealed).is_none(), "sent back to its sender");
        for index in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[index] ^= 1;
            assert!(open(&[0; 32], &two, 2, end(1, &one), &damaged).is_none());
        }
    }

    /// The points of small order on Curve25519 and its twist that fit into 32 bytes (RFC 7748, section 6.1; cr.yp.to/ecdh.html).
    #[test]
    fn keys_of_low_order_are_refused() {
        let mut order_8 = [
            0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d,
            0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
        ];
        let mut one = [0; 32];
        one[0] = 1;
        let mut minus_one = [0xff; 32];
        (minus_one[0], minus_one[31]) = (0xec, 0x7f);
        for bad in [[0; 32], one, minus_one, order_8] {
            assert!(has_low_order(&bad));
            assert_eq!(mask_key(&[0; 32], &pair(1), 1, End { client: 2, public: &bad }).err(), Some(Error::BadKey(2)));
        }
        order_8[0] ^= 1;
        assert!(!has_low_order(&order_8) && !has_low_order(pair(1).public()));
    }
}
