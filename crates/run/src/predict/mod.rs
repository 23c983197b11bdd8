//! A client's model on new inputs.
//!
//! # Layout
//! - this file: from inputs to answers
//! - `question`: inputs as samples like those of the run's own data
//! - `pictures`, `numbers`, `lines`: pictures, tables and text as people have them
//! - `columns`: which columns of a table a model takes
mod columns;
mod lines;
mod numbers;
mod pictures;
mod question;

use fedeq_core::Result;
use fedeq_data::source::vocabulary;
use fedeq_data::{Dataset, Labels, Samples};
use serde::Serialize;

pub use question::Questions;

use crate::experiment::Prepared;
use crate::run::ClientModel;

/// What a model says to one input.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Which input.
    pub input: String,
    /// The likeliest class; for text, the likeliest next character.
    pub class: String,
    /// How likely the model takes it to be.
    pub probability: f32,
    /// What it should have said, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The probability of every class, in their order.
    pub probabilities: Vec<f32>,
}

/// What a client's model says to some inputs.
pub fn predict(prepared: &Prepared, model: &ClientModel, questions: &Questions) -> Result<Vec<Answer>> {
    let site = prepared.network_site(model.client);
    let rows = site.probabilities(&model.weights, &questions.shard, model.neighbours.as_ref())?;
    let dataset = &prepared.dataset;
    let answer = |(sample, name): (usize, &String)| {
        let probabilities = rows[questions.row_of(sample)].clone();
        let (class, probability) = largest(&probabilities);
        let expected = questions.expected(sample).map(|class| name_of(dataset, class));
        Answer { input: name.clone(), class: name_of(dataset, class), probability, expected, probabilities }
    };
    Ok(questions.names.iter().enumerate().map(answer).collect())
}

/// The first of the largest entries.
fn largest(probabilities: &[f32]) -> (usize, f32) {
    let better = |best: (usize, f32), (class, &value): (usize, &f32)| if value > best.1 { (class, value) } else { best };
    probabilities.iter().enumerate().fold((0, f32::NEG_INFINITY), better)
}

/// A class as people call it.
pub fn name_of(dataset: &Dataset, class: usize) -> String {
    match (&dataset.labels, &dataset.samples) {
        (Labels::Classes { names, .. }, _) => names.get(class).cloned().unwrap_or_else(|| class.to_string()),
        (_, Samples::Sequences(_)) => symbol_name(class),
        _ => class.to_string(),
    }
}

fn symbol_name(symbol: usize) -> String {
    let symbol = u8::try_from(symbol).unwrap_or(vocabulary::OTHER);
    match (symbol, vocabulary::character(symbol)) {
        (_, Some(' ')) => "(space)".into(),
        (_, Some('\n')) => "(line break)".into(),
        (_, Some('\r')) => "(carriage return)".into(),
        (_, Some(character)) => character.to_string(),
        (vocabulary::END, None) => "(end)".into(),
        (_, None) => "(other)".into(),
    }
}
