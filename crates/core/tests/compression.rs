//! Federations whose messages are compressed: what is lost on the way is made up for, and whoever computes, keeps or resumes gives the same bytes.
mod common;
mod digits;

use std::path::Path;

use common::{Problem, thorough};
use digits::{Digits, brief};
use fedeq_core::{
    Algorithm, Asynchronous, ClientByClient, ClientStore, Codec, Compression, Engine, FedEq, InProcess, Method, Plan, Sampling,
    Server, ServerState, ServerStep, Traffic, Training, Transport, Weights, Workers, shared_part,
};
use fedeq_data::Seed;
use tempfile::TempDir;

const CODECS: [Codec; 5] = [Codec::Float16, Codec::Int8, Codec::Int4, Codec::TopK(0.25), Codec::LowRank(1)];

fn both(codec: Codec) -> Compression {
    Compression { up: Some(codec), down: Some(codec), ..Compression::default() }
}

/// What came of a federation.
struct Outcome {
    server: ServerState,
    traffic: Traffic,
    /// Everything that must not depend on who computes and keeps it.
    bytes: Vec<u8>,
}

/// A federation round by round, each in a transport of its own whose states come back from disk if there is a `folder`: as after a kill at every round.
struct Trial<'a> {
    engine: &'a dyn Engine,
    algorithm: &'a dyn Algorithm,
    training: &'a Training,
    compression: Option<Compression>,
    asynchronous: Option<Asynchronous>,
    first: Weights,
    rounds: u64,
    folder: Option<&'a Path>,
}

impl Trial<'_> {
    fn store(&self) -> ClientStore {
        let (first, dual) = (self.first.clone(), self.algorithm.initial_dual(&self.first, Seed::new(3)));
        let warm_start = self.training.warm_start;
        let fresh = move |_| fedeq_core::ClientState::fresh(first.clone(), dual.clone(), warm_start);
        ClientStore::new(self.folder.unwrap_or("nowhere".as_ref()).to_owned(), usize::MAX, fresh)
    }

    fn run(&self) -> Outcome {
        let clients = self.engine.clients();
        let fresh = ServerState::new(shared_part(self.algorithm, &self.first), clients, self.algorithm.initial_rho());
        let (mut server, mut traffic, mut store) = (fresh.clone(), Traffic::default(), self.store());
        for rounds in 1..=self.rounds {
            let sampling = Sampling { fraction: 0.5, ..Sampling::default() };
            let (compression, asynchronous) = (self.compression, self.asynchronous);
            let plan = Plan { rounds, sampling, evaluate_every: 0, compression, asynchronous, ..Plan::default() };
            let never = || false;
            let mut transport = InProcess::new(self.algorithm, self.training, self.engine, &mut store, Seed::new(1), &never)
                .compressing(plan.compression.as_ref());
            transport.resume_traffic(traffic);
            let mut federation =
                Server { algorithm: self.algorithm, plan: &plan, clients, transport: &mut transport, seed: Seed::new(2) };
            assert!(federation.run(&mut server, &mut []).expect("sound").is_continue());
            traffic = transport.traffic();
            if self.folder.is_some() {
                server = ServerState::from_bytes(&server.to_bytes().expect("writable"), rounds, &fresh).expect("readable");
                let files = store.flush().expect("written");
                store = self.store();
                store.restore(files);
            }
        }
        let mut bytes = server.to_bytes().expect("writable");
        bytes.extend(format!("{traffic:?}").into_bytes());
        for client in 0..clients {
            bytes.extend(store.get(client).expect("kept").to_bytes().expect("writable"));
        }
        Outcome { server, traffic, bytes }
    }
}

fn consensus() -> FedEq {
    FedEq { rho: 0.7, server_step: ServerStep::Consensus, ..FedEq::default() }
}

fn convex<'a>(engine: &'a dyn Engine, algorithm: &'a dyn Algorithm, training: &'a Training, rounds: u64) -> Trial<'a> {
    let first = Problem::start();
    Trial { engine, algorithm, training, compression: None, asynchronous: None, first, rounds, folder: None }
}

#[test]
fn the_consensus_step_reaches_the_optimum_by_every_codec_in_both_directions() {
    let (problem, method, training) = (Problem::new(3), consensus(), thorough(0.2));
    let engine = problem.engine();
    for codec in CODECS {
        for asynchronous in [None, Some(Asynchronous { slowest: 5.0, max_staleness: 20 })] {
            let trial = Trial { compression: Some(both(codec)), asynchronous, ..convex(&engine, &method, &training, 150) };
            let error = problem.error(&trial.run().server.weights);
            assert!(error < 2e-3, "{codec:?}, {asynchronous:?}: {error}");
        }
    }
}

#[test]
fn without_error_feedback_the_largest_numbers_alone_do_not() {
    let (problem, method, training) = (Problem::new(3), consensus(), thorough(0.2));
    let engine = problem.engine();
    let compression = Some(Compression { up: Some(Codec::TopK(0.25)), error_feedback: Some(false), ..Compression::default() });
    let lost = problem.error(&Trial { compression, ..convex(&engine, &method, &training, 150) }.run().server.weights);
    assert!(lost > 2e-2, "{lost}");
}

#[test]
fn every_method_that_sends_gives_the_same_bytes_on_one_thread_as_on_two_that_were_killed_after_every_round() {
    let training = brief();
    let digits = Digits::new("resnet-xs", training.clone());
    let compression =
        Some(Compression { up: Some(Codec::Int4), down: Some(Codec::TopK(0.1)), keep_rounds: Some(1), ..Compression::default() });
    for name in Method::NAMES.into_iter().filter(|name| *name != "local") {
        let (method, folder) = (Method::named(name).expect("known"), TempDir::new().expect("a folder"));
        let engines = [1, 2].map(|threads| ClientByClient::new(&digits, Workers::new(threads).expect("threads")));
        let [whole, killed] = [(&engines[0], None), (&engines[1], Some(folder.path()))].map(|(engine, folder)| {
            let (algorithm, first) = (method.algorithm(), digits.initial());
            Trial { engine, algorithm, training: &training, compression, asynchronous: None, first, rounds: 3, folder }.run()
        });
        assert!(whole.bytes == killed.bytes, "{name}");
        let shares_statistics = !method.algorithm().keeps_normalisations();
        assert!(whole.server.weights.is_finite(), "{name}");
        assert_eq!(whole.server.weights.statistics.iter().count() > 0, shares_statistics, "{name}");
    }
}

#[test]
fn bytes_shrink_as_the_codecs_say() {
    let training = brief();
    let digits = Digits::new("deq-resnet-xs", training.clone());
    let engine = ClientByClient::new(&digits, Workers::new(2).expect("threads"));
    let method = Method::named("fedrep").expect("known");
    let run = |compression| {
        let (algorithm, first) = (method.algorithm(), digits.initial());
        let trial = Trial {
            engine: &engine,
            algorithm,
            training: &training,
            compression,
            asynchronous: None,
            first,
            rounds: 2,
            folder: None,
        };
        trial.run().traffic
    };
    let whole = run(None);
    for (codec, least, most) in
        [(Codec::Float16, 1.9, 2.1), (Codec::Int8, 3.6, 4.2), (Codec::Int4, 6.5, 8.2), (Codec::TopK(0.01), 30.0, 200.0)]
    {
        let (up, down) = (run(Some(Compression { up: Some(codec), ..Compression::default() })), run(Some(both(codec))));
        assert_eq!(up.down, whole.down, "{codec:?}: one direction leaves the other as it is");
        for ratio in [whole.up as f64 / up.up as f64, whole.down as f64 / down.down as f64] {
            assert!((least..most).contains(&ratio), "{codec:?}: {ratio}");
        }
    }
}
