//! What server and clients send each other, and its bytes.
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::agreement::BOX_BYTES;
use crate::error::{Error, Result};
use crate::registry::SignatureBytes;
use crate::ring::RingVector;
use crate::session::Session;

/// Bytes of a message beside its lists: kind, session, client, counts and lengths.
const FRAME: usize = 64;

/// The kinds of messages, in the order in which they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MessageKind {
    /// [`PublicKeys`], to the server.
    PublicKeys,
    /// [`KeyRoster`], to a client.
    KeyRoster,
    /// [`DealtShares`], to the server.
    DealtShares,
    /// [`ShareDelivery`], to a client.
    ShareDelivery,
    /// [`MaskedInput`], to the server.
    MaskedInput,
    /// [`SurvivorList`], to a client.
    SurvivorList,
    /// [`SurvivorSignature`], to the server.
    SurvivorSignature,
    /// [`SurvivorSignatures`], to a client.
    SurvivorSignatures,
    /// [`RevealedShares`], to the server.
    RevealedShares,
}

impl MessageKind {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::PublicKeys => "public keys",
            Self::KeyRoster => "roster of keys",
            Self::DealtShares => "dealt shares",
            Self::ShareDelivery => "delivery of shares",
            Self::MaskedInput => "masked input",
            Self::SurvivorList => "list of survivors",
            Self::SurvivorSignature => "signature of survivors",
            Self::SurvivorSignatures => "signatures of survivors",
            Self::RevealedShares => "revealed shares",
        }
    }

    /// Whether clients send it.
    pub fn is_sent_by_clients(self) -> bool {
        matches!(self, Self::PublicKeys | Self::DealtShares | Self::MaskedInput | Self::SurvivorSignature | Self::RevealedShares)
    }
}

/// A message with a byte form: its kind, then its fields as postcard writes them.
pub trait WireMessage: Serialize + DeserializeOwned {
    /// What it is.
    const KIND: MessageKind;

    /// The tag of the session it belongs to.
    fn session(&self) -> &[u8; 32];

    /// The most bytes it can have in a session.
    fn limit(session: &Session) -> usize;

    /// Its bytes.
    fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![Self::KIND as u8]).expect("plain data can be written")
    }

    /// Reads a message of this session. Its size is checked before anything is read, and lists cannot ask for more memory than their bytes justify.
    fn decode(bytes: &[u8], session: &Session) -> Result<Self> {
        let kind = Self::KIND.name();
        let limit = Self::limit(session);
        if bytes.len() > limit {
            return Err(Error::TooLong { kind, bytes: bytes.len(), limit });
        }
        let body = bytes.strip_prefix(&[Self::KIND as u8]).ok_or(Error::Malformed(kind))?;
        let (message, rest) = postcard::take_from_bytes::<Self>(body).map_err(|_| Error::Malformed(kind))?;
        if !rest.is_empty() {
            return Err(Error::Malformed(kind));
        }
        session.owns(kind, message.session())?;
        Ok(message)
    }
}

macro_rules! wire {
    ($message:ident, $session:ident => $limit:expr) => {
        impl WireMessage for $message {
            const KIND: MessageKind = MessageKind::$message;

            fn session(&self) -> &[u8; 32] {
                &self.session
            }

            fn limit($session: &Session) -> usize {
                FRAME + $limit
            }
        }
    };
}

/// A client's keys for this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKeys {
    /// The session's tag.
    pub session: [u8; 32],
    /// Whose keys.
    pub keys: ClientKeys,
}
wire!(PublicKeys, _session => CLIENT_KEYS);

/// The public keys (X25519) of one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientKeys {
    /// Its number.
    pub client: u16,
    /// To encrypt shares for it.
    pub sealing: [u8; 32],
    /// To agree on masks with it.
    pub masking: [u8; 32],
    /// Its signature over these keys, where there is a registry.
    pub signature: Option<SignatureBytes>,
}

const CLIENT_KEYS: usize = 3 + 32 + 32 + 1 + 64;

impl ClientKeys {
    /// What a client signs: its keys for this session and no other.
    pub(crate) fn signed_text(&self, tag: &[u8; 32]) -> Vec<u8> {
        [b"fedeq-secure/1 keys\0", tag.as_slice(), &self.client.to_le_bytes(), &self.sealing, &self.masking].concat()
    }
}

/// The keys of a client's neighbours, its own among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRoster {
    /// The session's tag.
    pub session: [u8; 32],
    /// How many clients sent keys, neighbours or not.
    pub cohort: u16,
    /// In ascending order of clients.
    pub keys: Vec<ClientKeys>,
}
wire!(KeyRoster, session => session.holders() * CLIENT_KEYS);

/// Shares of a client's two secrets, encrypted for their holders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DealtShares {
    /// The session's tag.
    pub session: [u8; 32],
    /// Who dealt them.
    pub client: u16,
    /// The commitment to the secret behind its masking key.
    pub mask_key: Vec<[u8; 32]>,
    /// The commitment to the secret behind its own mask.
    pub self_mask: Vec<[u8; 32]>,
    /// One box for each neighbour, in ascending order.
    pub boxes: Vec<SealedShares>,
}
wire!(DealtShares, session => 2 * 32 * session.threshold() + session.holders() * SEALED);

/// Two shares that only their holder can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedShares {
    /// The other one: the holder in [`DealtShares`], the dealer in [`ShareDelivery`].
    pub client: u16,
    /// ChaCha20-Poly1305 under a key that dealer and holder agree on.
    #[serde(with = "serde_bytes")]
    pub sealed: Vec<u8>,
}

const SEALED: usize = 3 + 1 + BOX_BYTES;

/// The shares that others dealt to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareDelivery {
    /// The session's tag.
    pub session: [u8; 32],
    /// How many clients dealt shares, neighbours or not.
    pub cohort: u16,
    /// One box from each neighbour that dealt, in ascending order.
    pub boxes: Vec<SealedShares>,
}
wire!(ShareDelivery, session => session.holders() * SEALED);

/// A client's vector under its masks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskedInput {
    /// The session's tag.
    pub session: [u8; 32],
    /// Whose.
    pub client: u16,
    /// Who dealt it shares that it could not read.
    pub unreadable: Vec<u16>,
    /// As [`RingVector::pack`] writes it.
    #[serde(with = "serde_bytes")]
    pub vector: Vec<u8>,
}
wire!(MaskedInput, session => {
    let settings = session.settings();
    3 * session.holders() + RingVector::packed_len(settings.ring_bits, settings.length as usize)
});

/// Who of a client's neighbourhood sent a masked vector, and who did not after dealing shares. Together they are all whose shares it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurvivorList {
    /// The session's tag.
    pub session: [u8; 32],
    /// How many clients sent a masked vector, neighbours or not.
    pub cohort: u16,
    /// Whose own masks are to be removed, in ascending order.
    pub survivors: Vec<u16>,
    /// Whose common masks with others are to be removed, in ascending order.
    pub dropped: Vec<u16>,
}
wire!(SurvivorList, session => 3 * session.holders());

impl SurvivorList {
    /// What clients sign where there is a registry.
    pub(crate) fn signed_text(&self) -> Vec<u8> {
        [b"fedeq-secure/1 survivors\0".as_slice(), &self.encode()].concat()
    }
}

/// A client's signature of the list it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurvivorSignature {
    /// The session's tag.
    pub session: [u8; 32],
    /// Who signs.
    pub client: u16,
    /// The signature.
    pub signature: SignatureBytes,
}
wire!(SurvivorSignature, _session => 64);

/// The signatures of all survivors that signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurvivorSignatures {
    /// The session's tag.
    pub session: [u8; 32],
    /// Client and signature, in ascending order.
    pub signatures: Vec<(u16, SignatureBytes)>,
}
wire!(SurvivorSignatures, session => 67 * session.holders());

/// The shares that remove masks: of each client in the list one, never both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevealedShares {
    /// The session's tag.
    pub session: [u8; 32],
    /// Who reveals them.
    pub client: u16,
    /// Of survivors: shares of their own masks, in ascending order.
    pub self_masks: Vec<(u16, [u8; 32])>,
    /// Of drop-outs: shares of their masking keys, in ascending order.
    pub mask_keys: Vec<(u16, [u8; 32])>,
}
wire!(RevealedShares, session => 35 * session.holders());
