//! Secure aggregation at a client elsewhere: what it trained is kept until the server asks for it under masks, once.
use fedeq_data::Seed;
use fedeq_secure::client::{AwaitingRoster, AwaitingShares, AwaitingSignatures, AwaitingSurvivors};
use fedeq_secure::{
    Entropy, Identity, KeyRoster, Session, ShareDelivery, SigningSecret, SurvivorList, SurvivorSignatures, WireMessage,
};

use super::rounds::RingCode;
use super::{Opening, SecretRow, SecureRounds, SessionOf};
use crate::aggregation::flat;
use crate::algorithm::{Algorithm, Update};
use crate::error::{Error, Result};
use crate::message::Request;

/// One client's part in the sum of a round. It lives in memory only: a client that restarts has dropped out of the round.
///
/// Its vector is masked once. Until then the server may begin again, with other clients; afterwards there is one list of survivors that it answers to.
pub struct SecureClient {
    rounds: SecureRounds,
    /// Its number in the federation.
    client: usize,
    /// What it signs with, where clients know each other's keys.
    signing: Option<SigningSecret>,
    federation: String,
    round: u64,
    row: SecretRow,
    weight: Option<u32>,
    /// What its noise comes from, where it adds some.
    noise: Seed,
    step: Step,
}

enum Step {
    /// Nothing was sent, or only what is of no use to anybody any more.
    Ready,
    Keys(AwaitingRoster, RingCode, Session),
    Shares(AwaitingShares, RingCode, Session),
    Masked(AwaitingSurvivors, Session),
    Signed(AwaitingSignatures, Session),
    /// All was revealed that ever will be.
    Over,
}

impl SecureClient {
    /// What a client trained, in reply to a request. `signing` is its long-term key, for a federation whose clients know each other's; `noise` must be its secret, and serve once.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        rounds: SecureRounds,
        client: usize,
        signing: Option<&SigningSecret>,
        algorithm: &dyn Algorithm,
        federation: &str,
        request: &Request,
        update: &Update,
        noise: Seed,
    ) -> Result<Self> {
        let signing = match signing.filter(|_| rounds.is_signed()) {
            Some(secret) => rounds.require_key(client, &secret.public_key()).map(|()| Some(secret.clone()))?,
            None if rounds.is_signed() => {
                return Err(Error::invalid("this client has no key to sign with", "make one with `fedeq node key --signing`"));
            }
            None => None,
        };
        let sent = update.weights.to_host()?;
        sent.ensure_like(&request.weights)?;
        let mut changes = flat(&sent.params);
        if !algorithm.sends_changes() {
            changes.iter_mut().zip(flat(&request.weights.params)).for_each(|(value, origin)| *value -= origin);
        }
        let statistics = flat(&sent.statistics).into_iter().map(f64::from).collect();
        let weight = rounds.settings.weight(update.samples, algorithm.weighting())?;
        let row = SecretRow { changes, statistics, samples: update.samples };
        let (federation, round) = (federation.to_owned(), request.round);
        Ok(Self { rounds, client, signing, federation, round, row, weight, noise, step: Step::Ready })
    }

    /// Whether it is about this round of this federation.
    pub fn is_of(&self, federation: &str, round: u64) -> bool {
        self.federation == federation && self.round == round
    }

    /// What it answers to a message of the server. A message that it refuses ends its part in the round, once its vector was sent under masks.
    pub fn answer(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        if let Some(opening) = Opening::read(message)? {
            return self.begin(opening);
        }
        let refused = |error: fedeq_secure::Error| Error::message(format!("secure aggregation: {error}"));
        match std::mem::replace(&mut self.step, Step::Over) {
            Step::Keys(state, code, session) => {
                let roster = KeyRoster::decode(message, &session).map_err(refused)?;
                let (state, dealt) = state.deal(&roster).map_err(refused)?;
                self.step = Step::Shares(state, code, session);
                Ok(dealt.encode())
            }
            Step::Shares(state, code, session) => {
                let delivery = ShareDelivery::decode(message, &session).map_err(refused)?;
                let (vector, _) = code.encode(&self.row, self.weight, self.noise)?;
                let (state, masked) = state.mask(&delivery, vector).map_err(refused)?;
                // What was masked is not needed again, and must not be.
                self.row = SecretRow { changes: Vec::new(), statistics: Vec::new(), samples: 0 };
                self.step = Step::Masked(state, session);
                Ok(masked.encode())
            }
            Step::Masked(state, session) => {
                let list = SurvivorList::decode(message, &session).map_err(refused)?;
                if self.signing.is_none() {
                    return Ok(state.reveal(&list).map_err(refused)?.encode());
                }
                let (state, signature) = state.sign(list).map_err(refused)?;
                self.step = Step::Signed(state, session);
                Ok(signature.encode())
            }
            Step::Signed(state, session) => {
                let signatures = SurvivorSignatures::decode(message, &session).map_err(refused)?;
                Ok(state.reveal(&signatures).map_err(refused)?.encode())
            }
            Step::Ready | Step::Over => {
                Err(Error::message("secure aggregation: the message belongs to no session of this client"))
            }
        }
    }

    /// Draws keys for a session; for another one only as long as nothing was masked.
    fn begin(&mut self, Opening { attempt, cohort, place }: Opening) -> Result<Vec<u8>> {
        if matches!(self.step, Step::Masked(..) | Step::Signed(..) | Step::Over) {
            return Err(Error::message("secure aggregation: what this client trained in this round was sent under masks before"));
        }
        let is_mine = if self.rounds.is_signed() { usize::from(place) == self.client } else { place < cohort };
        if !self.rounds.cohorts().contains(&usize::from(cohort)) || !is_mine {
            return Err(Error::message(format!(
                "secure aggregation: client `{place}` of `{cohort}`, which the plan does not have"
            )));
        }
        let of = SessionOf {
            federation: &self.federation,
            round: self.round,
            attempt,
            cohort: cohort.into(),
            parameters: self.row.changes.len(),
            statistics: self.row.statistics.len(),
        };
        let (session, code) = self.rounds.session(&of)?;
        let refused = |error: fedeq_secure::Error| Error::message(format!("secure aggregation: {error}"));
        let entropy = Entropy::from_system().map_err(refused)?;
        let identity = self.signing.as_ref().map_or(Identity::Unsigned, SigningSecret::identity);
        let (state, keys) = AwaitingRoster::begin(&session, place, identity, entropy).map_err(refused)?;
        self.step = Step::Keys(state, code, session);
        Ok(keys.encode())
    }
}
