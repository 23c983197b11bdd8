#![doc = include_str!("../README.md")]
mod agreement;
pub mod client;
mod count;
mod error;
mod graph;
pub mod in_memory;
mod message;
mod quantise;
mod registry;
mod ring;
mod secrets;
pub mod server;
mod session;
mod sharing;

pub use count::{KindCount, MessageCounts};
pub use error::{Error, Result};
pub use message::{
    ClientKeys, DealtShares, KeyRoster, MaskedInput, MessageKind, PublicKeys, RevealedShares, SealedShares, ShareDelivery,
    SurvivorList, SurvivorSignature, SurvivorSignatures, WireMessage,
};
pub use quantise::{Quantisation, QuantisedMean, QuantisedVector};
pub use registry::{Identity, Registry, SignatureBytes, SigningSecret, key_from_hex, key_to_hex};
pub use ring::RingVector;
pub use secrets::Entropy;
pub use session::{LARGEST_CLIENT, LONGEST_VECTOR, SMALLEST_COHORT, Session, SessionSettings, Trust};
