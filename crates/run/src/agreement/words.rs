//! What an agreement means, for the person whose data it is about.
use fedeq_core::{
    Aggregation, AggregationRule, Clipping, Codec, Compression, InitialHeads, NoiseBy, Privacy, SecureAggregation, Training,
};
use fedeq_data::partition::{Limit, Partition};
use fedeq_data::shard::Remainder;
use fedeq_data::source::classes::ClassNames;
use fedeq_models::Part;

use super::Agreement;
use crate::number::{count, counted, percent};

/// A heading, and what belongs under it: a name and a text each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// Names and texts, which may hold what a server wrote: control characters are replaced.
    pub lines: Vec<(&'static str, String)>,
}

/// Classes that are named one by one.
const SHOWN_CLASSES: usize = 12;
/// Fewer samples a step, or in all, are worth a warning.
const FEW: usize = 10;

impl Agreement {
    /// What would be done with a device's data, and what would leave it.
    pub fn describe(&self) -> Vec<Section> {
        let mut all = vec![
            Section { title: "the experiment", lines: self.summary() },
            Section { title: "what is read of your data", lines: self.data() },
            Section { title: "what is done with it", lines: self.work() },
            Section { title: "what leaves the device", lines: self.sent() },
            Section { title: "what the server does with it", lines: self.aggregation() },
        ];
        let warnings: Vec<_> = self.warnings().into_iter().map(|warning| ("careful", warning)).collect();
        if !warnings.is_empty() {
            all.push(Section { title: "what to consider before you accept", lines: warnings });
        }
        for line in all.iter_mut().flat_map(|section| &mut section.lines) {
            line.1 = printable(&line.1);
        }
        all
    }

    fn summary(&self) -> Vec<(&'static str, String)> {
        let experiment = &self.experiment;
        vec![
            ("title", experiment.title()),
            (
                "rounds",
                format!(
                    "at most {}; a server may ask this client in each of them, once",
                    counted(experiment.plan.rounds as usize, "round")
                ),
            ),
        ]
    }

    fn data(&self) -> Vec<(&'static str, String)> {
        let data = &self.experiment.data;
        let mut lines = vec![("kind", data.source.description())];
        lines.extend(data.source.classes().map(|classes| ("classes", named(classes))));
        lines.push(("which part", part(&data.partition)));
        if let Some(limit) = data.limit.and_then(limited) {
            lines.push(("at most", limit));
        }
        if let Some(share) = data.label_noise {
            lines.push(("wrong labels", format!("{} of the training samples get another class, on purpose", percent(share))));
        }
        if data.shift.is_some() {
            lines.push(("changed", "pictures are rotated or tinted before they are used, on purpose".into()));
        }
        let test = data.split.test.map_or("the usual part (20 % where there is no test set)".into(), percent);
        let validation =
            if data.split.validation > 0.0 { format!(", {} for tuning", percent(data.split.validation)) } else { String::new() };
        lines.push(("set aside", format!("{test} for evaluation{validation}")));
        lines
    }

    fn work(&self) -> Vec<(&'static str, String)> {
        let experiment = &self.experiment;
        let Training { epochs, personal_epochs, batch_size, learning_rate, remainder, initial_heads, .. } = &experiment.training;
        let last = if *remainder == Remainder::Keep { ", the last of an epoch perhaps smaller" } else { "" };
        let plan = &experiment.plan;
        let when = match plan.evaluate_every {
            0 => "after the last round".into(),
            every => format!("after every {} and after the last", counted(every as usize, "round")),
        };
        let early = match (plan.privacy.and_then(|privacy| privacy.budget), plan.patience) {
            (Some(budget), _) => {
                format!(" (the last is the one in which a budget of epsilon {budget} is spent, if that comes first)")
            }
            (None, Some(patience)) => format!(
                " (the last is the one after {} in a row without a better validation accuracy, if that comes first)",
                counted(patience as usize, "evaluation")
            ),
            (None, None) => String::new(),
        };
        let theory =
            if plan.measure_theory { ", with gradients over all training samples (only their norms are sent)" } else { "" };
        let heads = if *initial_heads == InitialHeads::Own { " (drawn for this client)" } else { "" };
        let mut lines = vec![
            (
                "training",
                format!(
                    "{} for the body, {} for the head{heads}, in batches of {}{last}, at rate {learning_rate}",
                    counted(*epochs, "epoch"),
                    counted(*personal_epochs, "epoch"),
                    counted(batch_size.get(), "sample")
                ),
            ),
            ("evaluation", format!("{when}{early}{theory}")),
            ("network", experiment.model.to_string()),
        ];
        lines.extend(self.penalty().map(|text| ("penalty", text)));
        lines
    }

    /// How far a server may move what holds a client's model to the others', where it may.
    fn penalty(&self) -> Option<String> {
        let algorithm = self.experiment.method.algorithm();
        let (factor, first) = (algorithm.penalty_factor()?, algorithm.initial_rho()?);
        let factor = factor.max(1.0 / factor);
        Some(format!("the server may change it from {first}, after each round by a factor of {factor} at most, up or down"))
    }

    fn sent(&self) -> Vec<(&'static str, String)> {
        let algorithm = self.experiment.method.algorithm();
        let part = match (algorithm.shares(Part::Personal), algorithm.sends_control(), algorithm.keeps_normalisations()) {
            (true, true, _) => "the whole model, its head included, and beside it a mean gradient of your samples",
            (true, false, true) => "the whole model but its normalisations, its head included",
            (true, false, false) => "the whole model, its head included",
            (false, ..) => "the body of the model; its head stays",
        };
        let numbers = self.sent.iter().map(|array| array.shape.iter().fold(1usize, |size, side| size.saturating_mul(*side)));
        let numbers = numbers.fold(0usize, usize::saturating_add);
        vec![
            ("after training", format!("{} numbers in {}: {part}, as it is after training on your data", count(numbers), counted(self.sent.len(), "array"))),
            ("beside them", "how many samples there are, losses, numbers of correct predictions, norms, times and memory; less with `--metrics coarse` or `--metrics none`".into()),
            ("never", "samples, labels, file names and error messages".into()),
        ]
    }

    /// How the server makes one model of all, and what is done on the way to it.
    fn aggregation(&self) -> Vec<(&'static str, String)> {
        let plan = &self.experiment.plan;
        let mut lines = vec![("aggregation", rule(&plan.aggregation))];
        if let Some(compression) = &plan.compression {
            lines.push(("compression", compressed(compression, plan.secure_aggregation.is_some())));
        }
        if let Some(privacy) = &plan.privacy {
            lines.push(("privacy", private(privacy, plan.secure_aggregation.is_some())));
        }
        if let Some(secure) = &plan.secure_aggregation {
            lines.push(("secure aggregation", secret(secure)));
        }
        lines
    }

    fn warnings(&self) -> Vec<String> {
        let experiment = &self.experiment;
        let mut warnings = vec!["from the numbers that are sent, a server can compute something about your samples, and in bad cases the samples themselves; join if you would trust its operator with them".to_owned()];
        let mut warn = |is_so: bool, words: &str| {
            if is_so {
                warnings.push(words.to_owned());
            }
        };
        warn(
            experiment.method.algorithm().shares(Part::Personal),
            "the whole model is sent, head included: its last layer tells directly which labels you have",
        );
        warn(
            experiment.training.batch_size.get() < FEW,
            "batches are small: one gradient step is about few samples, which makes it easier to compute them",
        );
        let most = experiment.data.limit.and_then(|limit| limit.train).map_or(usize::MAX, |most| most.get());
        warn(most < FEW, "training uses few of your samples, so that what is sent is about these few");
        warn(
            self.sent.iter().any(|array| array.name.starts_with("statistics/")),
            "running means and variances of normalisation layers are sent: averages over your samples, within the network",
        );
        warnings
    }
}

fn rule(aggregation: &Aggregation) -> String {
    let rule = match &aggregation.rule {
        AggregationRule::Mean => "the mean of what clients send".to_owned(),
        other => format!("the rule `{}`", other.name()),
    };
    let clip = match &aggregation.clip {
        Some(Clipping::Fixed(bound)) => format!("; changes are shortened to a norm of {bound}"),
        Some(Clipping::Adaptive(_)) => "; changes are shortened to a norm that follows those of others".to_owned(),
        None => String::new(),
    };
    let cap = aggregation.cap.map_or(String::new(), |cap| format!("; no client counts for more than {}", percent(cap)));
    format!("{rule}{clip}{cap}")
}

/// How messages are written; an update that is summed in secret goes by no codec.
fn compressed(compression: &Compression, is_secret: bool) -> String {
    let name = |codec: &Codec| match codec {
        Codec::Float16 => "float16".to_owned(),
        Codec::Int8 => "int8".to_owned(),
        Codec::Int4 => "int4".to_owned(),
        Codec::TopK(share) => format!("the largest {} (top-k)", percent(*share)),
        Codec::LowRank(rank) => format!("rank {rank} (low-rank)"),
    };
    let way = |codec: &Option<Codec>| codec.as_ref().map_or("as 32-bit floats".to_owned(), name);
    let lost = match (compression.up, compression.error_feedback) {
        (None, _) => "",
        (Some(_), Some(false)) => "; what the codec loses is dropped",
        (Some(_), _) => "; what the codec loses stays here and is added to the next update",
    };
    let sent = if is_secret { "as whole numbers under masks".to_owned() } else { way(&compression.up) };
    format!("sent: {sent}; received: {}{lost}", way(&compression.down))
}

fn secret(SecureAggregation { clip, precision_bits, signing_keys, .. }: &SecureAggregation) -> String {
    let holds = match signing_keys.len() {
        0 => "holds as long as it follows the protocol, and invents no clients".to_owned(),
        known => format!(
            "holds also if it is malicious, as long as fewer than a third of the {known} clients are on its side: they know each other by the keys in this agreement. \
             Compare these with the keys that the clients' owners gave you (`--signing-keys`)"
        ),
    };
    format!("the server gets the sum of all changes only, each cut off at {clip} and rounded to {precision_bits} bits; {holds}")
}

fn private(privacy: &Privacy, is_summed_in_secret: bool) -> String {
    let noise = match (privacy.epsilon, privacy.noise_multiplier) {
        (Some(epsilon), _) => format!("as much noise as epsilon {epsilon} takes"),
        (None, multiplier) => format!("noise of {} times the bound", multiplier.unwrap_or_default()),
    };
    let bound = match privacy.clip {
        Clipping::Fixed(bound) => format!("shortened to a norm of {bound}"),
        Clipping::Adaptive(_) => "shortened to a norm that follows those of others".to_owned(),
    };
    let by = match privacy.noise {
        NoiseBy::Server => "the server adds it, and has to be trusted to",
        NoiseBy::Clients if is_summed_in_secret => {
            "each client adds a part of it before it masks its change, and the server sees the sum"
        }
        NoiseBy::Clients => "each client adds a part of it before it sends; one client's part alone protects little",
    };
    format!("changes are {bound}, and {noise} is added in a round: {by}. Numbers beside the weights are not covered")
}

/// Classes by name, as many as a person reads.
fn named(classes: &ClassNames) -> String {
    let names = classes.names();
    let shown = names.iter().take(SHOWN_CLASSES).cloned().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(SHOWN_CLASSES);
    if more > 0 { format!("{shown} and {} more", count(more)) } else { shown }
}

fn part(partition: &Partition) -> String {
    match partition {
        Partition::Own { clients, .. } => format!("all of it, on every one of {}", counted(*clients, "client")),
        other => format!("what the rule `{}` gives this client; every client must have the whole data set", other.rule()),
    }
}

fn limited(limit: Limit) -> Option<String> {
    let parts = [(limit.train, "to train on"), (limit.validation, "to tune on"), (limit.test, "to be evaluated on")];
    let parts: Vec<String> =
        parts.into_iter().filter_map(|(most, what)| Some(format!("{} {what}", counted(most?.get(), "sample")))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// A text that a server may have written, without what would move or hide other text on a terminal.
fn printable(text: &str) -> String {
    const LONGEST: usize = 600;
    let is_invisible = |character: char| {
        character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut shown: String = text.chars().take(LONGEST).map(|one| if is_invisible(one) { '?' } else { one }).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::tests::agreement;
    use super::*;

    fn words(settings: &[&str]) -> String {
        let sections = agreement(settings).describe();
        sections.iter().flat_map(|section| &section.lines).map(|(name, text)| format!("{name}: {text}\n")).collect()
    }

    #[test]
    fn a_person_reads_what_would_be_done() {
        let settings = ["model=deq-mlp", "plan.rounds=7", "training.epochs=2", "data.limit.train=50", "training.batch_size=20"];
        let words = words(&settings);
        for part in
            ["at most 7 rounds", "2 epochs for the body", "batches of 20 samples", "50 samples to train on", "its head stays"]
        {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(!words.contains("whole model is sent") && !words.contains("batches are small"), "{words}");
    }

    #[test]
    fn a_person_reads_what_the_server_makes_of_it() {
        assert!(words(&[]).contains("aggregation: the mean of what clients send\n"));
        let compressed = words(&["plan.compression.up.top-k=0.05", "plan.compression.down=int8"]);
        assert!(
            compressed.contains("sent: the largest 5.0 % (top-k); received: int8; what the codec loses stays here"),
            "{compressed}"
        );
        let robust = words(&["plan.aggregation.rule=median", "plan.aggregation.cap=0.25"]);
        assert!(robust.contains("the rule `median`; no client counts for more than 25.0 %"), "{robust}");
        let private = words(&["plan.privacy.epsilon=8", "plan.privacy.clip.fixed=0.5", "model=deq-mlp"]);
        assert!(private.contains("shortened to a norm of 0.5, and as much noise as epsilon 8 takes"), "{private}");
        assert!(private.contains("the server adds it, and has to be trusted to"), "{private}");
        let secret = words(&["plan.secure_aggregation.clip=0.5"]);
        assert!(secret.contains("the sum of all changes only, each cut off at 0.5 and rounded to 16 bits"), "{secret}");
        assert!(secret.contains("as long as it follows the protocol"), "{secret}");
        let both = words(&["plan.secure_aggregation.clip=0.5", "plan.compression.down=int8"]);
        assert!(both.contains("sent: as whole numbers under masks; received: int8\n"), "{both}");
    }

    #[test]
    fn a_person_reads_when_training_may_end_early() {
        let every = "evaluation: after every 2 rounds and after the last";
        let said = |settings: &[&str]| words(&[&["plan.evaluate_every=2", "model=mlp"], settings].concat());
        assert!(said(&[]).contains(&format!("{every}\n")));
        let patient = said(&["plan.patience=3", "data.split.validation=0.2"]);
        let ends = "(the last is the one after 3 evaluations in a row without a better validation accuracy, if that comes first)";
        assert!(patient.contains(&format!("{every} {ends}\n")), "{patient}");
        let budgeted = said(&["plan.privacy.noise_multiplier=2", "plan.privacy.budget=90"]);
        let ends = "(the last is the one in which a budget of epsilon 90 is spent, if that comes first)";
        assert!(budgeted.contains(&format!("{every} {ends}\n")), "{budgeted}");
    }

    #[test]
    fn a_person_reads_how_far_the_penalty_may_move_where_it_may() {
        let moving = words(&["method.rho=0.3", "method.balance.factor=0.5"]);
        assert!(
            moving
                .contains("penalty: the server may change it from 0.3, after each round by a factor of 2 at most, up or down\n"),
            "{moving}"
        );
        assert!(!words(&["method.rho=0.3"]).contains("penalty: "));
    }

    #[test]
    fn an_experiment_that_lays_samples_bare_is_called_so() {
        let words = words(&["method=fedavg", "model=mlp", "data.limit.train=1", "training.batch_size=1"]);
        for part in ["head included", "batches are small", "few of your samples"] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }

    #[test]
    fn what_a_server_wrote_cannot_play_with_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c\nd"), "a?[2Jb?c?d");
        assert_eq!(printable(&"x".repeat(1000)).len(), 603);
    }
}
