//! What `fuzz/` starts its search from: replies as a node sends them, and what codecs write.
#[path = "../../../fuzz/read/compressed.rs"]
mod compressed;
#[path = "../../../fuzz/read/reply.rs"]
mod reply;

use std::path::Path;

use fedeq_core::{
    Array, ClientTask, Codec, FixedPoints, KnownModel, PhaseBytes, PhaseSeconds, Reply, Request, Score, Scores, SolveTally,
    Theory, TrainStats, Update, Weights, encode_model,
};
use fedeq_data::Seed;
use fedeq_flower::npy;
use fedeq_flower::parts::RequestParts;
use reply::{Parts, accepted, choice, sent_out};

/// Weights a step away from those that were sent out.
fn trained() -> Weights {
    let Weights { params, statistics } = sent_out();
    let moved = |value: f32| value + 0.25;
    Weights { params: params.map(moved), statistics: statistics.map(moved) }
}

fn stats() -> TrainStats {
    TrainStats {
        steps: 12,
        loss: 0.75,
        solves: SolveTally { samples: 40, steps: 300, residual: 1e-4, unconverged: 1, not_finite: 0, warm: 20 },
        seconds: PhaseSeconds { solve: 0.5, backward: 0.25, update: 0.125 },
        memory: PhaseBytes { solve: 4096, backward: 8192, update: 1024 },
        ..TrainStats::default()
    }
}

fn update(weights: Weights) -> Reply {
    Reply::Update(Update { weights: weights.into(), samples: 40, gap: 0.9, stats: stats() })
}

fn scores(theory: bool) -> Reply {
    let score = Score { predictions: 10, correct: 7, loss: 0.5 };
    let theory = theory.then_some(Theory { lagrangian: 0.5, stationarity: 0.25, head_gradient: 0.125 });
    let found = FixedPoints { samples: 4, distance: 1e-3, radius: 0.5, largest_radius: 0.75, ..FixedPoints::default() };
    Reply::Scores(Box::new(Scores {
        local: score,
        shared: Some(score),
        validation: Some(score),
        participations: 3,
        gap: 0.9,
        dual_norm: 0.1,
        theory,
        fixed_points: Some(found),
        ..Scores::default()
    }))
}

/// An input of the target.
fn input(parts: &Parts<'_>) -> Vec<u8> {
    let length = |text: &str| u16::try_from(text.len()).expect("short").to_le_bytes();
    let (header, layout) = (length(parts.header), length(parts.layout));
    [&[parts.choice][..], &header, &layout, parts.header.as_bytes(), parts.layout.as_bytes(), parts.packed].concat()
}

/// A reply without weights.
fn plain(task: ClientTask, reply: &Reply) -> Vec<u8> {
    let header = reply.header().expect("writable");
    input(&Parts { choice: choice(task, None), header: &header, layout: "", packed: &[] })
}

/// An update with its weights as they are.
fn whole() -> Vec<u8> {
    let header = update(Weights::default()).header().expect("writable");
    // A node packs the weights of a reply as a server packs those of a request.
    let request = Request { task: ClientTask::Train, round: 3, rounds: 9, rho: None, weights: trained() };
    let RequestParts { layout, packed, .. } = RequestParts::of(&request, None).expect("writable");
    input(&Parts { choice: choice(ClientTask::Train, None), header: &header, layout: &layout, packed: &packed })
}

/// An update as a codec writes it.
fn compressed_update(codec: Codec) -> Vec<u8> {
    let header = update(Weights::default()).header().expect("writable");
    // What stands before it says that it is a difference, and to which model.
    let model = encode_model(&trained(), codec, &KnownModel::First(sent_out()), Seed::new(1)).expect("writable");
    let packed = npy::write_bytes(&model[9..]);
    input(&Parts { choice: choice(ClientTask::Train, Some(codec)), header: &header, layout: "", packed: &packed })
}

fn replies() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("update", whole()),
        ("update_int8", compressed_update(Codec::Int8)),
        ("update_top_k", compressed_update(Codec::TopK(0.5))),
        ("update_low_rank", compressed_update(Codec::LowRank(1))),
        ("scores", plain(ClientTask::Evaluate, &scores(false))),
        ("scores_theory", plain(ClientTask::Measure, &scores(true))),
        ("done", plain(ClientTask::Finish, &Reply::Done(stats()))),
    ]
}

/// What each codec makes of numbers, as an update and within a model; and a reply.
fn compressed_numbers() -> Vec<(String, Vec<u8>)> {
    let numbers = Weights { params: compressed::layout().map(|_| 0.5), ..Weights::default() };
    let first = KnownModel::First(Weights { params: compressed::layout(), ..Weights::default() });
    let mut all = Vec::new();
    for (choice, codec) in compressed::CODECS.into_iter().enumerate() {
        let chosen = |bytes: Vec<u8>| [vec![choice as u8], bytes].concat();
        all.push((format!("update_{choice}"), chosen(codec.encode(&numbers.params, Seed::new(1)))));
        all.push((format!("model_{choice}"), chosen(encode_model(&numbers, codec, &first, Seed::new(1)).expect("writable"))));
    }
    let one =
        Weights { params: [("a".to_owned(), Array::new(vec![2], vec![0.5, 1.0]))].into_iter().collect(), ..Weights::default() };
    all.push(("reply".into(), [vec![0], update(one).encode().expect("writable")].concat()));
    all
}

/// What stands in the folder of seeds is what is made here.
fn are_committed(target: &str, name: &str, bytes: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let file = folder.join(name);
    if std::env::var_os("UPDATE_FUZZ_SEEDS").is_some() {
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(&file, bytes).expect("a file");
    }
    let committed = std::fs::read(&file).expect("there");
    assert_eq!(committed, bytes, "`{name}` is something else now: UPDATE_FUZZ_SEEDS=1 writes it");
}

#[test]
fn what_fuzzing_of_replies_starts_from_is_read_and_accepted() {
    for (name, bytes) in replies() {
        assert!(accepted(&bytes).is_some(), "{name}");
        are_committed("flower_reply", name, &bytes);
    }
}

#[test]
fn what_fuzzing_of_codecs_starts_from_is_read() {
    for (name, bytes) in compressed_numbers() {
        assert_eq!(compressed::readings(&bytes), 1, "{name}");
        are_committed("codec", &name, &bytes);
    }
}
