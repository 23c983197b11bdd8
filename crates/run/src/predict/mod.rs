//! A client's model on new inputs.
//!
//! # Layout
//! - this file: from inputs to predictions
//! - `input`: files as people have them (pictures, tables, text) as samples like those of the run's own data
//! - `held`: what a client holds, for those who want to ask about it
mod held;
mod input;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use fedeq_core::{Error, Result};
use fedeq_data::shard::Shard;
use fedeq_data::source::arrays::GivenArray;
use fedeq_data::source::vocabulary;
use fedeq_data::{Dataset, Labels, Samples};
use serde::Serialize;

use crate::experiment::Prepared;
use crate::run::ClientModel;
pub use held::{HeldSamples, held};
use input::{ColumnsWanted, FileInputs};

/// What a model says to one input.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
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
pub fn predict(prepared: &Prepared, model: &ClientModel, inputs: &PredictionInputs) -> Result<Vec<Prediction>> {
    let problem = prepared.network_problem(model.client)?;
    let rows = problem.probabilities(&model.weights, &inputs.shard, model.neighbours.as_ref())?;
    let dataset = &prepared.dataset;
    let prediction = |(sample, name): (usize, &String)| {
        let probabilities = rows[inputs.row_of(sample)].clone();
        let (class, probability) = largest(&probabilities);
        let expected = inputs.expected(sample).map(|class| name_of(dataset, class));
        Prediction { input: name.clone(), class: name_of(dataset, class), probability, expected, probabilities }
    };
    Ok(inputs.names.iter().enumerate().map(prediction).collect())
}

/// What a client's network says to some inputs before it becomes probabilities: one number a class, rows one after the other; for sequences one row a position.
pub fn logits(prepared: &Prepared, model: &ClientModel, inputs: &PredictionInputs) -> Result<Vec<f32>> {
    prepared.network_problem(model.client)?.logits(&model.weights, &inputs.shard)
}

/// The class that a client's model takes each input for, as it is evaluated: by number; for sequences, one a position.
pub fn classes(prepared: &Prepared, model: &ClientModel, inputs: &PredictionInputs) -> Result<Vec<u16>> {
    let at = |row: &[f32]| largest(row).0 as u16;
    if model.neighbours.is_none() {
        let count = prepared.network.graph().task.classes;
        return Ok(logits(prepared, model, inputs)?.chunks_exact(count).map(at).collect());
    }
    let problem = prepared.network_problem(model.client)?;
    let rows = problem.probabilities(&model.weights, &inputs.shard, model.neighbours.as_ref())?;
    Ok(rows.iter().map(|row| at(row)).collect())
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
        (_, Samples::Sequences(_)) if dataset.has_characters() => symbol_name(class),
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

/// Inputs, ready to be asked about.
pub struct PredictionInputs {
    /// What each input is called.
    pub names: Vec<String>,
    shard: Shard,
    is_own: bool,
}

impl PredictionInputs {
    /// Samples of the run's own data set, by their numbers.
    pub fn own(dataset: &Arc<Dataset>, range: Range<u32>) -> Result<Self> {
        let samples = dataset.len();
        if range.end as usize > samples {
            let problem = format!("`{}..{}` goes beyond the {samples} samples of `{}`", range.start, range.end, dataset.name);
            return Err(Error::invalid(problem, format!("end it at {samples} or before")));
        }
        Self::among(dataset, range.collect())
    }

    /// What a client is evaluated by: its test samples.
    pub fn test_samples(prepared: &Prepared, client: usize) -> Result<Self> {
        let mut clients = prepared.splits.clients.iter().chain(&prepared.splits.unseen);
        let test = clients.nth(client).map(|client| client.test.clone()).unwrap_or_default();
        Self::among(&prepared.dataset, test)
    }

    /// Some samples of the run's own data set; all of them must be there.
    fn among(dataset: &Arc<Dataset>, samples: Vec<u32>) -> Result<Self> {
        let names = samples.iter().map(|index| format!("sample {index}")).collect();
        Ok(Self { names, shard: Shard::new(Arc::clone(dataset), samples)?, is_own: true })
    }

    /// Arrays that a program hands over, in the units of the run's own data: of its kind and size, or they are refused by the name `x`.
    pub fn from_array(prepared: &Prepared, array: GivenArray) -> Result<Self> {
        let mut samples = array.into_samples_like(&prepared.dataset.samples)?;
        if let (Samples::Vectors(vectors), Some(scaling)) = (&mut samples, &prepared.scaling) {
            scaling.apply(&mut vectors.values);
        }
        let count = match &samples {
            Samples::Images(images) => images.pixels.len() / images.shape.iter().product::<usize>(),
            Samples::Vectors(vectors) => vectors.values.len() / vectors.width,
            Samples::Sequences(sequences) => sequences.symbols.len() / sequences.length,
        };
        let names = (0..count).map(|sample| format!("sample {sample}")).collect();
        Self::of(&prepared.dataset, FileInputs { names, samples })
    }

    /// How many inputs there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// What lies in some files, for a model of a run: pictures or tables of pixels where it saw pictures,
    /// tables where it saw numbers, JSON lines where it saw text.
    pub fn from_files(prepared: &Prepared, files: &[PathBuf]) -> Result<Self> {
        let dataset = &prepared.dataset;
        let inputs = match &dataset.samples {
            Samples::Images(images) if input::is_table(files) => input::pixels(images, files)?,
            Samples::Images(images) => input::pictures(images, files)?,
            Samples::Vectors(vectors) => {
                let wanted = ColumnsWanted::by(&prepared.experiment.data, vectors.width)?;
                input::rows(&wanted, prepared.scaling.as_ref(), files)?
            }
            Samples::Sequences(_) if !dataset.has_characters() => {
                let problem = "the model has learned from tokens, and files of text do not say which";
                return Err(Error::invalid(
                    problem,
                    "predict from Python, with `run.client(name).predict(x)`, or predict samples of its own data",
                ));
            }
            Samples::Sequences(sequences) => input::texts(sequences, files)?,
        };
        if inputs.names.is_empty() {
            return Err(Error::invalid("there is nothing in the files given", "give files with at least one input"));
        }
        Self::of(dataset, inputs)
    }

    fn of(dataset: &Dataset, FileInputs { names, samples }: FileInputs) -> Result<Self> {
        let labels = unknown_labels(&dataset.labels, &samples, names.len());
        let dataset = Dataset { name: dataset.name.clone(), samples, labels, owners: None, test_start: None };
        let count = names.len() as u32;
        Ok(Self { names, shard: Shard::new(Arc::new(dataset), (0..count).collect())?, is_own: false })
    }

    /// Which row of a model's output is the prediction: for text, the one after the last symbol.
    fn row_of(&self, sample: usize) -> usize {
        let Samples::Sequences(sequences) = &self.shard.dataset().samples else { return sample };
        let index = self.shard.indices()[sample] as usize;
        let symbols = &sequences.symbols[index * sequences.length..][..sequences.length];
        let last = symbols.iter().rposition(|&symbol| symbol != 0).unwrap_or(0);
        sample * sequences.length + last
    }

    /// What should be said, where that is known.
    fn expected(&self, sample: usize) -> Option<usize> {
        let index = self.shard.indices()[sample] as usize;
        match &self.shard.dataset().labels {
            _ if !self.is_own => None,
            Labels::Classes { values, .. } => values.get(index).map(|&class| usize::from(class)),
            Labels::NextSymbols(symbols) => {
                let row = self.row_of(sample);
                let length = symbols.len() / self.shard.dataset().len();
                symbols.get(index * length + row % length).map(|&symbol| usize::from(symbol))
            }
        }
    }
}

/// Labels of the right kind that say nothing.
fn unknown_labels(like: &Labels, samples: &Samples, count: usize) -> Labels {
    match (like, samples) {
        (Labels::NextSymbols(_), Samples::Sequences(sequences)) => Labels::NextSymbols(vec![0; sequences.symbols.len()]),
        (Labels::NextSymbols(_), _) => Labels::NextSymbols(vec![0; count]),
        (Labels::Classes { names, .. }, _) => Labels::Classes { names: names.clone(), values: vec![0; count] },
    }
}
