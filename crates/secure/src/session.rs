//! What server and clients agree on before they begin.
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::registry::Registry;

/// No session has fewer clients than this: of a sum of two vectors each of the two knows the other's.
pub const SMALLEST_COHORT: u16 = 3;
/// The longest vector of a session: 1 GiB of masks.
pub const LONGEST_VECTOR: u32 = 1 << 28;
/// The largest number a client can have: its share lies at the number plus one.
pub const LARGEST_CLIENT: u16 = u16::MAX - 1;

/// Whom the clients trust, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// The server follows the protocol, and looks at all that it sees. Nothing is signed: a malicious server can invent clients, put keys of
    /// its own in the place of theirs, and so learn single vectors.
    HonestButCurious,
    /// The server may lie. Clients know each other's long-term keys, so that it can neither invent clients nor exchange keys, and they sign the
    /// list of survivors before they reveal anything, so that it cannot tell different lists to different clients.
    Registry(Registry),
}

/// The settings of a session, in plain data. All parties must have the same; [`Session::new`] says whether they can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSettings {
    /// Names this session and no other. It need not be secret, but must never be used twice: a random number, or a hash of federation and round.
    pub nonce: [u8; 32],
    /// The most clients that can take part.
    pub clients: u16,
    /// The number of shares that open a secret: fewer reveal nothing of it, and with fewer survivors there is no sum. More than half of those
    /// who hold shares of one client. See [`SessionSettings::usual_threshold`].
    pub threshold: u16,
    /// The fewest clients whose sum may become known, at least [`SMALLEST_COHORT`].
    pub minimum: u16,
    /// Numbers in a vector.
    pub length: u32,
    /// The sum is taken modulo 2 to the power of this: 2 to 32.
    pub ring_bits: u8,
    /// How many others each client shares masks with (SecAgg+), an even number; all, when absent (SecAgg). Only with
    /// [`Trust::HonestButCurious`].
    pub neighbours: Option<u16>,
    /// Whom the clients trust, and for what.
    pub trust: Trust,
}

impl SessionSettings {
    /// More than two thirds of those who hold shares of one client: withstands a third of drop-outs, and a malicious server that has up to a third of the
    /// clients on its side still cannot open both secrets of one client.
    pub fn usual_threshold(holders: u16) -> u16 {
        u16::try_from(u32::from(holders) * 2 / 3 + 1).unwrap_or(u16::MAX).min(holders)
    }

    /// The most clients that hold a share of one client's secrets, itself included.
    fn holders(&self) -> u16 {
        self.neighbours.map_or(self.clients, |neighbours| neighbours.saturating_add(1))
    }

    fn check(&self) -> Result<()> {
        let within = |setting, value: u32, least: u32, most: u32| {
            let why = || format!("`{value}` is not from {least} to {most}");
            if (least..=most).contains(&value) { Ok(()) } else { Err(Error::setting(setting, why())) }
        };
        within("clients", self.clients.into(), SMALLEST_COHORT.into(), LARGEST_CLIENT.into())?;
        within("minimum", self.minimum.into(), SMALLEST_COHORT.into(), self.clients.into())?;
        within("length", self.length, 1, LONGEST_VECTOR)?;
        within("ring_bits", self.ring_bits.into(), 2, 32)?;
        if let Some(neighbours) = self.neighbours {
            within("neighbours", neighbours.into(), 2, u32::from(self.clients) - 1)?;
            if neighbours % 2 == 1 {
                return Err(Error::setting("neighbours", format!("`{neighbours}` is not even")));
            }
        }
        let holders = u32::from(self.holders());
        within("threshold", self.threshold.into(), holders / 2 + 1, holders)?;
        match &self.trust {
            Trust::Registry(_) if self.neighbours.is_some() => {
                // Signed lists are compared within a neighbourhood only: a server could tell another list to another one.
                Err(Error::setting(
                    "neighbours",
                    "a registry protects from a malicious server only where all clients share masks with all others",
                ))
            }
            Trust::Registry(registry) if registry.len() < usize::from(SMALLEST_COHORT) => {
                Err(Error::setting("trust", format!("a registry of {} clients is too small", registry.len())))
            }
            _ => Ok(()),
        }
    }
}

/// Settings that were checked, and the hash that stands for all of them in keys, signatures and messages.
#[derive(Debug, Clone)]
pub struct Session {
    settings: SessionSettings,
    tag: [u8; 32],
}

impl Session {
    /// The session that has these settings, if there can be one.
    pub fn new(settings: SessionSettings) -> Result<Self> {
        settings.check()?;
        let bytes = postcard::to_allocvec(&settings).map_err(|_| Error::Malformed("session"))?;
        let tag = Sha256::new().chain_update(b"fedeq-secure/1 session\0").chain_update(bytes).finalize().into();
        Ok(Self { settings, tag })
    }

    /// Its settings.
    pub fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    /// The hash of all settings. Whoever has other settings has another tag, and understands nothing of this session.
    pub fn tag(&self) -> &[u8; 32] {
        &self.tag
    }

    pub(crate) fn threshold(&self) -> usize {
        self.settings.threshold.into()
    }

    pub(crate) fn minimum(&self) -> usize {
        self.settings.minimum.into()
    }

    /// The most clients that hold a share of one client's secrets, itself included.
    pub(crate) fn holders(&self) -> usize {
        self.settings.holders().into()
    }

    /// How many clients there must be at any point for anything to continue.
    pub(crate) fn fewest(&self) -> usize {
        self.threshold().max(self.minimum())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.settings.neighbours.is_none()
    }

    pub(crate) fn registry(&self) -> Option<&Registry> {
        match &self.settings.trust {
            Trust::Registry(registry) => Some(registry),
            Trust::HonestButCurious => None,
        }
    }

    /// That a message belongs to this session.
    pub(crate) fn owns(&self, kind: &'static str, tag: &[u8; 32]) -> Result<()> {
        if *tag == self.tag { Ok(()) } else { Err(Error::OtherSession(kind)) }
    }
}
