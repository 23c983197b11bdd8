//! What the results show, in words.
use super::entry::Entry;
use crate::number::{count, percent};

/// A few sentences on the results, whatever these are.
pub fn verdict(entries: &[Entry]) -> Vec<String> {
    let Some(fedeq) = entries.iter().find(|entry| entry.summary.method == "fedeq") else { return Vec::new() };
    let others: Vec<&Entry> = entries.iter().filter(|entry| entry.summary.method != "fedeq").collect();
    let mut sentences = vec![on_accuracy(fedeq, &others)];
    sentences.extend(on_size(fedeq, &others));
    sentences.push(format!(
        "This is one seed on a small task: `fedeq demo --seed {}` repeats it with another.",
        fedeq.summary.seed.wrapping_add(1)
    ));
    sentences
}

fn on_accuracy(fedeq: &Entry, others: &[&Entry]) -> String {
    let mut ranked = others.to_vec();
    ranked.sort_by(|a, b| b.summary.accuracy().total_cmp(&a.summary.accuracy()));
    let leads = ranked.iter().all(|other| fedeq.summary.accuracy() > other.summary.accuracy());
    let place = if leads { "the highest accuracy" } else { "not the highest accuracy" };
    let own = percent(fedeq.summary.accuracy());
    let against: Vec<String> = ranked.iter().map(|other| compared(fedeq, other)).collect();
    format!("FeDEQ has {place}: {own}, {}.", against.join(", "))
}

/// `6.6 points above FedAvg`.
fn compared(fedeq: &Entry, other: &Entry) -> String {
    let points = 100.0 * (fedeq.summary.accuracy() - other.summary.accuracy());
    let side = if points >= 0.0 { "above" } else { "below" };
    format!("{:.1} points {side} {}", points.abs(), other.name())
}

/// How much less is shared than by whoever shares most.
fn on_size(fedeq: &Entry, others: &[&Entry]) -> Option<String> {
    let largest = others.iter().max_by_key(|entry| entry.summary.shared_parameters)?;
    let (own, most) = (fedeq.summary.shared_parameters, largest.summary.shared_parameters);
    if own == 0 || most == 0 {
        return None;
    }
    let ratio = most as f64 / own as f64;
    Some(format!(
        "It shares {} parameters, an equilibrium layer; {} shares {}, {ratio:.1} times as many, and sends accordingly more.",
        count(own),
        largest.name(),
        count(most)
    ))
}
