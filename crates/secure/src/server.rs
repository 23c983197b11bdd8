//! The server's side: it collects one kind of message after another, and replies to each collection with a message to every client.
//!
//! `receive` takes one message and refuses what is wrong with it, without harm to the others. `close` ends a collection with those who replied;
//! where they are too few the session ends, and nothing is revealed that was not before.
use std::collections::{BTreeMap, BTreeSet};

use zeroize::Zeroizing;

use crate::agreement::{BOX_BYTES, End, KeyPair, mask_key};
use crate::client::{SELF_MASK, check_keys};
use crate::error::{Error, Result, ascending, enough, sized};
use crate::graph::{is_connected, neighbours};
use crate::message::{
    ClientKeys, DealtShares, KeyRoster, MaskedInput, MessageKind, PublicKeys, RevealedShares, SealedShares, ShareDelivery,
    SurvivorList, SurvivorSignature, SurvivorSignatures,
};
use crate::registry::SignatureBytes;
use crate::ring::RingVector;
use crate::session::{Session, Trust};
use crate::sharing::{Commitment, Recovered, Share, recover};

/// Messages, each with the client it is for.
pub type Addressed<Message> = Vec<(u16, Message)>;

/// No client replies twice.
fn first_reply<Value>(kind: MessageKind, replies: &BTreeMap<u16, Value>, client: u16) -> Result<()> {
    if replies.contains_key(&client) { Err(Error::Duplicate { kind: kind.name(), client }) } else { Ok(()) }
}

fn member<Value>(kind: MessageKind, clients: &BTreeMap<u16, Value>, client: u16) -> Result<&Value> {
    clients.get(&client).ok_or(Error::UnknownClient { kind: kind.name(), client })
}

/// Collects the keys of whoever takes part.
pub struct CollectingKeys {
    session: Session,
    keys: BTreeMap<u16, ClientKeys>,
    seen: BTreeSet<[u8; 32]>,
}

impl CollectingKeys {
    /// Begins a session.
    pub fn open(session: &Session) -> Self {
        Self { session: session.clone(), keys: BTreeMap::new(), seen: BTreeSet::new() }
    }

    /// Takes a client's keys.
    pub fn receive(&mut self, message: PublicKeys) -> Result<()> {
        let (kind, keys) = (MessageKind::PublicKeys, message.keys);
        self.session.owns(kind.name(), &message.session)?;
        first_reply(kind, &self.keys, keys.client)?;
        if self.keys.len() >= usize::from(self.session.settings().clients) {
            return Err(Error::UnknownClient { kind: kind.name(), client: keys.client });
        }
        if matches!(self.session.settings().trust, Trust::HonestButCurious) && keys.signature.is_some() {
            return Err(Error::WrongIdentity(keys.client));
        }
        check_keys(&keys, &self.session, &mut self.seen)?;
        self.keys.insert(keys.client, keys);
        Ok(())
    }

    /// The clients whose keys came.
    pub fn received(&self) -> impl Iterator<Item = u16> + '_ {
        self.keys.keys().copied()
    }

    /// Tells every client its neighbours' keys.
    pub fn close(self) -> Result<(CollectingShares, Addressed<KeyRoster>)> {
        enough(MessageKind::PublicKeys.name(), self.keys.len(), self.session.fewest())?;
        let clients: BTreeSet<u16> = self.keys.keys().copied().collect();
        let neighbours = neighbours(&self.session, &clients);
        let roster = |client: u16| {
            let mut holders: Vec<u16> = neighbours[&client].iter().copied().chain([client]).collect();
            holders.sort_unstable();
            let keys = holders.iter().map(|holder| self.keys[holder].clone()).collect();
            KeyRoster { session: *self.session.tag(), cohort: size(&self.keys), keys }
        };
        let rosters = clients.iter().map(|&client| (client, roster(client))).collect();
        let Self { session, keys, .. } = self;
        Ok((CollectingShares { group: Group { session, keys, neighbours }, dealt: BTreeMap::new() }, rosters))
    }
}

/// The clients of a session are at most as many as a `u16` says.
fn size<Value>(clients: &BTreeMap<u16, Value>) -> u16 {
    u16::try_from(clients.len()).expect("as many as a session can have")
}

/// What the server knows of the clients that sent keys.
struct Group {
    session: Session,
    keys: BTreeMap<u16, ClientKeys>,
    neighbours: BTreeMap<u16, BTreeSet<u16>>,
}

/// What a client dealt.
struct Dealt {
    mask_key: Commitment,
    self_mask: Commitment,
    boxes: BTreeMap<u16, Vec<u8>>,
}

/// Collects encrypted shares.
pub struct CollectingShares {
    group: Group,
    dealt: BTreeMap<u16, Dealt>,
}

impl CollectingShares {
    /// Takes the shares that a client dealt: one box for each of its neighbours.
    pub fn receive(&mut self, message: DealtShares) -> Result<()> {
        let (kind, client) = (MessageKind::DealtShares, message.client);
        let Group { session, neighbours, .. } = &self.group;
        session.owns(kind.name(), &message.session)?;
        let holders = member(kind, neighbours, client)?;
        first_reply(kind, &self.dealt, client)?;
        ascending(kind.name(), message.boxes.iter().map(|sealed| sealed.client))?;
        sized(kind.name(), message.boxes.len(), holders.len())?;
        for SealedShares { client: holder, sealed } in &message.boxes {
            if !holders.contains(holder) {
                return Err(Error::UnknownClient { kind: kind.name(), client: *holder });
            }
            sized("sealed shares", sealed.len(), BOX_BYTES)?;
        }
        let dealt = Dealt {
            mask_key: Commitment::read(client, &message.mask_key, session.threshold())?,
            self_mask: Commitment::read(client, &message.self_mask, session.threshold())?,
            boxes: message.boxes.into_iter().map(|sealed| (sealed.client, sealed.sealed)).collect(),
        };
        self.dealt.insert(client, dealt);
        Ok(())
    }

    /// The clients whose shares came.
    pub fn received(&self) -> impl Iterator<Item = u16> + '_ {
        self.dealt.keys().copied()
    }

    /// Hands every client that dealt the shares that its neighbours dealt to it.
    pub fn close(mut self) -> Result<(CollectingInputs, Addressed<ShareDelivery>)> {
        let session = &self.group.session;
        enough(MessageKind::DealtShares.name(), self.dealt.len(), session.fewest())?;
        let (cohort, tag) = (size(&self.dealt), *session.tag());
        let dealers: Vec<u16> = self.dealt.keys().copied().collect();
        let mut deliver = |holder: u16| {
            let boxes = self.dealt.iter_mut().filter_map(|(dealer, dealt)| Some((*dealer, dealt.boxes.remove(&holder)?)));
            let boxes = boxes.map(|(client, sealed)| SealedShares { client, sealed }).collect();
            ShareDelivery { session: tag, cohort, boxes }
        };
        let deliveries = dealers.iter().map(|&holder| (holder, deliver(holder))).collect();
        let settings = session.settings();
        let sum = RingVector::zero(settings.ring_bits, settings.length as usize);
        Ok((CollectingInputs { group: self.group, dealt: self.dealt, sum, inputs: BTreeMap::new() }, deliveries))
    }
}

/// Collects masked vectors, and keeps only their sum.
pub struct CollectingInputs {
    group: Group,
    dealt: BTreeMap<u16, Dealt>,
    sum: RingVector,
    inputs: BTreeMap<u16, Vec<u16>>,
}

impl CollectingInputs {
    /// Takes a client's masked vector.
    pub fn receive(&mut self, message: &MaskedInput) -> Result<()> {
        let (kind, client) = (MessageKind::MaskedInput, message.client);
        self.group.session.owns(kind.name(), &message.session)?;
        member(kind, &self.dealt, client)?;
        first_reply(kind, &self.inputs, client)?;
        ascending(kind.name(), message.unreadable.iter().copied())?;
        let settings = self.group.session.settings();
        let vector = RingVector::unpack(settings.ring_bits, settings.length as usize, &message.vector)?;
        self.sum.add(&vector)?;
        self.inputs.insert(client, message.unreadable.clone());
        Ok(())
    }

    /// The clients whose vectors came.
    pub fn received(&self) -> impl Iterator<Item = u16> + '_ {
        self.inputs.keys().copied()
    }

    /// Who could not read whose shares, as `(holder, dealer)`: either of the two, or whoever carried the box, is to blame.
    pub fn unreadable(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.inputs.iter().flat_map(|(holder, dealers)| dealers.iter().map(|dealer| (*holder, *dealer)))
    }

    /// Asks every survivor for shares, where the clients trust the server's list.
    pub fn close(self) -> Result<(CollectingReveals, Addressed<SurvivorList>)> {
        if self.group.session.registry().is_some() {
            return Err(Error::WrongStep("with a registry the list of survivors is signed before anything is revealed"));
        }
        self.listed()
    }

    /// Asks every survivor for its signature of the list, where there is a registry.
    pub fn close_signed(self) -> Result<(CollectingSignatures, Addressed<SurvivorList>)> {
        if self.group.session.registry().is_none() {
            return Err(Error::WrongStep("without a registry no list is signed"));
        }
        let (reveals, lists) = self.listed()?;
        let text = lists.first().map(|(_, list)| list.signed_text()).unwrap_or_default();
        Ok((CollectingSignatures { reveals, text, signatures: BTreeMap::new() }, lists))
    }

    fn listed(self) -> Result<(CollectingReveals, Addressed<SurvivorList>)> {
        let Group { session, neighbours, .. } = &self.group;
        enough(MessageKind::MaskedInput.name(), self.inputs.len(), session.fewest())?;
        let survivors: BTreeSet<u16> = self.inputs.keys().copied().collect();
        if !is_connected(neighbours, &survivors) {
            return Err(Error::Disconnected);
        }
        let list = |client: u16| {
            let held = self.dealt.keys().copied().filter(|dealer| *dealer == client || neighbours[&client].contains(dealer));
            let (survivors, dropped) = held.partition(|dealer| survivors.contains(dealer));
            SurvivorList { session: *session.tag(), cohort: size(&self.inputs), survivors, dropped }
        };
        let lists = survivors.iter().map(|&client| (client, list(client))).collect();
        let Self { group, dealt, sum, .. } = self;
        let shares = dealt.keys().map(|dealer| (*dealer, BTreeMap::new())).collect();
        Ok((CollectingReveals { group, dealt, sum, survivors, replied: BTreeMap::new(), shares }, lists))
    }
}

/// Collects signatures of the list of survivors.
pub struct CollectingSignatures {
    reveals: CollectingReveals,
    text: Vec<u8>,
    signatures: BTreeMap<u16, SignatureBytes>,
}

impl CollectingSignatures {
    /// Takes a client's signature.
    pub fn receive(&mut self, message: &SurvivorSignature) -> Result<()> {
        let (kind, client) = (MessageKind::SurvivorSignature, message.client);
        let CollectingReveals { group: Group { session, .. }, survivors, .. } = &self.reveals;
        session.owns(kind.name(), &message.session)?;
        if !survivors.contains(&client) {
            return Err(Error::UnknownClient { kind: kind.name(), client });
        }
        first_reply(kind, &self.signatures, client)?;
        let registry = session.registry().ok_or(Error::WrongStep("without a registry no list is signed"))?;
        registry.verify(client, &self.text, Some(&message.signature))?;
        self.signatures.insert(client, message.signature);
        Ok(())
    }

    /// The clients whose signatures came.
    pub fn received(&self) -> impl Iterator<Item = u16> + '_ {
        self.signatures.keys().copied()
    }

    /// Shows every client that signed what the others signed.
    pub fn close(self) -> Result<(CollectingReveals, Addressed<SurvivorSignatures>)> {
        let session = &self.reveals.group.session;
        enough(MessageKind::SurvivorSignature.name(), self.signatures.len(), session.fewest())?;
        let message = SurvivorSignatures { session: *session.tag(), signatures: self.signatures.into_iter().collect() };
        let to = message.signatures.iter().map(|(client, _)| (*client, message.clone())).collect();
        Ok((self.reveals, to))
    }
}

/// Collects the shares that remove the masks.
pub struct CollectingReveals {
    group: Group,
    dealt: BTreeMap<u16, Dealt>,
    sum: RingVector,
    survivors: BTreeSet<u16>,
    replied: BTreeMap<u16, ()>,
    /// By the client whose secret they are shares of, then by holder.
    shares: BTreeMap<u16, BTreeMap<u16, Share>>,
}

/// The sum of the survivors' vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureSum {
    /// The sum.
    pub sum: RingVector,
    /// Whose vectors are in it.
    pub survivors: Vec<u16>,
    /// Who dealt shares and sent no vector.
    pub dropped: Vec<u16>,
    /// Who revealed shares that do not fit their dealer's commitment, as `(holder, dealer)`: they were not needed.
    pub unsound: Vec<(u16, u16)>,
}

impl CollectingReveals {
    /// Takes a client's shares.
    pub fn receive(&mut self, message: &RevealedShares) -> Result<()> {
        let (kind, client) = (MessageKind::RevealedShares, message.client);
        self.group.session.owns(kind.name(), &message.session)?;
        if !self.survivors.contains(&client) {
            return Err(Error::UnknownClient { kind: kind.name(), client });
        }
        first_reply(kind, &self.replied, client)?;
        for (shares, survive) in [(&message.self_masks, true), (&message.mask_keys, false)] {
            ascending(kind.name(), shares.iter().map(|(owner, _)| *owner))?;
            if let Some((owner, _)) = shares.iter().find(|(owner, _)| !self.is_asked(client, *owner, survive)) {
                return Err(Error::UnknownClient { kind: kind.name(), client: *owner });
            }
        }
        for (owner, share) in message.self_masks.iter().chain(&message.mask_keys) {
            self.shares.entry(*owner).or_default().insert(client, Zeroizing::new(*share));
        }
        self.replied.insert(client, ());
        Ok(())
    }

    /// Whether a holder was asked for this share of a client.
    fn is_asked(&self, holder: u16, owner: u16, survive: bool) -> bool {
        let holds = owner == holder || self.group.neighbours[&holder].contains(&owner);
        holds && self.dealt.contains_key(&owner) && self.survivors.contains(&owner) == survive
    }

    /// The clients whose shares came.
    pub fn received(&self) -> impl Iterator<Item = u16> + '_ {
        self.replied.keys().copied()
    }

    /// Removes all masks from the sum. Every secret is put together before the first mask is removed, so that a failure shows nothing.
    pub fn close(self) -> Result<SecureSum> {
        enough(MessageKind::RevealedShares.name(), self.replied.len(), self.group.session.fewest())?;
        let mut unsound = Vec::new();
        let mut added = Vec::new();
        let mut subtracted = Vec::new();
        for (&client, dealt) in &self.dealt {
            let survives = self.survivors.contains(&client);
            let commitment = if survives { &dealt.self_mask } else { &dealt.mask_key };
            let common: Vec<u16> = self.group.neighbours[&client].intersection(&self.survivors).copied().collect();
            if !survives && common.is_empty() {
                // No masks of this client are in the sum.
                continue;
            }
            let recovered = recover(client, &self.shares[&client], commitment, self.group.session.threshold())?;
            unsound.extend(recovered.unsound.iter().map(|holder| (*holder, client)));
            if survives {
                added.push(recovered.secret.key(self.group.session.tag(), SELF_MASK));
            } else {
                self.common_masks(client, recovered, &common, &mut added, &mut subtracted)?;
            }
        }
        let Self { mut sum, dealt, survivors, .. } = self;
        added.iter().for_each(|key| sum.subtract_mask(key));
        subtracted.iter().for_each(|key| sum.add_mask(key));
        let dropped = dealt.into_keys().filter(|client| !survivors.contains(client)).collect();
        Ok(SecureSum { sum, survivors: survivors.into_iter().collect(), dropped, unsound })
    }

    /// The masks that survivors have in common with a client that dropped out, as the survivors used them.
    fn common_masks(
        &self,
        client: u16,
        recovered: Recovered,
        common: &[u16],
        added: &mut Vec<Zeroizing<[u8; 32]>>,
        subtracted: &mut Vec<Zeroizing<[u8; 32]>>,
    ) -> Result<()> {
        let tag = self.group.session.tag();
        let pair = KeyPair::from_secret(tag, &recovered.secret);
        if *pair.public() != self.group.keys[&client].masking {
            return Err(Error::FalseDealer(client));
        }
        for &survivor in common {
            let key = mask_key(tag, &pair, client, End { client: survivor, public: &self.group.keys[&survivor].masking })?;
            if survivor < client { added.push(key) } else { subtracted.push(key) }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::AwaitingRoster;
    use crate::registry::Identity;
    use crate::secrets::Entropy;
    use crate::session::SessionSettings;

    /// A client that deals shares of another secret than its public key's, soundly committed to, and drops out.
    #[test]
    fn a_client_that_shares_a_secret_of_another_key_is_named() {
        let trust = Trust::HonestButCurious;
        let settings = SessionSettings {
            nonce: [0; 32],
            clients: 4,
            threshold: 3,
            minimum: 3,
            length: 1,
            ring_bits: 8,
            neighbours: None,
            trust,
        };
        let session = Session::new(settings).unwrap();
        let mut keys = CollectingKeys::open(&session);
        let mut states = Vec::new();
        for client in 0..4 {
            let entropy = Entropy::fixed([client as u8; 32]);
            let (mut state, message) = AwaitingRoster::begin(&session, client, Identity::Unsigned, entropy).unwrap();
            if client == 2 {
                state.exchange_secret();
            }
            keys.receive(message).unwrap();
            states.push(state);
        }
        let (mut shares, rosters) = keys.close().unwrap();
        let mut dealt = Vec::new();
        for (state, (_, roster)) in states.into_iter().zip(&rosters) {
            let (state, message) = state.deal(roster).unwrap();
            shares.receive(message).unwrap();
            dealt.push(state);
        }
        let (mut inputs, deliveries) = shares.close().unwrap();
        let mut masked = Vec::new();
        for ((client, delivery), state) in deliveries.iter().zip(dealt).filter(|((client, _), _)| *client != 2) {
            let (state, message) = state.mask(delivery, RingVector::zero(8, 1)).unwrap();
            assert!(message.unreadable.is_empty());
            inputs.receive(&message).unwrap();
            masked.push((*client, state));
        }
        let (mut reveals, lists) = inputs.close().unwrap();
        for ((_, list), (_, state)) in lists.iter().zip(masked) {
            reveals.receive(&state.reveal(list).unwrap()).unwrap();
        }
        assert_eq!(reveals.close(), Err(Error::FalseDealer(2)));
    }
}
