//! What the results show, in words.
use super::entry::Entry;
use crate::number::{count, percent};

/// A few sentences on the results, whatever these are.
pub fn verdict(entries: &[Entry]) -> Vec<String> {
    let Some(fedeq) = entries.iter().find(|entry| entry.summary.method == "fedeq") else { return Vec::new() };
    let others: Vec<&Entry> = entries.iter().filter(|entry| entry.summary.method != "fedeq").collect();
    let mut sentences = vec![on_accuracy(fedeq, &others)];
    sentences.extend(on_worst(fedeq, &others));
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

/// How those fare who fare worst.
fn on_worst(fedeq: &Entry, others: &[&Entry]) -> Option<String> {
    let worst = |entry: &Entry| entry.summary.quality().worst_decile;
    let best = others.iter().max_by(|a, b| worst(a).total_cmp(&worst(b)))?;
    let (own, theirs) = (percent(worst(fedeq)), percent(worst(best)));
    Some(format!("Its worst tenth of clients has {own}; of the others {} does best there, with {theirs}.", best.name()))
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

#[cfg(test)]
mod tests {
    use fedeq_core::{Evaluation, Quality, View};

    use super::*;
    use crate::preset::Preset;
    use crate::run::{Resources, Summary};

    fn entry(method: &str, accuracy: f64, shared_parameters: usize) -> Entry {
        let local = Quality { mean: accuracy, worst_decile: accuracy - 0.1, ..Quality::default() };
        let summary = Summary {
            method: method.into(),
            data: "digits".into(),
            model: "mlp".into(),
            preset: Preset::Recommended,
            seed: 4,
            rounds: 1,
            clients: 30,
            shared_parameters,
            personal_parameters: 10,
            headline: View::Local,
            evaluation: Evaluation { local, ..Evaluation::default() },
            unseen: None,
            solves: Default::default(),
            resources: Resources::default(),
        };
        Entry { summary }
    }

    #[test]
    fn the_verdict_says_who_leads_and_by_how_much() {
        let sentences = verdict(&[entry("local", 0.8, 0), entry("fedavg", 0.85, 300), entry("fedeq", 0.9, 100)]);
        assert_eq!(sentences[0], "FeDEQ has the highest accuracy: 90.0 %, 5.0 points above FedAvg, 10.0 points above Local.");
        assert_eq!(sentences[1], "Its worst tenth of clients has 80.0 %; of the others FedAvg does best there, with 75.0 %.");
        assert!(sentences[2].contains("FedAvg shares 300, 3.0 times as many"), "{}", sentences[2]);
    }

    #[test]
    fn the_verdict_is_honest_about_a_defeat() {
        let sentences = verdict(&[entry("local", 0.95, 0), entry("fedeq", 0.9, 100)]);
        assert_eq!(sentences[0], "FeDEQ has not the highest accuracy: 90.0 %, 5.0 points below Local.");
        assert_eq!(sentences.len(), 3, "nobody else shares anything");
    }
}
