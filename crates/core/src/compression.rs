//! What is sent in fewer bytes: settings, what a client keeps for it, and both directions.
//!
//! **Up**, a client sends its [update](crate::Update) as a difference: to what it received where the method sends models, to nothing where it sends changes. What the codec loses of it the client keeps and adds
//! to its next update (error feedback): the sum of what arrives is the sum of what was to be sent, but for what is still kept. The server adds what arrives to the `theta` it sent.
//!
//! **Down**, the server sends the difference between its `theta` and what the client has: the first model, which both sides draw from the seed of the experiment, or what the client decoded when it last
//! took part. Both sides do the same arithmetic on the same bytes, so that the server knows what each client has, bit by bit; what the codec loses of a difference is in the next one. The server
//! keeps what a client has for so many rounds; to clients that come back later it sends the whole model.
use fedeq_data::Seed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::codec::{Codec, Reader};
use crate::error::{Error, Result};
use crate::frame;
use crate::message::Request;
use crate::params::{Array, Params};
use crate::weights::Weights;

/// How messages of training are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compression {
    /// From clients to the server; as 32-bit floats if left out.
    pub up: Option<Codec>,
    /// From the server to clients; as 32-bit floats if left out.
    pub down: Option<Codec>,
    /// Whether clients add to an update what the codec lost of those before; on if left out.
    pub error_feedback: Option<bool>,
    /// For how many rounds the server keeps what it sent to a client, 100 if left out. Whoever takes part later gets the whole model.
    pub keep_rounds: Option<u64>,
}

const KEEP_ROUNDS: u64 = 100;

impl Compression {
    /// Refuses settings that mean nothing.
    pub fn validate(&self, replacement: bool) -> Result<()> {
        let refuse = |problem: &str, remedy: &str| Err(Error::invalid(problem, remedy));
        if self.up.is_none() && self.down.is_none() {
            return refuse("`plan.compression` names no codec", "give `up`, `down` or both, or leave it out");
        }
        if self.error_feedback.is_some() && self.up.is_none() {
            return refuse(
                "`plan.compression.error_feedback` is about `up`, which is not given",
                "leave it out, or give `plan.compression.up`",
            );
        }
        if self.keep_rounds.is_some() && self.down.is_none() {
            return refuse(
                "`plan.compression.keep_rounds` is about `down`, which is not given",
                "leave it out, or give `plan.compression.down`",
            );
        }
        if replacement {
            // Both times it would add the same error to its update.
            return refuse(
                "`plan.compression` does not go with `plan.sampling.replacement`: a client may then send two updates at once",
                "leave one of them out",
            );
        }
        self.up.map_or(Ok(()), |codec| codec.validate("plan.compression.up"))?;
        self.down.map_or(Ok(()), |codec| codec.validate("plan.compression.down"))
    }

    fn feeds_back(&self) -> bool {
        self.error_feedback.unwrap_or(true)
    }

    /// Whether the server still keeps in a round what it sent in an earlier one.
    pub fn keeps(&self, sent: u64, round: u64) -> bool {
        round.saturating_sub(sent) <= self.keep_rounds.unwrap_or(KEEP_ROUNDS)
    }
}

/// What a client keeps for the sake of compression.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompressionState {
    /// What it has of the server's model; nothing before its first round, and where nothing is compressed on its way down.
    pub received: Option<ReceivedModel>,
    /// What codecs have lost of its updates and it has not yet sent; empty where nothing was lost.
    pub unsent: Params,
}

/// A model as a client received it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedModel {
    /// In which round.
    pub round: u64,
    /// What was decoded.
    pub weights: Weights,
}

/// Its names in the file of a client's state.
const RECEIVED: &str = "received";
const UNSENT: &str = "unsent";
const ROUND: &str = "received_round";

impl CompressionState {
    /// The bytes it takes in memory, to within small change.
    pub(crate) fn size(&self) -> usize {
        let received =
            self.received.as_ref().map_or(0, |received| received.weights.params.count() + received.weights.statistics.count());
        4 * (received + self.unsent.count())
    }

    /// All arrays for a file.
    pub(crate) fn packed(&self) -> Params {
        let mut packed = self.unsent.under(UNSENT);
        if let Some(received) = &self.received {
            packed.overwrite(&received.weights.packed().under(RECEIVED));
        }
        packed
    }

    /// What a file notes beside the arrays.
    pub(crate) fn note(&self) -> Option<(String, String)> {
        self.received.as_ref().map(|received| (ROUND.to_owned(), received.round.to_string()))
    }

    /// Reads what stands in a file; `own` is any model of the client.
    pub(crate) fn stored(all: &Params, round: impl FnOnce(&str) -> Result<Option<u64>>, own: &Weights) -> Result<Self> {
        let unsent = all.below(UNSENT);
        let params = own.beside(&own.params).params;
        ensure_part_of(&unsent, &params)?;
        let Some(round) = round(ROUND)? else { return Ok(Self { received: None, unsent }) };
        let weights = Weights::unpacked(&all.below(RECEIVED));
        ensure_part_of(&weights.params, &params)?;
        ensure_part_of(&weights.statistics, &own.statistics)?;
        Ok(Self { received: Some(ReceivedModel { round, weights }), unsent })
    }
}

/// Refuses arrays that a model has not, or has in another shape, and numbers that are not finite.
fn ensure_part_of(params: &Params, whole: &Params) -> Result<()> {
    params.ensure_like(&whole.filter(|name| params.get(name).is_some()))
}

/// An update on its way up.
pub(crate) struct CompressedUpdate {
    /// What is sent.
    pub(crate) bytes: Vec<u8>,
    /// What was lost of it.
    pub(crate) unsent: Params,
}

impl Compression {
    /// What a client sends instead of `sent`, having received `received`, with what it has not sent before.
    pub(crate) fn compress(
        &self,
        codec: Codec,
        sent: &Weights,
        base: Option<&Params>,
        unsent: &Params,
        seed: Seed,
    ) -> Result<CompressedUpdate> {
        let mut wanted = base.map_or_else(|| sent.params.clone(), |base| sent.params.minus(base));
        if !unsent.is_empty() {
            unsent.ensure_like(&wanted)?;
            wanted = wanted.plus(1.0, unsent);
        }
        if !wanted.is_finite() {
            return Err(Error::Diverged {
                problem: "the update is too large to be sent".into(),
                remedy: "lower `training.learning_rate`".into(),
            });
        }
        let bytes = codec.encode_weights(&wanted, &sent.statistics, seed);
        let arrives = codec.decode_weights(&bytes, sent)?;
        let unsent = if self.feeds_back() { wanted.minus(&arrives.params) } else { Params::default() };
        Ok(CompressedUpdate { bytes, unsent })
    }

    /// What the server makes of an update; `theta` is what it sent.
    pub fn decompress(&self, algorithm: &dyn Algorithm, bytes: &[u8], theta: &Weights) -> Result<Weights> {
        let codec = self.up.ok_or_else(|| Error::message("it is compressed, and is not expected to be"))?;
        let arrived = codec.decode_weights(bytes, theta)?;
        if algorithm.sends_changes() {
            return Ok(arrived);
        }
        Ok(Weights { params: theta.params.plus(1.0, &arrived.params), statistics: arrived.statistics })
    }
}

/// What a client is known to have when a message is written to it.
#[derive(Clone, Debug, PartialEq)]
pub enum KnownModel {
    /// The first model, which both sides draw from the experiment's seed.
    First(Weights),
    /// What it decoded in a round.
    Since(ReceivedModel),
    /// Nothing any more.
    Nothing,
}

impl KnownModel {
    /// What of a client's state the server still knows in a round; `first` is the first model.
    pub fn of(compression: &Compression, state: &CompressionState, round: u64, first: impl FnOnce() -> Weights) -> Self {
        match &state.received {
            None => Self::First(first()),
            Some(received) if compression.keeps(received.round, round) => Self::Since(received.clone()),
            Some(_) => Self::Nothing,
        }
    }

    /// The model itself, and the number that stands for it in a message: 0 for the first, otherwise one more than the round.
    fn base(&self) -> Option<(u64, &Weights)> {
        match self {
            Self::First(weights) => Some((0, weights)),
            Self::Since(received) => Some((received.round.saturating_add(1), &received.weights)),
            Self::Nothing => None,
        }
    }
}

/// What a message begins with after its header: whether it holds a whole model or a difference.
const WHOLE: u8 = 0;
const DIFFERENCE: u8 = 1;

/// The weights of a request, as they are sent to a client that has `known`.
pub fn encode_model(weights: &Weights, codec: Codec, known: &KnownModel, seed: Seed) -> Result<Vec<u8>> {
    let Weights { params, statistics } = weights;
    let mut body = Vec::new();
    match known.base() {
        Some((number, base)) => {
            base.params.ensure_like(params)?;
            body.push(DIFFERENCE);
            body.extend(number.to_le_bytes());
            body.extend(codec.encode_weights(&params.minus(&base.params), statistics, seed));
        }
        None => {
            body.push(WHOLE);
            for (_, array) in params.iter().chain(statistics.iter()) {
                array.values.iter().for_each(|value| body.extend(value.to_le_bytes()));
            }
        }
    }
    Ok(body)
}

/// Reads what [`encode_model`] wrote, as a client that has `known` does; `like` has the layout of what is shared.
pub fn decode_model(body: &[u8], codec: Codec, known: &KnownModel, like: &Weights) -> Result<Weights> {
    let mut reader = Reader::new(body);
    let [kind] = reader.array()?;
    let weights = match kind {
        WHOLE => {
            let (params, statistics) = (read_whole(&mut reader, &like.params)?, read_whole(&mut reader, &like.statistics)?);
            reader.end()?;
            Weights { params, statistics }
        }
        DIFFERENCE => {
            let number = u64::from_le_bytes(reader.array()?);
            let base = known.base().filter(|(known, _)| *known == number).map(|(_, base)| base);
            let base = base.ok_or_else(|| Error::message("it is a difference to a model that this client has not"))?;
            let difference = codec.decode_weights(reader.rest(), like)?;
            base.params.ensure_like(&like.params)?;
            Weights { params: base.params.plus(1.0, &difference.params), statistics: difference.statistics }
        }
        other => return Err(Error::message(format!("its weights are of the unknown kind `{other}`"))),
    };
    weights.ensure_like(like)?;
    Ok(weights)
}

/// The seed by which the server rounds what it sends to a client in a round; `seed` is the client's own.
pub fn sending_seed(seed: Seed, round: u64) -> Seed {
    seed.derive("compress down", [round])
}

/// The bytes of a request to a client that has `known`.
pub(crate) fn encode_request(request: &Request, codec: Codec, known: &KnownModel, seed: Seed) -> Result<Vec<u8>> {
    Ok(frame::write(&request.header()?, &encode_model(&request.weights, codec, known, seed)?))
}

/// Reads what [`encode_request`] wrote, at a client that has `known`; `like` has the layout of what is shared.
pub(crate) fn decode_request(bytes: &[u8], codec: Codec, known: &KnownModel, like: &Weights) -> Result<Request> {
    let (header, body) = frame::read(bytes)?;
    Request::from_parts(header, decode_model(body, codec, known, like)?)
}

fn read_whole(reader: &mut Reader<'_>, like: &Params) -> Result<Params> {
    let array = |(name, array): (&str, &Array)| {
        let words = reader.take(4 * array.values.len())?.chunks_exact(4);
        let values = words.map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
        Ok((name.to_owned(), Array::new(array.shape.clone(), values)))
    };
    like.iter().map(array).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregation::Aggregation;
    use crate::algorithm::Local;
    use crate::message::ClientTask;
    use crate::plan::Plan;
    use crate::privacy::Privacy;
    use crate::secure::SecureAggregation;

    const CODECS: [Codec; 5] = [Codec::Float16, Codec::Int8, Codec::Int4, Codec::TopK(0.05), Codec::LowRank(2)];

    /// Weights that look random, another draw each time.
    fn weights(draw: u64) -> Weights {
        let value =
            |at: u64| (((at + 1 + 1000 * draw).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 8_388_608.0 - 1.0) * 0.1;
        let array = |shape: &[usize], from: u64| {
            Array::new(shape.to_vec(), (0..shape.iter().product::<usize>() as u64).map(|at| value(from + at)).collect())
        };
        let params = [("a".to_owned(), array(&[12, 10], 0)), ("b".to_owned(), array(&[13], 200))];
        let statistics = [("mean".to_owned(), array(&[3], 300)), ("steps".to_owned(), Array::new(vec![1], vec![draw as f32]))];
        Weights { params: params.into_iter().collect(), statistics: statistics.into_iter().collect() }
    }

    #[test]
    fn of_all_updates_together_only_what_is_still_kept_is_lost() {
        for codec in CODECS {
            let compression = Compression { up: Some(codec), ..Compression::default() };
            let zeros = weights(0).params.zeros_like();
            let (mut unsent, mut wanted, mut arrived) = (Params::default(), zeros.clone(), zeros);
            for round in 0..60 {
                let (theta, sent) = (weights(round), weights(round + 7));
                let seed = Seed::new(round);
                let update = compression.compress(codec, &sent, Some(&theta.params), &unsent, seed).expect("sent");
                let arrives = codec.decode_weights(&update.bytes, &theta).expect("readable");
                (wanted, arrived) = (wanted.plus(1.0, &sent.params.minus(&theta.params)), arrived.plus(1.0, &arrives.params));
                unsent = update.unsent;
            }
            let lost = wanted.minus(&arrived.plus(1.0, &unsent)).norm();
            assert!(lost < 1e-5 * wanted.norm(), "{codec:?}: {lost}");
            let without = Compression { error_feedback: Some(false), ..compression };
            assert!(
                without.compress(codec, &weights(1), None, &Params::default(), Seed::new(1)).expect("sent").unsent.is_empty()
            );
        }
    }

    fn request(round: u64) -> Request {
        Request { task: ClientTask::Train, round, rounds: 50, rho: Some(0.1), weights: weights(round) }
    }

    #[test]
    fn a_server_that_keeps_what_it_sent_knows_what_each_client_has() {
        for codec in CODECS {
            let compression = Compression { down: Some(codec), keep_rounds: Some(4), ..Compression::default() };
            let (mut server, mut client) = (CompressionState::default(), CompressionState::default());
            let known = |state: &CompressionState, round: u64| KnownModel::of(&compression, state, round, || weights(99));
            for (round, is_whole) in [(0, false), (1, false), (5, false), (10, true), (11, false)] {
                let known_here = known(&server, round);
                assert_eq!(known_here == KnownModel::Nothing, is_whole);
                let bytes = encode_request(&request(round), codec, &known_here, Seed::new(round)).expect("written");
                let keep = |request: Request| CompressionState {
                    received: Some(ReceivedModel { round, weights: request.weights }),
                    ..CompressionState::default()
                };
                let read =
                    |state: &CompressionState| decode_request(&bytes, codec, &known(state, round), &weights(0)).expect("read");
                let arrived = read(&client);
                assert_eq!(arrived.header().expect("text"), request(round).header().expect("text"));
                if is_whole {
                    assert_eq!(arrived, request(round));
                }
                (server, client) = (keep(read(&server)), keep(arrived));
                assert_eq!(server, client, "{codec:?}");
            }
        }
    }

    #[test]
    fn a_difference_to_what_a_client_has_not_is_refused() {
        let codec = Codec::Int8;
        let since = |round: u64| KnownModel::Since(ReceivedModel { round, weights: weights(3) });
        let bytes = encode_request(&request(9), codec, &since(5), Seed::new(1)).expect("written");
        for other in [since(4), KnownModel::First(weights(3)), KnownModel::Nothing] {
            let error = decode_request(&bytes, codec, &other, &weights(0)).expect_err("refused").to_string();
            assert!(error.contains("a model that this client has not"), "{error}");
        }
        assert!(decode_request(&bytes, codec, &since(5), &weights(0)).is_ok());
        for (at, byte) in [(0, 0), (7, 255), (bytes.len() - 1, 255)] {
            let mut damaged = bytes.clone();
            damaged[at] ^= byte;
            let _ = decode_request(&damaged, codec, &since(5), &weights(0));
        }
        for len in 0..bytes.len() {
            assert!(decode_request(&bytes[..len], codec, &since(5), &weights(0)).is_err());
        }
    }

    #[test]
    fn settings_that_are_not_used_are_refused_by_name() {
        let both =
            Compression { up: Some(Codec::Int8), down: Some(Codec::Int8), error_feedback: Some(true), keep_rounds: Some(3) };
        assert!(both.validate(false).is_ok());
        for (wrong, replacement, words) in [
            (Compression::default(), false, "names no codec"),
            (Compression { up: None, ..both }, false, "`plan.compression.error_feedback`"),
            (Compression { down: None, ..both }, false, "`plan.compression.keep_rounds`"),
            (both, true, "`plan.sampling.replacement`"),
            (Compression { down: Some(Codec::TopK(2.0)), ..both }, false, "`plan.compression.down.top-k` is `2`"),
        ] {
            let error = wrong.validate(replacement).expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn whatever_is_about_messages_is_refused_where_none_are_sent() {
        let both = Compression { up: Some(Codec::Int8), ..Compression::default() };
        let private = Privacy { epsilon: Some(8.0), ..Privacy::default() };
        let robust = Aggregation { cap: Some(0.5), ..Aggregation::default() };
        for (plan, name) in [
            (Plan { compression: Some(both), ..Plan::default() }, "`plan.compression`"),
            (Plan { aggregation: robust, ..Plan::default() }, "`plan.aggregation`"),
            (Plan { privacy: Some(private), ..Plan::default() }, "`plan.privacy`"),
            (Plan { secure_aggregation: Some(SecureAggregation::default()), ..Plan::default() }, "`plan.secure_aggregation`"),
        ] {
            let error = plan.validate(&Local::default()).expect_err("refused").to_string();
            assert_eq!(error, format!("{name} does not go with a method that sends nothing"));
        }
    }
}
