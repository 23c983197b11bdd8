//! Clients elsewhere, as the server's transport.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use fedeq_core::{
    Acceptance, Algorithm, ClientTask, Compression, Dropped, Error, Reply, Request, Result, SecureMean, Traffic, TrainStats,
    Transport, Weights, encoded_len, framed_len,
};
use fedeq_data::Seed;
use fedeq_models::Part;
use rayon::prelude::*;

use super::super::checkpoint::StateKeeper;
use super::link::{ClientLink, LinkContext, Outgoing, ReceivedReply};
use super::models::SentModels;
use super::replies::ReplyLog;
use super::sessions::Sessions;

/// What became of a request: the reply, and the bytes that the request took.
struct Delivery {
    received: std::result::Result<ReceivedReply, Dropped>,
    down: u64,
    /// What arrived at the client, where that is not what the server has.
    arrived: Option<Weights>,
}

/// Clients elsewhere.
pub struct Remote<'a> {
    pub(super) link: &'a mut dyn ClientLink,
    pub(super) algorithm: &'a dyn Algorithm,
    pub(super) acceptance: Acceptance,
    pub(super) context: LinkContext,
    pub(super) interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Whether clients have anything to do when training is over; if not, no client is asked.
    pub(super) finishes: bool,
    /// Replies since the last checkpoint, where clients may have been asked too often since to repeat them.
    pub(super) replies: Option<ReplyLog>,
    /// How messages of training are compressed, if they are.
    pub(super) compression: Option<&'a Compression>,
    /// What clients have, where differences are sent to them.
    pub(super) models: Option<SentModels>,
    /// Whether clients send single changes with noise in them, which they measure from what they received.
    pub(super) noise_in_clear: bool,
    /// What noise comes from, where models are made private.
    pub(super) secret: Option<Seed>,
    /// Sessions of secure aggregation, where the server learns only sums.
    pub(super) sessions: Option<Sessions>,
    pub(super) traffic: Traffic,
    pub(super) seconds: f64,
}

impl Remote<'_> {
    /// Sends requests, and gives replies in their order.
    fn carried(&mut self, requests: &[(usize, &Request)]) -> Result<Vec<Delivery>> {
        let task = requests.first().map(|(_, request)| request.task);
        let models = self.models.as_ref().filter(|_| task == Some(ClientTask::Train));
        let begun = Instant::now();
        let encode = |(client, request): &(usize, &Request)| models.map(|models| models.encode(*client, request)).transpose();
        let encoded = requests.par_iter().map(encode).collect::<Result<Vec<_>>>()?;
        self.seconds += begun.elapsed().as_secs_f64();
        let outgoing: Vec<Outgoing<'_>> = requests
            .iter()
            .zip(&encoded)
            .map(|(&(client, request), encoded)| Outgoing {
                client,
                request,
                payload: encoded.as_ref().map(|model| &*model.body),
            })
            .collect();
        let received = self.received(&outgoing)?;
        let mut deliveries = Vec::with_capacity(received.len());
        for ((Outgoing { client, request, payload }, received), encoded) in outgoing.iter().zip(received).zip(&encoded) {
            let arrived = encoded.as_ref().map(|encoded| &encoded.arrives);
            if let (Some(models), Some(arrived)) = (&self.models, arrived) {
                models.note(*client, request.round, received.is_ok().then_some(arrived))?;
            }
            let down = match payload {
                Some(payload) => framed_len(&request.header()?, payload.len()),
                None => encoded_len(request.header()?, &request.weights),
            };
            deliveries.push(Delivery { received, down, arrived: arrived.filter(|_| self.noise_in_clear).cloned() });
        }
        Ok(deliveries)
    }

    /// Replies in the order of the requests: those that are on disk, and those that come now.
    fn received(&mut self, requests: &[Outgoing<'_>]) -> Result<Vec<std::result::Result<ReceivedReply, Dropped>>> {
        let Some(log) = &self.replies else { return self.link.exchange(requests, &self.context) };
        let key = |outgoing: &Outgoing<'_>| ReplyLog::key(outgoing.client, outgoing.request);
        let keys = requests.iter().map(key).collect::<Result<Vec<_>>>()?;
        let mut known: Vec<Option<ReceivedReply>> = keys.iter().map(|key| log.read(key)).collect();
        let missing: Vec<usize> = (0..requests.len()).filter(|at| known[*at].is_none()).collect();
        let asked: Vec<Outgoing<'_>> = missing.iter().map(|at| requests[*at]).collect();
        let came = if asked.is_empty() { Vec::new() } else { self.link.exchange(&asked, &self.context)? };
        let mut came: BTreeMap<usize, _> = missing.into_iter().zip(came).collect();
        let mut all = Vec::with_capacity(requests.len());
        for (at, key) in keys.iter().enumerate() {
            let reply = match (known[at].take(), came.remove(&at)) {
                (Some(known), _) => Ok(known),
                (None, Some(came)) => came,
                (None, None) => Err(Dropped::new(requests[at].client, "no reply")),
            };
            if let Ok(reply) = &reply {
                log.write(key, reply)?;
            }
            all.push(reply);
        }
        Ok(all)
    }

    /// A reply as numbers.
    fn read(&self, received: ReceivedReply, request: &Request) -> Result<Reply> {
        let ReceivedReply { header, weights, payload } = received;
        match (payload, self.compression.filter(|compression| compression.up.is_some())) {
            (Some(payload), Some(compression)) => {
                let reply = Reply::from_compressed(&header, payload)?;
                let bytes = reply.compressed().unwrap_or_default();
                let weights = compression.decompress(self.algorithm, bytes, &request.weights)?;
                Ok(reply.with_weights(weights))
            }
            (Some(_), None) => Err(Error::message("its weights are compressed, and are not expected to be")),
            (None, _) if self.sessions.is_some() => {
                let has_weights = weights != Weights::default();
                match Reply::from_parts(&header, weights)? {
                    Reply::Update(_) if has_weights => {
                        Err(Error::message("it has weights, of which the server wants only a sum"))
                    }
                    reply => Ok(reply.masked()),
                }
            }
            (None, compression) => match Reply::from_parts(&header, weights)? {
                Reply::Update(_) if compression.is_some() => Err(Error::message("its weights are not compressed")),
                reply => Ok(reply),
            },
        }
    }

    /// Whether messages to a task are counted: those of training, unless clients are only told that it is their turn.
    fn counts(&self, task: ClientTask) -> bool {
        task == ClientTask::Train && (self.algorithm.shares(Part::Shared) || self.algorithm.shares(Part::Personal))
    }
}

impl Transport for Remote<'_> {
    fn exchange(&mut self, requests: &[(usize, &Request)]) -> Result<Vec<std::result::Result<Reply, Dropped>>> {
        if self.context.stops(&self.interrupted) {
            return Err(Error::Interrupted);
        }
        let Some((_, first)) = requests.first() else { return Ok(Vec::new()) };
        let task = first.task;
        if task == ClientTask::Finish && !self.finishes {
            return Ok(requests.iter().map(|_| Ok(Reply::Done(TrainStats::default()))).collect());
        }
        self.context.round = self.context.progress.activity().round;
        self.context.progress.asked(task, &requests.iter().map(|(client, _)| *client).collect::<Vec<_>>());
        let deliveries = self.carried(requests)?;
        let begun = Instant::now();
        let counts = self.counts(task);
        let mut replies = Vec::with_capacity(deliveries.len());
        for ((client, request), Delivery { received, down, arrived }) in requests.iter().zip(deliveries) {
            if counts {
                self.traffic.down += down;
            }
            let reply = received.and_then(|received| {
                if counts {
                    self.traffic.up += received.len();
                }
                let rebased = |reply: Reply| match &arrived {
                    Some(arrived) => reply.rebased(self.algorithm, &arrived.params, &request.weights.params),
                    None => Ok(reply),
                };
                let read = self.read(received, request).and_then(rebased);
                read.map_err(|error| Dropped::new(*client, &error.to_string()))
            });
            replies.push(reply);
        }
        self.seconds += begun.elapsed().as_secs_f64();
        Ok(replies)
    }

    fn acceptance(&self) -> Acceptance {
        self.acceptance
    }

    fn secret(&self) -> Option<Seed> {
        self.secret
    }

    fn secure_mean(&mut self, request: &Request, clients: &[usize]) -> Result<Option<SecureMean>> {
        self.summed(request, clients)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }
}

/// The clients keep their states themselves; only replies are kept until the server's state is.
impl StateKeeper for Remote<'_> {
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn roll_back(&mut self) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<BTreeMap<usize, String>> {
        Ok(BTreeMap::new())
    }

    /// Called when a checkpoint is on disk.
    fn remove_all_but(&mut self, _: &BTreeSet<String>) -> Result<()> {
        Ok(())
    }
}
