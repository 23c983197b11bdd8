//! `fedeq predict`.
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::print;
use super::table::{Align, Table};
use super::trained::FinishedRunArgs;
use fedeq_run::experiment::Prepared;
use fedeq_run::number::percent;
use fedeq_run::predict::{Prediction, PredictionInputs, predict};
use fedeq_run::run::ClientModel;

/// Predicts with a client's model.
#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  fedeq predict runs/fedeq-digits-0 --client client-07 --input seven.png
  fedeq predict runs/fedeq-digits-0 --client client-07 --samples 0..10 --json
  fedeq predict runs/mine --client ward-3 --input patients.csv

{INPUTS}"))]
pub(super) struct PredictCommand {
    #[command(flatten)]
    run: FinishedRunArgs,
    /// Whose model
    #[arg(long, value_name = "NAME")]
    client: String,
    #[command(flatten)]
    asked: PredictArgs,
}

/// What files may hold.
pub(super) const INPUTS: &str = "\
Pictures are scaled to the size the model has seen; a table has a header and one column a number, found by its \
name where the model learned from a table (for pictures: one column a pixel, in order); text is JSON lines of {\"text\": ..}, and the answer is what comes next.";

/// What a model is asked, and how it answers.
#[derive(Args, Debug)]
pub(super) struct PredictArgs {
    /// Pictures, CSV files or JSON lines, as suits the model [default: the client's own test samples]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    input: Vec<PathBuf>,
    /// Samples of the data set it learned from, from the first number up to, not including, the second
    #[arg(long, value_name = "FROM..TO", conflicts_with = "input")]
    samples: Option<String>,
    /// Write one JSON object a line, with the probability of every class
    #[arg(long)]
    json: bool,
    /// Write CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

pub(super) fn run(arguments: &PredictCommand) -> Outcome<()> {
    let trained = arguments.run.open()?;
    let client = trained.client(&arguments.client).map_err(Failure::refused)?;
    let model = trained.model(client).map_err(Failure::during_work)?;
    arguments.asked.answer(trained.prepared(), &model)
}

impl PredictArgs {
    /// Asks a model and writes what it says.
    pub(super) fn answer(&self, prepared: &Prepared, model: &ClientModel) -> Outcome<()> {
        let questions = self.questions(prepared, model.client)?;
        let answers = predict(prepared, model, &questions).map_err(Failure::during_work)?;
        match self {
            Self { json: true, .. } => print(&lines_of(&answers)),
            Self { csv: true, .. } => print(&csv_of(&answers)?),
            _ => print(&text_of(&answers)),
        }
    }

    fn questions(&self, prepared: &Prepared, client: usize) -> Outcome<PredictionInputs> {
        let questions = match &self.samples {
            Some(range) => PredictionInputs::own(&prepared.dataset, range_of(range)?),
            None if self.input.is_empty() => PredictionInputs::test_samples(prepared, client),
            None => PredictionInputs::from_files(prepared, &self.input),
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

fn text_of(answers: &[Prediction]) -> String {
    let mut columns = vec![("input", Align::Left), ("class", Align::Left), ("probability", Align::Right)];
    columns.extend(answers.iter().any(|answer| answer.expected.is_some()).then_some(("expected", Align::Left)));
    let mut table = Table::new(&columns);
    for answer in answers {
        let cells = [answer.input.clone(), answer.class.clone(), percent(f64::from(answer.probability))];
        table.row(cells.into_iter().chain(answer.expected.clone()));
    }
    table.text()
}

fn lines_of(answers: &[Prediction]) -> String {
    let line = |answer: &Prediction| serde_json::to_string(answer).unwrap_or_default() + "\n";
    answers.iter().map(line).collect()
}

fn csv_of(answers: &[Prediction]) -> Outcome<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let heading = ["input", "class", "probability", "expected"];
    let rows = answers.iter().map(|answer| {
        let Prediction { input, class, probability, expected, .. } = answer;
        [input.clone(), class.clone(), probability.to_string(), expected.clone().unwrap_or_default()]
    });
    let written = table.write_record(heading).and_then(|()| rows.into_iter().try_for_each(|row| table.write_record(row)));
    written.map_err(|error| Failure::output(error.into()))?;
    let bytes = table.into_inner().map_err(|error| Failure::output(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
