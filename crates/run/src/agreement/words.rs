//! What an agreement means, for the person whose data it is about.
use fedeq_core::{InitialHeads, Training};
use fedeq_data::partition::{Limit, Partition};
use fedeq_data::shard::Remainder;
use fedeq_data::source::Source;
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
        ];
        let warnings: Vec<_> = self.warnings().into_iter().map(|warning| ("careful", warning)).collect();
        if !warnings.is_empty() {
            all.push(Section { title: "what to think about first", lines: warnings });
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
        let mut lines = vec![("kind", kind(&data.source))];
        if let Some(classes) = classes(&data.source) {
            lines.push(("classes", classes));
        }
        lines.push(("which part", part(&data.partition)));
        if let Some(limit) = data.limit.and_then(limited) {
            lines.push(("at most", limit));
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
        let theory =
            if plan.measure_theory { ", with gradients over all training samples (only their norms are sent)" } else { "" };
        let heads = if *initial_heads == InitialHeads::Own { " (drawn for this client)" } else { "" };
        vec![
            (
                "training",
                format!(
                    "{} for the body, {} for the head{heads}, in batches of {}{last}, at rate {learning_rate}",
                    counted(*epochs, "epoch"),
                    counted(*personal_epochs, "epoch"),
                    counted(batch_size.get(), "sample")
                ),
            ),
            ("evaluation", format!("{when}{theory}")),
            ("network", experiment.model.to_string()),
        ]
    }

    fn sent(&self) -> Vec<(&'static str, String)> {
        let algorithm = self.experiment.method.algorithm();
        let part = if algorithm.shares(Part::Personal) {
            "the whole model, its head included"
        } else {
            "the body of the model; its head stays"
        };
        let numbers = self.sent.iter().map(|array| array.shape.iter().fold(1usize, |size, side| size.saturating_mul(*side)));
        let numbers = numbers.fold(0usize, usize::saturating_add);
        vec![
            ("after training", format!("{} numbers in {}: {part}, as it is after training on your data", count(numbers), counted(self.sent.len(), "array"))),
            ("beside them", "how many samples there are, losses, numbers of correct predictions, norms, times and memory; less with `--metrics coarse` or `--metrics none`".into()),
            ("never", "samples, labels, file names and error messages".into()),
        ]
    }

    fn warnings(&self) -> Vec<String> {
        let experiment = &self.experiment;
        let mut warnings = vec!["from the numbers that are sent, a server that wants to can compute something about your samples, and in bad cases the samples themselves; join if you would trust its operator with them".to_owned()];
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

fn kind(source: &Source) -> String {
    match source {
        Source::Csv(table) => {
            format!("a table: the column `{}` is what is predicted, every other one is a number to predict it from", table.label)
        }
        Source::Images(_) => "pictures, in folders by class".into(),
        Source::Text(_) => "text, of which the next character is predicted".into(),
        Source::Digits(_) | Source::Synthetic(_) => format!("nothing of yours: `{}` is part of the program", source.name()),
        other => format!("the data set `{}`", other.name()),
    }
}

fn classes(source: &Source) -> Option<String> {
    let names: Vec<String> = match source {
        Source::Csv(table) => table.classes.clone()?.into(),
        Source::Images(folder) => folder.classes.clone()?.into(),
        _ => return None,
    };
    let shown = names.iter().take(SHOWN_CLASSES).cloned().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(SHOWN_CLASSES);
    Some(if more > 0 { format!("{shown} and {} more", count(more)) } else { shown })
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
