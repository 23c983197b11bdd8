//! Long-term keys: who the clients are, to each other.
use std::collections::{BTreeMap, BTreeSet};

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::secrets::Key;
use crate::session::{LARGEST_CLIENT, Session};

/// A client's long-term secret key (Ed25519), wiped from memory when it is dropped. It is written as 64 hexadecimal digits, as public keys are.
#[derive(Clone)]
pub struct SigningSecret(Key);

impl SigningSecret {
    /// A new key, from the operating system's randomness.
    pub fn random() -> Result<Self> {
        let mut bytes = Key::default();
        getrandom::fill(bytes.as_mut_slice()).map_err(|_| Error::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// Reads what [`to_hex`](Self::to_hex) wrote.
    pub fn from_hex(text: &str) -> Option<Self> {
        key_from_hex(text).map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// As text, for a file that only its owner can read.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(key_to_hex(&self.0))
    }

    /// The key by which others know this client.
    pub fn public_key(&self) -> [u8; 32] {
        SigningKey::from_bytes(&self.0).verifying_key().to_bytes()
    }

    /// What a client of a session is to the others.
    pub fn identity(&self) -> Identity {
        Identity::signed(&self.0)
    }
}

/// A key as 64 hexadecimal digits.
pub fn key_to_hex(key: &[u8; 32]) -> String {
    key.iter().fold(String::with_capacity(64), |mut text, byte| {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(nibble.into(), 16).unwrap_or_default());
        }
        text
    })
}

/// Reads a key of 64 hexadecimal digits.
pub fn key_from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<Vec<u32>>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| (16 * pair[0] + pair[1]) as u8).collect();
    if digits.len() == 64 { bytes.try_into().ok() } else { None }
}

/// The long-term public keys (Ed25519) of all clients that may take part. Clients must get it from elsewhere than the server they do not trust.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<u16, [u8; 32]>", into = "BTreeMap<u16, [u8; 32]>")]
pub struct Registry(BTreeMap<u16, VerifyingKey>);

impl Registry {
    /// A registry of these keys; refused where one is malformed, weak, or stands for two clients.
    pub fn new(keys: BTreeMap<u16, [u8; 32]>) -> Result<Self> {
        let distinct: BTreeSet<_> = keys.values().collect();
        if distinct.len() < keys.len() {
            return Err(Error::setting("trust", "two clients of the registry have the same key"));
        }
        let read = |(client, bytes): (u16, [u8; 32])| {
            let key = VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak() && client <= LARGEST_CLIENT);
            Ok((client, key.ok_or(Error::BadKey(client))?))
        };
        Ok(Self(keys.into_iter().map(read).collect::<Result<_>>()?))
    }

    /// The key of a client, if it is in it.
    pub fn key(&self, client: u16) -> Option<[u8; 32]> {
        self.0.get(&client).map(VerifyingKey::to_bytes)
    }

    /// The number of clients in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no client is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// That a client signed a text.
    pub(crate) fn verify(&self, client: u16, text: &[u8], signature: Option<&SignatureBytes>) -> Result<()> {
        let (key, signature) = self.0.get(&client).zip(signature).ok_or(Error::BadSignature(client))?;
        key.verify_strict(text, &signature.parsed()).map_err(|_| Error::BadSignature(client))
    }
}

impl TryFrom<BTreeMap<u16, [u8; 32]>> for Registry {
    type Error = Error;

    fn try_from(keys: BTreeMap<u16, [u8; 32]>) -> Result<Self> {
        Self::new(keys)
    }
}

impl From<Registry> for BTreeMap<u16, [u8; 32]> {
    fn from(registry: Registry) -> Self {
        registry.0.into_iter().map(|(client, key)| (client, key.to_bytes())).collect()
    }
}

/// How a client proves who it is: the counterpart of the session's [`crate::Trust`].
pub enum Identity {
    /// Not at all, for [`crate::Trust::HonestButCurious`].
    Unsigned,
    /// By the long-term key that the registry has of it.
    Signed(Box<SigningKey>),
}

impl Identity {
    /// An identity from the 32 secret bytes of an Ed25519 key.
    pub fn signed(secret: &[u8; 32]) -> Self {
        Self::Signed(Box::new(SigningKey::from_bytes(secret)))
    }

    /// The public key to put into a registry, if it has one.
    pub fn public_key(&self) -> Option<[u8; 32]> {
        match self {
            Self::Unsigned => None,
            Self::Signed(key) => Some(key.verifying_key().to_bytes()),
        }
    }

    /// That this identity is the one that the session expects of a client.
    pub(crate) fn check(&self, client: u16, session: &Session) -> Result<()> {
        let fits = match (self, session.registry()) {
            (Self::Unsigned, None) => true,
            (Self::Signed(key), Some(registry)) => registry.0.get(&client) == Some(&key.verifying_key()),
            _ => false,
        };
        if fits { Ok(()) } else { Err(Error::WrongIdentity(client)) }
    }

    pub(crate) fn sign(&self, text: &[u8]) -> Option<SignatureBytes> {
        match self {
            Self::Unsigned => None,
            Self::Signed(key) => Some(SignatureBytes::from(key.sign(text))),
        }
    }
}

/// An Ed25519 signature, as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignatureBytes([u8; 32], [u8; 32]);

impl SignatureBytes {
    /// As long as a signature, to count bytes.
    pub(crate) fn blank() -> Self {
        Self([0; 32], [0; 32])
    }

    fn parsed(&self) -> Signature {
        Signature::from_components(self.0, self.1)
    }
}

impl From<Signature> for SignatureBytes {
    fn from(signature: Signature) -> Self {
        Self(*signature.r_bytes(), *signature.s_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn keys_are_those_of_the_standard_and_are_read_as_they_are_written() {
        let text = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let secret = SigningSecret::from_hex(text).unwrap();
        assert_eq!(*secret.to_hex(), text);
        let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert_eq!(key_to_hex(&secret.public_key()), public);
        assert_eq!(secret.identity().public_key(), key_from_hex(&public.to_uppercase()));
        for wrong in ["", "9d", &text[1..], &text.replace('9', "g"), &text.replace('9', "\u{e9}")] {
            assert!(SigningSecret::from_hex(wrong).is_none(), "{wrong}");
        }
        assert_ne!(SigningSecret::random().unwrap().public_key(), SigningSecret::random().unwrap().public_key());
    }
}
