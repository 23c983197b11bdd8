//! Your own numbers: a table in CSV with a header, one sample a row.
//!
//! One column says whose the row is, one what is to be predicted; all others are features and hold finite numbers.
use super::classes::ClassNames;
use super::flaw::Flaw;
use super::roster::Roster;
use super::scale::Scale;
use super::{DataSet, Entry, SampleKind, UsualPartition, locate};
use crate::{Dataset, Error, Owners, Place, Result, Samples, Vectors};
use csv::{ErrorKind, StringRecord, Trim};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

const DEFAULT_CLIENT: &str = "client";
/// What may be meant by a column that holds something else than numbers.
const NO_FEATURE: &str = "if it says whose a row is, `--set data.source.client=COLUMN`, and if it is what to predict, `--set data.source.label=COLUMN`; otherwise write a \
                          number in its place (words as 0, 1, ..), or remove the column or the row";
const NAME_COLUMNS: &str =
    "say which columns are meant, with `--set data.source.label=COLUMN` and `--set data.source.client=COLUMN`";
/// Columns that are named in an error.
const NAMED: usize = 12;

/// Which column is what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Table {
    /// The column that says whose the row is. Unless given: `client` where there is such a column; else the rows belong to
    /// no client and are for a partition to hand out.
    pub client: Option<String>,
    /// The column to predict.
    pub label: String,
    /// What the column to predict holds.
    pub task: TargetKind,
    /// All classes there are; those that occur where it is left out.
    pub classes: Option<ClassNames>,
    /// What becomes of the features before a model sees them. Experiments written before this setting was there do not have it, and were
    /// carried out without.
    #[serde(default = "Scale::absent")]
    pub scale: Scale,
}

/// What is to be predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// One of some classes, named by any text.
    #[default]
    Classes,
}

impl Default for Table {
    fn default() -> Self {
        Self { client: None, label: "label".into(), task: TargetKind::Classes, classes: None, scale: Scale::Standardise }
    }
}

impl DataSet for Table {
    const ENTRY: Entry = Entry {
        name: "csv",
        about: "your own numbers: a table with columns for client, label and features",
        kind: SampleKind::Numbers,
        partition: UsualPartition::NATURAL,
        places: &[""],
        layout: "one *.csv with a header; columns `client` and `label` unless named otherwise, the rest numbers",
        licence: "your own",
        citation: "your own",
    };

    /// Reads a CSV file, or the only one of a folder.
    fn load(&self, path: &Path) -> Result<Dataset> {
        let file = file_at(path)?;
        self.read(locate::open(&file)?, &file)
    }

    fn description(&self) -> String {
        format!("a table: the column `{}` is what is predicted, every other one is a number to predict it from", self.label)
    }

    fn classes(&self) -> Option<&ClassNames> {
        self.classes.as_ref()
    }

    /// All columns but those of label and client.
    fn feature_columns(&self, path: &Path) -> Result<Option<Vec<String>>> {
        let file = file_at(path)?;
        let mut reader = reader(locate::open(&file)?);
        let header = reader.headers().map_err(|error| in_words(error, &file))?;
        let client = self.client.as_deref().unwrap_or(DEFAULT_CLIENT);
        Ok(Some(header.iter().filter(|name| *name != self.label && *name != client).map(str::to_owned).collect()))
    }

    fn alike(&self, example: &Dataset) -> Self {
        Self { classes: ClassNames::of(example), ..self.clone() }
    }

    fn scale(&self) -> Option<&Scale> {
        Some(&self.scale)
    }

    fn scale_mut(&mut self) -> Option<&mut Scale> {
        Some(&mut self.scale)
    }
}

impl Table {
    /// Reads a table; rows stream by.
    pub fn read(&self, input: impl Read, file: &Path) -> Result<Dataset> {
        let mut reader = reader(input);
        let header = reader.headers().map_err(|error| in_words(error, file))?.clone();
        let columns = Columns::find(self, &header).map_err(|flaw| flaw.at(Place::Line(1), file))?;
        let mut rows = Rows::default();
        let mut record = StringRecord::new();
        while reader.read_record(&mut record).map_err(|error| in_words(error, file))? {
            let line = record.position().map_or(0, csv::Position::line);
            rows.push(&record, &columns, &header).map_err(|flaw| flaw.at(Place::Line(line), file))?;
        }
        match rows.labels.is_empty() {
            true => Err(Error::malformed(file, Place::Whole, "there are no rows below the header", "add some")),
            false => rows.into_dataset(&columns, self),
        }
    }
}

/// The file at a path, or the only one of a folder.
fn file_at(path: &Path) -> Result<PathBuf> {
    let mut files = locate::files(path, Table::ENTRY.places, &["*.csv"])?;
    match (files.pop(), files.len()) {
        (Some(only), 0) => Ok(only),
        (_, others) => {
            let problem = format!("`{}` holds {} CSV files", path.display(), others + 1);
            Err(Error::unmeetable(problem, "give the path of the one that is meant"))
        }
    }
}

fn reader<R: Read>(input: R) -> csv::Reader<R> {
    csv::ReaderBuilder::new().trim(Trim::All).from_reader(input)
}

/// Where the columns are.
struct Columns {
    client: Option<usize>,
    label: usize,
    features: Vec<usize>,
}

impl Columns {
    fn find(table: &Table, header: &StringRecord) -> Result<Self, Flaw> {
        let label = position(header, &table.label)?;
        let client = match &table.client {
            Some(name) => Some(position(header, name)?),
            None if table.label != DEFAULT_CLIENT && header.iter().any(|name| name == DEFAULT_CLIENT) => {
                Some(position(header, DEFAULT_CLIENT)?)
            }
            None => None,
        };
        if client == Some(label) {
            return Err(Flaw::new(format!("column `{}` is to be both client and label", table.label), NAME_COLUMNS));
        }
        let features: Vec<_> = (0..header.len()).filter(|&column| column != label && Some(column) != client).collect();
        if features.is_empty() {
            return Err(Flaw::new("there is no column left for a feature", "add a column of numbers"));
        }
        Ok(Self { client, label, features })
    }
}

fn position(header: &StringRecord, name: &str) -> Result<usize, Flaw> {
    let mut places = header.iter().enumerate().filter(|(_, column)| *column == name).map(|(at, _)| at);
    match (places.next(), places.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(missing(header, name)),
        (Some(_), Some(_)) => Err(Flaw::new(format!("two columns are called `{name}`"), "rename one of them")),
    }
}

fn missing(header: &StringRecord, name: &str) -> Flaw {
    if let (1, Some(separator)) =
        (header.len(), header.iter().flat_map(str::chars).find(|letter| [';', '\t', '|'].contains(letter)))
    {
        let problem = format!(
            "there is no column `{name}`: with commas between columns, this is a single one, which has `{}` in it",
            separator.escape_default()
        );
        return Flaw::new(problem, "save the table with commas between columns");
    }
    let listed: Vec<String> = header.iter().take(NAMED).map(|column| format!("`{column}`")).collect();
    let more = header.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Flaw::new(format!("there is no column `{name}` among {}{more}", listed.join(", ")), NAME_COLUMNS)
}

/// The rows read so far.
#[derive(Default)]
struct Rows {
    values: Vec<f32>,
    clients: Roster,
    owners: Vec<u32>,
    classes: Roster,
    labels: Vec<u32>,
}

impl Rows {
    fn push(&mut self, row: &StringRecord, columns: &Columns, header: &StringRecord) -> Result<(), Flaw> {
        for &column in &columns.features {
            self.values.push(number(row, column, header)?);
        }
        if let Some(column) = columns.client {
            self.owners.push(self.clients.number(name(row, column, header)?));
        }
        self.labels.push(self.classes.number(name(row, columns.label, header)?));
        Ok(())
    }

    fn into_dataset(self, columns: &Columns, table: &Table) -> Result<Dataset> {
        let labels = self.classes.into_classes(&self.labels, table.classes.as_ref())?;
        Ok(Dataset {
            name: Table::ENTRY.name.into(),
            samples: Samples::Vectors(Vectors { width: columns.features.len(), values: self.values }),
            labels,
            owners: columns.client.map(|_| Owners { names: self.clients.into_names(), of: self.owners }),
            test_start: None,
        })
    }
}

fn number(row: &StringRecord, column: usize, header: &StringRecord) -> Result<f32, Flaw> {
    let text = row.get(column).unwrap_or_default();
    text.parse().ok().filter(|number: &f32| number.is_finite()).ok_or_else(|| {
        let column = header.get(column).unwrap_or_default();
        let problem = format!("column `{column}`: `{text}` is not a finite number");
        Flaw::new(problem, NO_FEATURE)
    })
}

fn name<'a>(row: &'a StringRecord, column: usize, header: &StringRecord) -> Result<&'a str, Flaw> {
    row.get(column).filter(|text| !text.is_empty()).ok_or_else(|| {
        let column = header.get(column).unwrap_or_default();
        Flaw::new(format!("column `{column}` is empty"), "fill it in, or remove the row")
    })
}

/// A failure of the CSV reader in this crate's words.
fn in_words(error: csv::Error, file: &Path) -> Error {
    let line = error.position().map_or(1, csv::Position::line);
    match error.into_kind() {
        ErrorKind::Io(error) => Error::io(file, "read it")(error),
        ErrorKind::Utf8 { err, .. } => {
            let problem = format!("field {} is not UTF-8", err.field() + 1);
            Error::malformed(file, Place::Line(line), problem, "save the file as UTF-8")
        }
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let problem = format!("has `{len}` fields where the header has {expected_len}");
            Error::malformed(file, Place::Line(line), problem, "give every row the same number of fields")
        }
        other => Error::malformed(file, Place::Line(line), format!("{other:?}"), "save the table as CSV again"),
    }
}
