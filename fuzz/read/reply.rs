//! The reply of a node, from its bytes to what the server takes a mean of.
#![allow(dead_code, unreachable_pub, reason = "a target and a test each use a part")]
use fedeq_core::{
    Acceptance, Algorithm, Array, ClientTask, Codec, Compression, Error, FedAvg, FedEq, Limits, Reply, Request, Result,
    ServerStep, Weights,
};
use fedeq_flower::parts::{LONGEST_TEXT, read_payload, read_weights, require_short};

/// No update is farther from what was sent out.
pub const DISTANCE: f64 = 1e3;
/// The most bytes in place of weights.
const LARGEST_PAYLOAD: usize = 1 << 12;

/// What a server asked for: the methods differ in what they measure distances from, and in what they want to know of an evaluation.
pub const TASKS: [ClientTask; 6] =
    [ClientTask::Train, ClientTask::Evaluate, ClientTask::Measure, ClientTask::Finish, ClientTask::Adopt, ClientTask::Aggregate];
/// How an update is expected.
pub const CODECS: [Option<Codec>; 4] = [None, Some(Codec::Int8), Some(Codec::TopK(0.5)), Some(Codec::LowRank(1))];

/// What a message of the target holds: what was asked for, by a number, and the three parts of the reply.
pub struct Parts<'a> {
    pub choice: u8,
    pub header: &'a str,
    pub layout: &'a str,
    pub packed: &'a [u8],
}

impl<'a> Parts<'a> {
    /// The choice in one byte; the lengths of header and layout in two bytes each, the least first; then the three, the last one without a length.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let [choice, header_low, header_high, layout_low, layout_high, rest @ ..] = bytes else { return None };
        let length = |low: &u8, high: &u8| usize::from(u16::from_le_bytes([*low, *high]));
        let (header, rest) = rest.split_at(length(header_low, header_high).min(rest.len()));
        let (layout, packed) = rest.split_at(length(layout_low, layout_high).min(rest.len()));
        let (header, layout) = (std::str::from_utf8(header).ok()?, std::str::from_utf8(layout).ok()?);
        Some(Self { choice: *choice, header, layout, packed })
    }
}

/// What the server sent out: a matrix, a bias, and the statistics of a normalisation.
pub fn sent_out() -> Weights {
    let array = |name: &str, shape: &[usize], value: f32| {
        (name.to_owned(), Array::new(shape.to_vec(), vec![value; shape.iter().product()]))
    };
    Weights {
        params: [array("a", &[2, 3], 0.5), array("b", &[3], 0.0)].into_iter().collect(),
        statistics: [array("norm.mean", &[3], 0.0), array("norm.variance", &[3], 1.0)].into_iter().collect(),
    }
}

/// A method, what it asked for, and how it wants its updates.
fn asked(choice: u8) -> (Box<dyn Algorithm>, ClientTask, Option<Codec>) {
    let choice = usize::from(choice);
    let (method, codec) = (choice / TASKS.len() % 3, choice / (3 * TASKS.len()) % CODECS.len());
    let algorithm: Box<dyn Algorithm> = match method {
        0 => Box::new(FedEq::default()),
        1 => Box::new(FedEq { server_step: ServerStep::Consensus, ..FedEq::default() }),
        _ => Box::new(FedAvg::default()),
    };
    (algorithm, TASKS[choice % TASKS.len()], CODECS[codec])
}

/// The number that stands for a task of FeDEQ, with updates by one of the codecs.
pub fn choice(task: ClientTask, codec: Option<Codec>) -> u8 {
    let place = |found: Option<usize>| found.expect("one of those that are tried");
    let task = place(TASKS.iter().position(|other| *other == task));
    let codec = place(CODECS.iter().position(|other| *other == codec));
    (task + 3 * TASKS.len() * codec) as u8
}

/// The reply as the server reads it.
fn read(parts: &Parts<'_>, request: &Request, algorithm: &dyn Algorithm, codec: Option<Codec>) -> Result<Reply> {
    let Parts { header, layout, packed, .. } = parts;
    let refused = |error: fedeq_flower::Error| Error::invalid(error.to_string(), "send what was asked for");
    require_short("header", header).map_err(refused)?;
    if packed.is_empty() {
        return Reply::from_parts(header, Weights::default());
    }
    let Some(codec) = codec else {
        let weights = read_weights(packed, layout, &request.weights).map_err(refused)?;
        assert!(weights.params.count() + weights.statistics.count() < LONGEST_TEXT, "no larger than what was sent out");
        return Reply::from_parts(header, weights);
    };
    let payload = read_payload(packed, LARGEST_PAYLOAD).map_err(refused)?;
    assert!(payload.len() < LARGEST_PAYLOAD + (1 << 16));
    let compression = Compression { up: Some(codec), ..Compression::default() };
    let reply = Reply::from_compressed(header, payload)?;
    let weights = compression.decompress(algorithm, reply.compressed().unwrap_or_default(), &request.weights)?;
    Ok(reply.with_weights(weights))
}

/// What the server accepts of these bytes; nothing where they are refused.
pub fn accepted(bytes: &[u8]) -> Option<Reply> {
    let parts = Parts::of(bytes)?;
    let (algorithm, task, codec) = asked(parts.choice);
    let request = Request { task, round: 3, rounds: 9, rho: algorithm.initial_rho(), weights: sent_out() };
    let reply = read(&parts, &request, &*algorithm, codec).ok()?;
    let limits = Some(Limits { distance: DISTANCE, fixed_points: true });
    Acceptance { quorum: 0.5, limits }.check(&reply, &request, &*algorithm).ok()?;
    expect(&reply, &request, &*algorithm);
    Some(reply)
}

/// What holds of everything that is accepted, said once more and in other words than the server's.
fn expect(reply: &Reply, request: &Request, algorithm: &dyn Algorithm) {
    let written = reply.encode().expect("what was accepted can be written");
    Reply::decode(&written).expect("what was written can be read");
    match (request.task, reply) {
        (ClientTask::Train, Reply::Update(update)) => {
            let theta = &request.weights.params;
            let weights = update.weights.to_host().expect("on the host");
            let mut square = 0.0;
            for (name, array) in weights.params.iter() {
                let origin = theta.get(name).expect("no other name");
                assert_eq!(array.shape, origin.shape);
                for (value, origin) in array.values.iter().zip(origin.values.iter()) {
                    assert!(value.is_finite());
                    let origin = if algorithm.sends_changes() { 0.0 } else { f64::from(*origin) };
                    square += (f64::from(*value) - origin).powi(2);
                }
            }
            assert_eq!(weights.params.iter().count(), theta.iter().count(), "no parameter is missing");
            assert!(square.sqrt() <= DISTANCE * 1.001, "it is near what was sent out");
            assert!(weights.statistics.get("norm.variance").expect("there").values.iter().all(|value| *value >= 0.0));
            assert!(update.samples > 0 && update.gap >= 0.0 && update.gap.is_finite());
            assert!(update.stats.loss >= 0.0 && update.stats.loss.is_finite());
        }
        (ClientTask::Evaluate | ClientTask::Measure, Reply::Scores(scores)) => {
            assert_eq!(scores.theory.is_some(), request.task == ClientTask::Measure);
            for score in [Some(&scores.local), scores.shared.as_ref(), scores.validation.as_ref()].into_iter().flatten() {
                assert!(score.correct <= score.predictions && score.loss >= 0.0 && score.loss.is_finite());
            }
        }
        (ClientTask::Finish | ClientTask::Adopt, Reply::Done(_)) => {}
        (task, reply) => panic!("asked to {task:?}, {reply:?} was accepted"),
    }
}
