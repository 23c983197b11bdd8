//! From a specification to experiments.
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::str::FromStr;

use fedeq_core::{Error, Result};

use super::spec::{Choice, PART, ScaleName, Settings, Spec, SpecPart, SpecScale};
use fedeq_run::experiment::{Experiment, Override};
use fedeq_run::sweep;

/// One combination of choices, which is an experiment over several seeds.
#[derive(Clone, Debug)]
pub struct ExperimentCell {
    /// Its name, unlike any other's in the experiment.
    pub name: String,
    /// Its choice by axis, and its part.
    pub(super) choices: BTreeMap<String, String>,
    /// Where it stands on numerical axes.
    pub(super) values: BTreeMap<String, f64>,
    /// The choices in the order of the axes, for labels.
    pub(super) labels: Vec<String>,
    /// Its seeds: 0 and so on.
    pub seeds: u64,
    /// What is carried out, with seed 0.
    pub experiment: Experiment,
    /// Tells what is carried out apart from anything else, whatever the seed and the machine.
    pub identity: String,
}

impl ExperimentCell {
    /// Whether it learns from data that must be fetched first.
    pub fn needs_data(&self) -> bool {
        !self.experiment.data.source.entry().places.is_empty()
    }

    /// One of its runs: an ordinary run in a folder below `runs`, named by what it is.
    pub fn run(&self, seed: u64, runs: &Path) -> sweep::SweepCell {
        let experiment = Experiment { seed, ..self.experiment.clone() };
        let identity = &self.identity[..8.min(self.identity.len())];
        sweep::SweepCell {
            values: self.labels.clone(),
            experiment,
            folder: runs.join(format!("{}-{seed}-{identity}", self.name)),
        }
    }
}

/// All cells of a scale, part by part; `overrides` go over whatever the specification says.
pub fn cells(spec: &Spec, scale: ScaleName, overrides: &[Override]) -> Result<Vec<ExperimentCell>> {
    let scale = spec.scale(scale)?;
    let mut cells = Vec::new();
    for part in &spec.part {
        for choices in combinations(part) {
            let named = named_choices(part, &choices);
            if !scale.leave_out.iter().any(|condition| condition.holds(&named)) {
                cells.push(cell(spec, scale, part, &choices, named, overrides)?);
            }
        }
    }
    Ok(cells)
}

/// One choice of every axis, the last axis varying fastest.
pub(super) fn combinations(part: &SpecPart) -> Vec<Vec<Choice>> {
    part.axis.iter().fold(vec![Vec::new()], |begun, axis| {
        let choices = axis.choices();
        let longer = |shorter: &Vec<Choice>| {
            choices.iter().map(|choice| [shorter.as_slice(), std::slice::from_ref(choice)].concat()).collect::<Vec<_>>()
        };
        begun.iter().flat_map(longer).collect()
    })
}

/// Choices as the name of a row.
pub(super) fn label(choices: &[Choice]) -> String {
    choices.iter().map(|choice| choice.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Choices by axis, and the part.
pub(super) fn named_choices(part: &SpecPart, choices: &[Choice]) -> BTreeMap<String, String> {
    let axes = part.axis.iter().zip(choices).map(|(axis, choice)| (axis.name.clone(), choice.name.clone()));
    axes.chain([(PART.to_owned(), part.name.clone())]).collect()
}

/// The name of a cell: its choices, after its part where there are several.
pub(super) fn name_of(spec: &Spec, part: &SpecPart, choices: &[Choice]) -> String {
    let part = (spec.part.len() > 1).then_some(part.name.as_str());
    part.into_iter().chain(choices.iter().map(|choice| choice.name.as_str())).map(slug).collect::<Vec<_>>().join("-")
}

/// Letters, digits and points, with single dashes between.
fn slug(text: &str) -> String {
    let kept = text.to_lowercase().replace('+', "-");
    let words = kept.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

fn cell(
    spec: &Spec,
    scale: &SpecScale,
    part: &SpecPart,
    choices: &[Choice],
    named: BTreeMap<String, String>,
    overrides: &[Override],
) -> Result<ExperimentCell> {
    let name = name_of(spec, part, choices);
    let adjustments =
        scale.adjust.iter().filter(|adjustment| adjustment.condition.holds(&named)).map(|adjustment| &adjustment.set);
    let layers = [&scale.set, &part.set].into_iter().chain(choices.iter().map(|choice| &choice.set)).chain(adjustments);
    let origins: Vec<Vec<Override>> = layers.map(overrides_of).chain([overrides.to_vec()]).collect();
    let experiment = Experiment::layered(origins.iter().map(Vec::as_slice)).map_err(|error| in_cell(spec, &name, &error))?;
    let values = part.axis.iter().zip(choices).filter_map(|(axis, choice)| Some((axis.name.clone(), choice.value?)));
    Ok(ExperimentCell {
        values: values.collect(),
        labels: choices.iter().map(|choice| choice.name.clone()).collect(),
        identity: Experiment { seed: 0, ..experiment.clone() }.identity()?,
        name,
        seeds: scale.seeds_of(&named),
        choices: named,
        experiment,
    })
}

fn overrides_of(settings: &Settings) -> Vec<Override> {
    settings.iter().map(|(key, value)| Override::new(key, value.clone())).collect()
}

fn in_cell(spec: &Spec, cell: &str, error: &Error) -> Error {
    Error::invalid(format!("cell `{cell}` of `{}`: {error}", spec.name), error.hint())
}

/// A name in which `*` stands for any letters and `?` for any one.
///
/// ```
/// use fedeq_report::reproduce::Pattern;
/// let pattern: Pattern = "fedeq-*".parse().unwrap();
/// assert!(pattern.matches("fedeq-cifar10") && !pattern.matches("fedrep-cifar10"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<char>);

impl FromStr for Pattern {
    type Err = Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Infallible> {
        Ok(Self(text.chars().collect()))
    }
}

impl Pattern {
    /// Whether a name fits.
    pub fn matches(&self, name: &str) -> bool {
        fits(&self.0, &name.chars().collect::<Vec<_>>())
    }
}

fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => (0..=name.len()).any(|skipped| fits(rest, &name[skipped..])),
        (Some((wanted, rest)), Some((letter, others))) => (*wanted == '?' || wanted == letter) && fits(rest, others),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_for_files() {
        assert_eq!(slug("FedAvg+FT"), "fedavg-ft");
        assert_eq!(slug("CIFAR-10 (100, 2)"), "cifar-10-100-2");
        assert_eq!(slug("0.001"), "0.001");
    }

    #[test]
    fn stars_stand_for_anything_and_question_marks_for_one_letter() {
        let matches = |pattern: &str, name: &str| pattern.parse::<Pattern>().expect("never fails").matches(name);
        assert!(matches("*", "") && matches("*-0.0?", "rho-0.01") && matches("a*b*c", "aXbYc"));
        assert!(!matches("rho", "rho-1") && !matches("?", "") && !matches("a*b", "abc"));
    }
}
