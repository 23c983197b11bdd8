//! Secure aggregation at the server of clients elsewhere: the protocol of `fedeq-secure`, step by step, whoever carries the messages.
use std::collections::BTreeMap;

use fedeq_secure::server::{Addressed, CollectingInputs, CollectingKeys, SecureSum};
use fedeq_secure::{DealtShares, MaskedInput, PublicKeys, RevealedShares, Session, SurvivorSignature, WireMessage};

use super::{Opening, SecureRounds, SessionOf};
use crate::acceptance::Dropped;
use crate::aggregation::named_like;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::weights::Weights;

/// The mean of what clients sent under masks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecureMean {
    /// The mean change of each parameter, in the order of the layout.
    pub(crate) changes: Vec<f32>,
    /// The mean of running statistics.
    pub(crate) statistics: Params,
    /// Whose updates are in it.
    pub survivors: Vec<usize>,
    /// Who was asked and is not in it, and who sent shares that do not fit, with reasons.
    pub dropped: Vec<Dropped>,
}

/// The steps of a session, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecureStep {
    /// Clients send keys.
    Keys,
    /// Clients deal shares.
    Shares,
    /// Clients send masked vectors: from here on the session cannot be repeated.
    Masked,
    /// Clients sign who is in the sum, where they know each other's keys.
    Signatures,
    /// Clients reveal what removes masks.
    Reveals,
}

/// Carries the messages of one step to clients and their replies back, in the same order.
pub type CarryStep<'a> = dyn FnMut(SecureStep, &[(usize, Vec<u8>)]) -> Result<Vec<std::result::Result<Vec<u8>, Dropped>>> + 'a;

/// The clients of a session, by their numbers in it.
struct Cohort {
    clients: BTreeMap<u16, usize>,
    round: u64,
    dropped: BTreeMap<usize, String>,
}

impl Cohort {
    /// Sends every client that is still there a message, and takes what comes back.
    fn exchange<Reply: WireMessage>(
        &mut self,
        step: SecureStep,
        messages: Vec<(u16, Vec<u8>)>,
        session: &Session,
        carry: &mut CarryStep<'_>,
        mut take: impl FnMut(u16, Reply) -> fedeq_secure::Result<()>,
    ) -> Result<()> {
        let places: Vec<u16> = messages.iter().map(|(place, _)| *place).collect();
        let addressed: Vec<(usize, Vec<u8>)> =
            messages.into_iter().map(|(place, message)| (self.clients[&place], message)).collect();
        let replies = carry(step, &addressed)?;
        for ((place, (client, _)), reply) in places.into_iter().zip(addressed).zip(replies) {
            let taken = reply.map_err(|dropped| dropped.reason).and_then(|bytes| {
                let taken = Reply::decode(&bytes, session).and_then(|reply| take(place, reply));
                taken.map_err(|error| format!("secure aggregation: {error}"))
            });
            if let Err(reason) = taken {
                self.dropped.insert(client, reason);
            }
        }
        Ok(())
    }

    fn failed(&self, error: &fedeq_secure::Error) -> Error {
        let named = |(client, reason): (&usize, &String)| format!("client {client}: {reason}");
        let reasons: Vec<String> = self.dropped.iter().map(named).collect();
        Error::Quorum { problem: format!("the sum of round {} cannot be had: {error} ({})", self.round + 1, reasons.join("; ")) }
    }
}

/// No client speaks for another.
fn own(place: u16, said: u16) -> fedeq_secure::Result<()> {
    if place == said { Ok(()) } else { Err(fedeq_secure::Error::WrongIdentity(said)) }
}

fn encoded<Message: WireMessage>(messages: &Addressed<Message>) -> Vec<(u16, Vec<u8>)> {
    messages.iter().map(|(place, message)| (*place, message.encode())).collect()
}

impl SecureRounds {
    /// The mean of what the clients of a cohort trained in a round; `theta` is what they were sent. The session is the `attempt`-th of this round.
    pub fn sum(
        &self,
        federation: &str,
        round: u64,
        attempt: u32,
        clients: &[usize],
        theta: &Weights,
        carry: &mut CarryStep<'_>,
    ) -> Result<SecureMean> {
        let (parameters, statistics) = (theta.params.count(), theta.statistics.count());
        if clients.len() < self.minimum() {
            let problem = format!(
                "the sum of round {} cannot be had: {} clients are left where {} are needed",
                round + 1,
                clients.len(),
                self.minimum()
            );
            return Err(Error::Quorum { problem });
        }
        let of = SessionOf { federation, round, attempt, cohort: clients.len(), parameters, statistics };
        let (session, code) = self.session(&of)?;
        let numbers = self.numbers(clients)?;
        let named = numbers.iter().copied().zip(clients.iter().copied()).collect();
        let mut cohort = Cohort { clients: named, round, dropped: BTreeMap::new() };
        let size = session.settings().clients;

        let mut keys = CollectingKeys::open(&session);
        let openings = numbers.iter().map(|&place| (place, Opening { attempt, cohort: size, place }.write())).collect();
        cohort.exchange(SecureStep::Keys, openings, &session, carry, |place, reply: PublicKeys| {
            own(place, reply.keys.client).and_then(|()| keys.receive(reply))
        })?;
        let (mut shares, rosters) = keys.close().map_err(|error| cohort.failed(&error))?;
        cohort.exchange(SecureStep::Shares, encoded(&rosters), &session, carry, |place, reply: DealtShares| {
            own(place, reply.client).and_then(|()| shares.receive(reply))
        })?;
        let (mut inputs, deliveries) = shares.close().map_err(|error| cohort.failed(&error))?;
        cohort.exchange(SecureStep::Masked, encoded(&deliveries), &session, carry, |place, reply: MaskedInput| {
            own(place, reply.client).and_then(|()| inputs.receive(&reply))
        })?;
        let unreadable = |(holder, dealer): (u16, u16)| {
            (dealer, format!("secure aggregation: client {} cannot read its shares", cohort.clients[&holder]))
        };
        let mut unsound: Vec<(u16, String)> = inputs.unreadable().map(unreadable).collect();
        let opened = self.unmasked(inputs, &mut cohort, &session, carry)?;
        let false_share = |(holder, dealer): &(u16, u16)| {
            (*holder, format!("secure aggregation: its share of client {} is false", cohort.clients[dealer]))
        };
        unsound.extend(opened.unsound.iter().map(false_share));

        let mean = code.decode(&opened.sum, statistics, opened.survivors.len())?;
        let wide: Vec<f32> = mean.wide.iter().map(|value| *value as f32).collect();
        let survivors = opened.survivors.iter().map(|place| cohort.clients[place]).collect();
        for (place, reason) in unsound {
            let client = cohort.clients[&place];
            cohort.dropped.entry(client).or_insert(reason);
        }
        let dropped = cohort.dropped.iter().map(|(client, reason)| Dropped::new(*client, reason)).collect();
        Ok(SecureMean { changes: mean.values, statistics: named_like(&theta.statistics, &wide), survivors, dropped })
    }

    /// The last steps: clients agree on who is in the sum, if they know each other, and reveal what removes the masks.
    fn unmasked(
        &self,
        inputs: CollectingInputs,
        cohort: &mut Cohort,
        session: &Session,
        carry: &mut CarryStep<'_>,
    ) -> Result<SecureSum> {
        let (mut reveals, last) = if self.is_signed() {
            let (mut signatures, lists) = inputs.close_signed().map_err(|error| cohort.failed(&error))?;
            cohort.exchange(SecureStep::Signatures, encoded(&lists), session, carry, |place, reply: SurvivorSignature| {
                own(place, reply.client).and_then(|()| signatures.receive(&reply))
            })?;
            let (reveals, proofs) = signatures.close().map_err(|error| cohort.failed(&error))?;
            (reveals, encoded(&proofs))
        } else {
            let (reveals, lists) = inputs.close().map_err(|error| cohort.failed(&error))?;
            (reveals, encoded(&lists))
        };
        cohort.exchange(SecureStep::Reveals, last, session, carry, |place, reply: RevealedShares| {
            own(place, reply.client).and_then(|()| reveals.receive(&reply))
        })?;
        reveals.close().map_err(|error| cohort.failed(&error))
    }

    /// The most bytes that a client sends in a session of so many clients.
    pub fn largest_answer(&self, clients: usize, theta: &Weights) -> Result<usize> {
        let (parameters, statistics) = (theta.params.count(), theta.statistics.count());
        let of = SessionOf { federation: "", round: 0, attempt: 0, cohort: clients, parameters, statistics };
        let (session, _) = self.session(&of)?;
        let limits = [PublicKeys::limit, DealtShares::limit, MaskedInput::limit, SurvivorSignature::limit, RevealedShares::limit];
        Ok(limits.iter().map(|limit| limit(&session)).max().unwrap_or_default())
    }
}
