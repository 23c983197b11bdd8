//! A client's side: four states, each of which a message of the server turns into the next one and a message to the server.
//!
//! A step consumes the state, so that nothing can be done twice or out of order: shares are revealed once, for one list. A step that refuses
//! consumes it too, and the client is out of the session. States cannot be copied or stored: a client that restarts has dropped out.
use std::collections::{BTreeMap, BTreeSet};

use crate::agreement::{BOX_BYTES, End, HeldShares, KeyPair, has_low_order, mask_key, open, seal};
use crate::error::{Error, Result, ascending, enough, sized};
use crate::message::{
    ClientKeys, DealtShares, KeyRoster, MaskedInput, MessageKind, PublicKeys, RevealedShares, SealedShares, ShareDelivery,
    SurvivorList, SurvivorSignature, SurvivorSignatures,
};
use crate::registry::Identity;
use crate::ring::RingVector;
use crate::secrets::Entropy;
use crate::session::{LARGEST_CLIENT, Session};
use crate::sharing::{Secret, deal};

/// The purpose of the key of a client's own mask.
pub(crate) const SELF_MASK: &[u8] = b"self mask\0";

/// What a client is through all of a session.
struct Me {
    session: Session,
    client: u16,
    identity: Identity,
}

impl Me {
    /// That a list of clients is one this client may work with. Where all are neighbours, the list is the cohort.
    fn check_cohort(&self, kind: MessageKind, listed: usize, cohort: u16) -> Result<()> {
        let (kind, cohort) = (kind.name(), usize::from(cohort));
        if self.session.is_complete() {
            sized(kind, cohort, listed)?;
        }
        if listed > self.session.holders() || listed > cohort || cohort > usize::from(self.session.settings().clients) {
            return Err(Error::WrongSize { what: kind, found: listed, expected: self.session.holders() });
        }
        enough(kind, listed, self.session.threshold())?;
        enough(kind, cohort, self.session.minimum())
    }
}

/// A client that sent its keys and waits for those of others.
pub struct AwaitingRoster {
    me: Me,
    keys: ClientKeys,
    sealing: KeyPair,
    masking: KeyPair,
    mask_secret: Secret,
    entropy: Entropy,
}

impl AwaitingRoster {
    /// Begins a session: draws this client's keys.
    pub fn begin(session: &Session, client: u16, identity: Identity, entropy: Entropy) -> Result<(Self, PublicKeys)> {
        if client > LARGEST_CLIENT {
            return Err(Error::setting("client", format!("`{client}` is above {LARGEST_CLIENT}")));
        }
        identity.check(client, session)?;
        let tag = session.tag();
        let sealing = KeyPair::random(&mut entropy.generator(tag, b"sealing key\0"));
        let mask_secret = Secret::random(&mut entropy.generator(tag, b"masking key\0"));
        let masking = KeyPair::from_secret(tag, &mask_secret);
        let mut keys = ClientKeys { client, sealing: *sealing.public(), masking: *masking.public(), signature: None };
        keys.signature = identity.sign(&keys.signed_text(tag));
        let message = PublicKeys { session: *tag, keys: keys.clone() };
        let me = Me { session: session.clone(), client, identity };
        Ok((Self { me, keys, sealing, masking, mask_secret, entropy }, message))
    }

    /// Takes the keys of all neighbours, and deals them shares of this client's secrets.
    pub fn deal(self, roster: &KeyRoster) -> Result<(AwaitingShares, DealtShares)> {
        self.check(roster)?;
        let (session, client) = (&self.me.session, self.me.client);
        let (tag, threshold) = (session.tag(), session.threshold());
        let self_secret = Secret::random(&mut self.entropy.generator(tag, SELF_MASK));
        let holders: Vec<u16> = roster.keys.iter().map(|keys| keys.client).collect();
        let dealing = &mut self.entropy.generator(tag, b"dealing\0");
        let (mut mask_shares, mask_key) = deal(&self.mask_secret, &holders, threshold, dealing)?;
        let (mut self_shares, self_mask) = deal(&self_secret, &holders, threshold, dealing)?;
        let mut held = |holder: u16| {
            let missing = Error::UnknownClient { kind: MessageKind::KeyRoster.name(), client: holder };
            let (mask_key, self_mask) = mask_shares.remove(&holder).zip(self_shares.remove(&holder)).ok_or(missing)?;
            Ok(HeldShares { mask_key, self_mask })
        };
        let own = held(client)?;
        let mut boxes = Vec::with_capacity(holders.len());
        for keys in roster.keys.iter().filter(|keys| keys.client != client) {
            let to = End { client: keys.client, public: &keys.sealing };
            let sealed = seal(tag, &self.sealing, client, to, &held(keys.client)?)?;
            boxes.push(SealedShares { client: keys.client, sealed });
        }
        let message = DealtShares { session: *tag, client, mask_key, self_mask, boxes };
        let peers = roster.keys.iter().filter(|keys| keys.client != client).map(|keys| (keys.client, keys.clone())).collect();
        Ok((AwaitingShares { me: self.me, peers, sealing: self.sealing, masking: self.masking, self_secret, own }, message))
    }

    /// Shares another secret than that of its key, as a liar would.
    #[cfg(test)]
    pub(crate) fn exchange_secret(&mut self) {
        self.mask_secret = Secret::random(&mut self.entropy.generator(self.me.session.tag(), b"a lie\0"));
    }

    fn check(&self, roster: &KeyRoster) -> Result<()> {
        let kind = MessageKind::KeyRoster;
        let session = &self.me.session;
        session.owns(kind.name(), &roster.session)?;
        ascending(kind.name(), roster.keys.iter().map(|keys| keys.client))?;
        self.me.check_cohort(kind, roster.keys.len(), roster.cohort)?;
        if !roster.keys.contains(&self.keys) {
            return Err(Error::BadKey(self.me.client));
        }
        let mut seen = BTreeSet::new();
        roster.keys.iter().try_for_each(|keys| check_keys(keys, session, &mut seen))
    }
}

/// That a client's keys can be used: of high order, not those of another client, and signed where there is a registry.
pub(crate) fn check_keys(keys: &ClientKeys, session: &Session, seen: &mut BTreeSet<[u8; 32]>) -> Result<()> {
    for key in [&keys.sealing, &keys.masking] {
        if keys.client > LARGEST_CLIENT || has_low_order(key) || seen.contains(key) {
            return Err(Error::BadKey(keys.client));
        }
    }
    if let Some(registry) = session.registry() {
        registry.verify(keys.client, &keys.signed_text(session.tag()), keys.signature.as_ref())?;
    }
    seen.extend([keys.sealing, keys.masking]);
    Ok(())
}

/// A client that dealt its shares and waits for those of others.
pub struct AwaitingShares {
    me: Me,
    peers: BTreeMap<u16, ClientKeys>,
    sealing: KeyPair,
    masking: KeyPair,
    self_secret: Secret,
    own: HeldShares,
}

impl AwaitingShares {
    /// Takes the shares that others dealt, and masks this client's vector.
    ///
    /// A box that cannot be read stops nothing: its dealer is named in the message, and this client has no share of it to reveal.
    pub fn mask(self, delivery: &ShareDelivery, mut vector: RingVector) -> Result<(AwaitingSurvivors, MaskedInput)> {
        self.check(delivery, &vector)?;
        let (tag, client) = (*self.me.session.tag(), self.me.client);
        vector.add_mask(&self.self_secret.key(&tag, SELF_MASK));
        let mut shares = BTreeMap::from([(client, self.own)]);
        let mut unreadable = Vec::new();
        for SealedShares { client: dealer, sealed } in &delivery.boxes {
            let keys = &self.peers[dealer];
            let key = mask_key(&tag, &self.masking, client, End { client: *dealer, public: &keys.masking })?;
            if client < *dealer {
                vector.add_mask(&key)
            } else {
                vector.subtract_mask(&key)
            }
            match open(&tag, &self.sealing, client, End { client: *dealer, public: &keys.sealing }, sealed) {
                Some(opened) => drop(shares.insert(*dealer, opened)),
                None => unreadable.push(*dealer),
            }
        }
        let dealers = delivery.boxes.iter().map(|sealed| sealed.client).chain([client]).collect();
        let message = MaskedInput { session: tag, client, unreadable, vector: vector.pack() };
        Ok((AwaitingSurvivors { me: self.me, dealers, shares }, message))
    }

    fn check(&self, delivery: &ShareDelivery, vector: &RingVector) -> Result<()> {
        let kind = MessageKind::ShareDelivery;
        let session = &self.me.session;
        session.owns(kind.name(), &delivery.session)?;
        ascending(kind.name(), delivery.boxes.iter().map(|sealed| sealed.client))?;
        // This client dealt too.
        self.me.check_cohort(kind, delivery.boxes.len() + 1, delivery.cohort)?;
        for SealedShares { client, sealed } in &delivery.boxes {
            if !self.peers.contains_key(client) {
                return Err(Error::UnknownClient { kind: kind.name(), client: *client });
            }
            sized("sealed shares", sealed.len(), BOX_BYTES)?;
        }
        vector.fits(session.settings().ring_bits, session.settings().length as usize)
    }
}

/// A client that sent its masked vector and waits to hear whose masks are to be removed.
pub struct AwaitingSurvivors {
    me: Me,
    dealers: BTreeSet<u16>,
    shares: BTreeMap<u16, HeldShares>,
}

impl AwaitingSurvivors {
    /// Reveals shares for this list, where the server is trusted to tell all clients the same; the last step.
    pub fn reveal(self, list: &SurvivorList) -> Result<RevealedShares> {
        if self.me.session.registry().is_some() {
            return Err(Error::WrongStep("with a registry the list of survivors is signed before anything is revealed"));
        }
        self.check(list)?;
        Ok(self.revealed(list))
    }

    /// Signs this list, where there is a registry.
    pub fn sign(self, list: SurvivorList) -> Result<(AwaitingSignatures, SurvivorSignature)> {
        self.check(&list)?;
        let signature = self.me.identity.sign(&list.signed_text());
        let signature = signature.ok_or(Error::WrongStep("without a registry no list is signed"))?;
        let message = SurvivorSignature { session: *self.me.session.tag(), client: self.me.client, signature };
        Ok((AwaitingSignatures { state: self, list }, message))
    }

    /// That the list leaves each client whose shares are held on exactly one side, and enough of them on the survivors'.
    fn check(&self, list: &SurvivorList) -> Result<()> {
        let kind = MessageKind::SurvivorList;
        self.me.session.owns(kind.name(), &list.session)?;
        ascending(kind.name(), list.survivors.iter().copied())?;
        ascending(kind.name(), list.dropped.iter().copied())?;
        let survivors: BTreeSet<u16> = list.survivors.iter().copied().collect();
        let dropped: BTreeSet<u16> = list.dropped.iter().copied().collect();
        if let Some(both) = survivors.intersection(&dropped).next() {
            return Err(Error::BothSecrets(*both));
        }
        let listed: BTreeSet<u16> = survivors.union(&dropped).copied().collect();
        if let Some(other) = listed.symmetric_difference(&self.dealers).next() {
            return Err(Error::OtherClients(*other));
        }
        if !survivors.contains(&self.me.client) {
            return Err(Error::OtherClients(self.me.client));
        }
        self.me.check_cohort(kind, survivors.len(), list.cohort)
    }

    fn revealed(self, list: &SurvivorList) -> RevealedShares {
        let held = |clients: &[u16], which: fn(&HeldShares) -> [u8; 32]| {
            clients.iter().filter_map(|client| Some((*client, which(self.shares.get(client)?)))).collect()
        };
        RevealedShares {
            session: *self.me.session.tag(),
            client: self.me.client,
            self_masks: held(&list.survivors, |shares| *shares.self_mask),
            mask_keys: held(&list.dropped, |shares| *shares.mask_key),
        }
    }
}

/// A client that signed a list and waits to see that others were told the same.
pub struct AwaitingSignatures {
    state: AwaitingSurvivors,
    list: SurvivorList,
}

impl AwaitingSignatures {
    /// Reveals shares, if as many survivors as the threshold signed the very list that this client signed; the last step.
    pub fn reveal(self, signatures: &SurvivorSignatures) -> Result<RevealedShares> {
        let kind = MessageKind::SurvivorSignatures.name();
        let Me { session, client: me, .. } = &self.state.me;
        session.owns(kind, &signatures.session)?;
        ascending(kind, signatures.signatures.iter().map(|(client, _)| *client))?;
        let registry = session.registry().ok_or(Error::WrongStep("without a registry no list is signed"))?;
        let text = self.list.signed_text();
        let mut agree = BTreeSet::from([*me]);
        for (client, signature) in &signatures.signatures {
            if self.list.survivors.binary_search(client).is_err() {
                return Err(Error::UnknownClient { kind, client: *client });
            }
            registry.verify(*client, &text, Some(signature))?;
            agree.insert(*client);
        }
        enough(kind, agree.len(), session.fewest())?;
        Ok(self.state.revealed(&self.list))
    }
}
