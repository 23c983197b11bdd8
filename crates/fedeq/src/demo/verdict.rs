//! What the results show, in words.
use super::method_result::{MethodResult, percents};
use fedeq_run::number::{bytes, count, counted, percent};
use fedeq_run::statistics::{BySeed, Difference, SIGNIFICANCE, Sample, compare, holm, p_value};

/// A few sentences on the results, whatever these are: first what FeDEQ costs, then what it reaches, by both models of a client.
pub fn verdict(entries: &[MethodResult]) -> Vec<String> {
    let Some(fedeq) = entries.iter().find(|entry| entry.method == "fedeq") else { return Vec::new() };
    let others: Vec<&MethodResult> = entries.iter().filter(|entry| entry.method != "fedeq").collect();
    let mut sentences: Vec<String> = on_cost(fedeq, &others).into_iter().chain(on_bytes(fedeq, &others)).collect();
    sentences.push(on_accuracy("By the server's model with each client's head (shared)", fedeq, &others, |entry| &entry.shared));
    sentences.push(on_accuracy("By each client's own model (local)", fedeq, &others, |entry| &entry.local));
    sentences.push(on_chance(fedeq));
    sentences
}

/// What is shared, sent and held, beside the most accurate of those who share as well.
fn on_cost(fedeq: &MethodResult, others: &[&MethodResult]) -> Option<String> {
    let mean = |entry: &MethodResult| Sample::of(entry.shared.values().copied()).mean;
    let sharing = others.iter().filter(|other| other.shared_parameters > 0);
    let rival = sharing.max_by(|a, b| mean(a).total_cmp(&mean(b)))?;
    let ratio = rival.shared_parameters as f64 / fedeq.shared_parameters.max(1) as f64;
    Some(format!(
        "FeDEQ shares an equilibrium layer of {} parameters, sends {} and holds {} a client; {} shares {}, {ratio:.1} times as many, sends {} and holds {}.",
        count(fedeq.shared_parameters),
        bytes(fedeq.sent),
        bytes(fedeq.client_memory),
        rival.name(),
        count(rival.shared_parameters),
        bytes(rival.sent),
        bytes(rival.client_memory)
    ))
}

/// What others have reached with the bytes that FeDEQ takes in all.
fn on_bytes(fedeq: &MethodResult, others: &[&MethodResult]) -> Option<String> {
    let reached = |other: &&MethodResult| {
        let (sent, accuracy) = other.after_bytes(fedeq.sent).filter(|_| fedeq.sent > 0)?;
        Some(format!("{} has {} after {}", other.name(), percent(accuracy), bytes(sent)))
    };
    let reached: Vec<String> = others.iter().filter_map(reached).collect();
    let own = percent(Sample::of(fedeq.shared.values().copied()).mean);
    (!reached.is_empty()).then(|| {
        format!(
            "At equal communication: FeDEQ reaches {own} (shared) with {} in total; {}.",
            bytes(fedeq.sent),
            reached.join(", ")
        )
    })
}

fn on_accuracy(by: &str, fedeq: &MethodResult, others: &[&MethodResult], view: fn(&MethodResult) -> &BySeed) -> String {
    let mean = |entry: &MethodResult| Sample::of(view(entry).values().copied()).mean;
    let mut ranked = others.to_vec();
    ranked.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    let tests: Vec<Option<Difference>> = ranked.iter().map(|other| compare(view(fedeq), view(other), true)).collect();
    let against: Vec<String> =
        ranked.iter().zip(corrected(&tests)).map(|(other, p)| compared(other.name(), mean(fedeq) - mean(other), p)).collect();
    format!("{by}, FeDEQ has {} %: {}.", percents(view(fedeq)), against.join(", "))
}

/// The p-values of the tests of one view, corrected for their number; nothing where there was nothing to test.
fn corrected(tests: &[Option<Difference>]) -> Vec<Option<f64>> {
    let mut corrected = holm(&tests.iter().flatten().map(|difference| difference.p).collect::<Vec<_>>()).into_iter();
    tests.iter().map(|difference| difference.and_then(|_| corrected.next())).collect()
}

/// `6.6 points above FedAvg (p = 0.012)`.
fn compared(name: &str, difference: f64, p: Option<f64>) -> String {
    let side = if difference >= 0.0 { "above" } else { "below" };
    let chance = p.map_or(String::new(), |p| {
        let verdict = if p < SIGNIFICANCE { "" } else { ", not significantly different" };
        format!(" ({}{verdict})", p_value(p))
    });
    format!("{:.1} points {side} {name}{chance}", 100.0 * difference.abs())
}

fn on_chance(fedeq: &MethodResult) -> String {
    let seeds = fedeq.shared.len();
    let next = fedeq.shared.keys().max().map_or(0, |seed| seed.wrapping_add(1));
    let test = match seeds {
        0 | 1 => "one seed, which says nothing about chance".into(),
        _ => format!(
            "{}, p by a paired t-test, since a seed also draws the clients, corrected for the number of comparisons in each view by Holm's method",
            counted(seeds, "seed")
        ),
    };
    format!("A small task and {test}: `fedeq demo --seed {next}` takes others.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(method: &str, accuracies: [f64; 3], shared_parameters: usize) -> MethodResult {
        let shared: BySeed = (4..).zip(accuracies).collect();
        let local = shared.iter().map(|(seed, accuracy)| (*seed, accuracy - 0.02)).collect();
        let sent = 1_000_000 * shared_parameters as u64;
        let course = vec![(sent / 3, 0.5), (sent, accuracies[0])];
        MethodResult {
            method: method.into(),
            shared,
            local,
            shared_parameters,
            sent,
            course,
            client_memory: 2_000_000,
            ..MethodResult::default()
        }
    }

    #[test]
    fn the_verdict_begins_with_what_it_costs_and_says_who_leads_and_by_how_much() {
        let entries = [
            entry("local", [0.80, 0.82, 0.81], 0),
            entry("fedavg", [0.85, 0.84, 0.86], 300),
            entry("fedeq", [0.90, 0.91, 0.92], 100),
        ];
        let sentences = verdict(&entries);
        assert!(
            sentences[0]
                .starts_with("FeDEQ shares an equilibrium layer of 100 parameters, sends 100 MB and holds 2.0 MB a client; ")
        );
        assert!(sentences[0].contains("FedAvg shares 300, 3.0 times as many, sends 300 MB"), "{}", sentences[0]);
        assert_eq!(
            sentences[1],
            "At equal communication: FeDEQ reaches 91.0 % (shared) with 100 MB in total; FedAvg has 50.0 % after 100 MB."
        );
        assert!(sentences[2].contains("FeDEQ has 91.0 ± 1.0 %: 6.0 points above FedAvg (p = "), "{}", sentences[2]);
        assert!(sentences[3].starts_with("By each client's own model (local), FeDEQ has 89.0 ± 1.0 %"), "{}", sentences[3]);
        assert!(
            sentences[4].contains("3 seeds")
                && sentences[4].contains("corrected")
                && sentences[4].contains("`fedeq demo --seed 7`"),
            "{}",
            sentences[4]
        );
    }

    #[test]
    fn the_verdict_is_honest_about_a_defeat_and_about_scatter() {
        let entries = [
            entry("local", [0.95, 0.96, 0.97], 0),
            entry("fedrep", [0.90, 0.88, 0.93], 0),
            entry("fedeq", [0.90, 0.91, 0.89], 100),
        ];
        let sentences = verdict(&entries);
        assert_eq!(sentences.len(), 3, "nobody else shares anything");
        // Differences 0, 0.03 and -0.04: t = -0.1644 with two degrees of freedom, so p = 1 - |t| / sqrt(2 + t^2).
        assert!(sentences[0].contains("0.3 points below FedRep (p = 0.885, not significantly different)"), "{}", sentences[0]);
    }

    /// Below Local by 0.05, 0.05 and 0.08: t = -6 with two degrees of freedom, so p = 1 - 6 / sqrt(38) = 0.0267, which alone would be significant. It is the smaller of two,
    /// and so counts twice.
    #[test]
    fn chances_are_corrected_for_the_number_of_rivals_in_each_view_by_itself() {
        let entries = |rivals: &[(&str, [f64; 3])]| {
            let rivals = rivals.iter().map(|(method, accuracies)| entry(method, *accuracies, 0));
            rivals.chain([entry("fedeq", [0.90, 0.91, 0.89], 100)]).collect::<Vec<_>>()
        };
        let (local, fedrep) = (("local", [0.95, 0.96, 0.97]), ("fedrep", [0.90, 0.88, 0.93]));
        for sentence in &verdict(&entries(&[local, fedrep]))[..2] {
            assert!(sentence.contains("6.0 points below Local (p = 0.053, not significantly different)"), "{sentence}");
        }
        for sentence in &verdict(&entries(&[local]))[..2] {
            assert!(sentence.contains("6.0 points below Local (p = 0.027)"), "{sentence}");
        }
    }
}
