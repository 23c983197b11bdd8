//! The bytes of a session's messages.
use std::collections::{BTreeMap, BTreeSet};

use crate::agreement::BOX_BYTES;
use crate::graph::neighbours;
use crate::message::{
    ClientKeys, DealtShares, KeyRoster, MaskedInput, MessageKind, PublicKeys, RevealedShares, SealedShares, ShareDelivery,
    SurvivorList, SurvivorSignature, SurvivorSignatures, WireMessage,
};
use crate::registry::SignatureBytes;
use crate::ring::RingVector;
use crate::session::Session;

/// Messages of one kind, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindCount {
    /// How many.
    pub messages: u64,
    /// All their bytes.
    pub bytes: u64,
}

/// Messages by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageCounts(BTreeMap<MessageKind, KindCount>);

impl MessageCounts {
    /// Counts a message.
    pub fn add(&mut self, kind: MessageKind, bytes: usize) {
        let count = self.0.entry(kind).or_default();
        count.messages += 1;
        count.bytes += bytes as u64;
    }

    /// Every kind that was sent, in the order of the protocol.
    pub fn kinds(&self) -> impl Iterator<Item = (MessageKind, KindCount)> + '_ {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }

    /// Bytes that clients sent.
    pub fn sent_by_clients(&self) -> u64 {
        self.kinds().filter(|(kind, _)| kind.is_sent_by_clients()).map(|(_, count)| count.bytes).sum()
    }

    /// Bytes that the server sent.
    pub fn sent_by_server(&self) -> u64 {
        self.kinds().filter(|(kind, _)| !kind.is_sent_by_clients()).map(|(_, count)| count.bytes).sum()
    }

    /// What each client sends and receives in a session from which no client drops out, without any cryptography.
    pub fn without_drop_outs(session: &Session, clients: &BTreeSet<u16>) -> BTreeMap<u16, Self> {
        let neighbours = neighbours(session, clients);
        clients.iter().map(|&client| (client, Self::of_client(session, client, &neighbours[&client], clients))).collect()
    }

    fn of_client(session: &Session, client: u16, others: &BTreeSet<u16>, clients: &BTreeSet<u16>) -> Self {
        let (tag, settings) = (*session.tag(), session.settings());
        let cohort = u16::try_from(clients.len()).unwrap_or(u16::MAX);
        let signed = session.registry().is_some();
        let signature = SignatureBytes::blank();
        let keys =
            |client: u16| ClientKeys { client, sealing: [0; 32], masking: [0; 32], signature: signed.then_some(signature) };
        let mut holders: Vec<u16> = others.iter().copied().chain([client]).collect();
        holders.sort_unstable();
        let boxes: Vec<_> = others.iter().map(|&client| SealedShares { client, sealed: vec![0; BOX_BYTES] }).collect();
        let points = vec![[0; 32]; session.threshold()];
        let vector = vec![0; RingVector::packed_len(settings.ring_bits, settings.length as usize)];
        let share = |&client: &u16| (client, [0; 32]);

        let mut counts = Self::default();
        counts.of(&PublicKeys { session: tag, keys: keys(client) });
        counts.of(&KeyRoster { session: tag, cohort, keys: holders.iter().copied().map(keys).collect() });
        counts.of(&DealtShares { session: tag, client, mask_key: points.clone(), self_mask: points, boxes: boxes.clone() });
        counts.of(&ShareDelivery { session: tag, cohort, boxes });
        counts.of(&MaskedInput { session: tag, client, unreadable: Vec::new(), vector });
        counts.of(&SurvivorList { session: tag, cohort, survivors: holders.clone(), dropped: Vec::new() });
        if signed {
            counts.of(&SurvivorSignature { session: tag, client, signature });
            let signatures = clients.iter().map(|&client| (client, signature)).collect();
            counts.of(&SurvivorSignatures { session: tag, signatures });
        }
        let self_masks = holders.iter().map(share).collect();
        counts.of(&RevealedShares { session: tag, client, self_masks, mask_keys: Vec::new() });
        counts
    }

    fn of<Message: WireMessage>(&mut self, message: &Message) {
        self.add(Message::KIND, message.encode().len());
    }
}
