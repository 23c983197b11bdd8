//! What a session costs: bytes and seconds of one client and of the server, by the number of clients and the length of a vector.
//!
//! Seconds are those of the processor where the system tells them (Linux), so that other programs do not count; of a clock elsewhere.
//!
//! `cargo run --release -p fedeq-secure --example cost [NETWORKS...] [CLIENTS...]`, all of them if left out
#![allow(clippy::print_stdout)]
use std::collections::BTreeMap;
use std::time::Instant;

use fedeq_secure::in_memory::{DropOut, SessionClient, SessionOutcome, run};
use fedeq_secure::{Entropy, Identity, Quantisation, Registry, Session, SessionSettings, Trust};

/// Vectors: the shared parts of networks on FEMNIST (`mlp` with 128 hidden units; the others as in crates/models/tests/counts.rs).
const VECTORS: [(&str, usize); 3] = [("MLP", 100_480), ("DEQ-MLP", 729_216), ("DEQ-ResNet-M", 2_231_296)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut cohorts, names): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.parse::<u16>().is_ok());
    if cohorts.is_empty() {
        cohorts = ["10", "50", "100"].map(str::to_owned).to_vec();
    }
    let cohorts: Vec<u16> = cohorts.iter().map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    if let Some(unknown) = names.iter().find(|name| VECTORS.iter().all(|(known, _)| known != name)) {
        return Err(format!("there is no network `{unknown}`").into());
    }
    println!("| vector | numbers | clients | drop-outs | bits | plain up, MB | up, MB | down, MB | client, s | server, s |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, length) in VECTORS.into_iter().filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name)) {
        for &clients in &cohorts {
            for dropped in [0, clients / 10] {
                measure(name, length, clients, dropped)?;
            }
        }
    }
    println!("\nBytes by message, {} clients with a registry, {} numbers, per client:", cohorts[0], VECTORS[0].1);
    let (session, outcome) = session(VECTORS[0].1, cohorts[0], 0, true)?;
    for (kind, count) in outcome.counts.kinds() {
        println!("  {:<24} {:>10}", kind.name(), count.bytes / u64::from(session.settings().clients));
    }
    Ok(())
}

/// Seconds that this thread has been on a processor.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<u64>().ok()? as f64 / 1e9)
}

fn measure(name: &str, length: usize, clients: u16, dropped: u16) -> Result<(), fedeq_secure::Error> {
    let (start, before) = (Instant::now(), processor_seconds());
    let (session, outcome) = session(length, clients, dropped, false)?;
    let (clients_time, server_time) = (outcome.clients_time.as_secs_f64(), outcome.server_time.as_secs_f64());
    let busy = before.zip(processor_seconds()).map_or(1.0, |(before, after)| (after - before) / start.elapsed().as_secs_f64());
    let per_client = |bytes: u64| bytes as f64 / f64::from(clients) / 1e6;
    println!(
        "| {name} | {length} | {clients} | {dropped} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} |",
        session.settings().ring_bits,
        4.0 * length as f64 / 1e6,
        per_client(outcome.counts.sent_by_clients()),
        per_client(outcome.counts.sent_by_server()),
        busy * clients_time / f64::from(clients),
        busy * server_time,
    );
    Ok(())
}

/// A whole session, from which the first clients drop out before they send their vectors: the dearest moment for the server.
fn session(length: usize, clients: u16, dropped: u16, registry: bool) -> Result<(Session, SessionOutcome), fedeq_secure::Error> {
    let quantisation = Quantisation { clip: 1.0, precision_bits: 16, clients, largest_weight: None };
    let identity = |client: u16| {
        let mut secret = [7; 32];
        secret[..2].copy_from_slice(&client.to_le_bytes());
        if registry { Identity::signed(&secret) } else { Identity::Unsigned }
    };
    let keys: BTreeMap<u16, [u8; 32]> =
        (0..clients).filter_map(|client| Some((client, identity(client).public_key()?))).collect();
    let session = Session::new(SessionSettings {
        nonce: [0; 32],
        clients,
        threshold: SessionSettings::usual_threshold(clients),
        minimum: 3,
        length: length as u32,
        ring_bits: quantisation.ring_bits()?,
        neighbours: None,
        trust: if registry { Trust::Registry(Registry::new(keys)?) } else { Trust::HonestButCurious },
    })?;
    let values: Vec<f32> = (0..length).map(|index| (index as f32).sin()).collect();
    let vector = quantisation.encode(&values, &[], None)?.vector;
    let client = |client: u16| {
        let leaves = if client < dropped { DropOut::BeforeInput } else { DropOut::Never };
        Ok(SessionClient { client, identity: identity(client), entropy: Entropy::from_system()?, vector: vector.clone(), leaves })
    };
    let outcome = run(&session, (0..clients).map(client).collect::<fedeq_secure::Result<_>>()?)?;
    Ok((session, outcome))
}
