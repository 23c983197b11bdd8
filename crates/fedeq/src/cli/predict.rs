//! `fedeq predict`.
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::print;
use super::table::{Align, Table};
use super::trained::Chosen;
use crate::number::percent;
use crate::predict::{Answer, Questions, predict};
use crate::run::Trained;

/// Asks a client's model about new inputs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq predict runs/fedeq-digits-0 --client client-07 --input seven.png
  fedeq predict runs/fedeq-digits-0 --client client-07 --samples 0..10 --json
  fedeq predict runs/mine --client ward-3 --input patients.csv

Pictures are scaled to the size the model has seen; a table has a header and one column a number, found by its \
name where the run learned from a table (for pictures: one column a pixel, in order); text is JSON lines of {\"text\": ..}, and the answer is what comes next.")]
pub(super) struct Arguments {
    #[command(flatten)]
    run: Chosen,
    /// Whose model
    #[arg(long, value_name = "NAME")]
    client: String,
    /// Pictures, CSV files or JSON lines, as suits the model
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "samples")]
    input: Vec<PathBuf>,
    /// Samples of the run's own data set, from the first number up to, not including, the second
    #[arg(long, value_name = "FROM..TO", conflicts_with = "input")]
    samples: Option<String>,
    /// Write one JSON object a line, with the probability of every class
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let trained = arguments.run.open()?;
    let client = trained.client(&arguments.client).map_err(Failure::refused)?;
    let questions = arguments.questions(&trained)?;
    let model = trained.model(client).map_err(Failure::during_work)?;
    let answers = predict(&trained, &model, &questions).map_err(Failure::during_work)?;
    print(&if arguments.json { lines_of(&answers) } else { text_of(&answers) })
}

impl Arguments {
    fn questions(&self, trained: &Trained) -> Outcome<Questions> {
        let dataset = &trained.prepared().dataset;
        let questions = match &self.samples {
            Some(range) => Questions::own(dataset, range_of(range)?),
            None => Questions::brought(trained.prepared(), &self.input),
        };
        questions.map_err(Failure::refused)
    }
}

fn range_of(text: &str) -> Outcome<std::ops::Range<u32>> {
    let malformed = || Failure::request(format!("`{text}` is not a range of samples"), "write it as `0..10`");
    let (from, to) = text.split_once("..").ok_or_else(malformed)?;
    let number = |part: &str| part.trim().parse::<u32>().map_err(|_| malformed());
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err(malformed()) } else { Ok(range) }
}

fn text_of(answers: &[Answer]) -> String {
    let mut columns = vec![("input", Align::Left), ("class", Align::Left), ("probability", Align::Right)];
    columns.extend(answers.iter().any(|answer| answer.expected.is_some()).then_some(("expected", Align::Left)));
    let mut table = Table::new(&columns);
    for answer in answers {
        let cells = [answer.input.clone(), answer.class.clone(), percent(f64::from(answer.probability))];
        table.row(cells.into_iter().chain(answer.expected.clone()));
    }
    table.text()
}

fn lines_of(answers: &[Answer]) -> String {
    let line = |answer: &Answer| serde_json::to_string(answer).unwrap_or_default() + "\n";
    answers.iter().map(line).collect()
}
