//! Text by client, as JSON lines: one `{"client": .., "text": ..}` a line.
//!
//! Every text becomes a snippet, begin + characters + end in the symbols of the [`vocabulary`]; a client with several lines has
//! several snippets. The snippets of a client are joined; the stream without its last symbol is the input, the stream
//! without its first is the target, and both are cut into chunks of [`Text::length`] symbols, the last one padded.
use super::flaw::Flaw;
use super::json::problem_of;
use super::roster::Roster;
use super::{DataSet, Entry, SampleKind, UsualPartition, locate, vocabulary};
use crate::{Dataset, Error, Labels, Owners, Place, Result, Samples, Sequences};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{BufRead, Read};
use std::num::NonZeroU16;
use std::path::Path;

/// No line may be longer: what a corrupt file without line breaks would otherwise fill the memory with.
const MOST_LINE_BYTES: u64 = 256 * 1024 * 1024;
const ONE_OBJECT_A_LINE: &str = "write one {\"client\": .., \"text\": ..} a line";

/// How text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Text {
    /// Symbols a chunk (the paper's T).
    pub length: NonZeroU16,
}

impl Default for Text {
    fn default() -> Self {
        Self { length: const { NonZeroU16::new(16).unwrap() } }
    }
}

impl DataSet for Text {
    const ENTRY: Entry = Entry {
        name: "text",
        about: "your own text by client, read as next-character prediction with the vocabulary of `shakespeare`",
        kind: SampleKind::Text,
        partition: UsualPartition::NATURAL,
        places: &[""],
        layout: "JSON lines, *.jsonl: one {\"client\": .., \"text\": ..} a line",
        licence: "your own",
        citation: "your own",
    };

    /// Reads a file of JSON lines, or every `*.jsonl` of a folder in order of the names.
    fn load(&self, path: &Path) -> Result<Dataset> {
        let mut clients = Clients::default();
        for file in locate::files(path, Text::ENTRY.places, &["*.jsonl"])? {
            clients = clients.read_lines(locate::open(&file)?, &file)?;
        }
        clients.into_dataset(Text::ENTRY.name, self)
    }

    fn description(&self) -> String {
        "text, of which the next character is predicted".into()
    }
}

/// Symbols gathered by client, from one file after the other.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    names: Roster,
    streams: Vec<Vec<u8>>,
}

impl Clients {
    /// Reads one file of JSON lines; empty lines are skipped.
    pub fn read_lines(mut self, mut input: impl BufRead, file: &Path) -> Result<Self> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = input.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line);
            if read.map_err(Error::io(file, "read it"))? == 0 {
                break;
            }
            self.add_line(&line).map_err(|flaw| flaw.at(Place::Line(number), file))?;
        }
        Ok(self)
    }

    /// Appends a snippet to what `client` has said so far.
    pub(super) fn add(&mut self, client: &str, snippet: &str) {
        let number = self.names.number(client) as usize;
        self.streams.resize_with(self.names.len(), Vec::new);
        let stream = &mut self.streams[number];
        stream.push(vocabulary::BEGIN);
        stream.extend(snippet.chars().map(vocabulary::symbol));
        stream.push(vocabulary::END);
    }

    /// Whether `client` has said anything so far.
    pub(super) fn has(&self, client: &str) -> bool {
        self.names.has(client)
    }

    /// Everything that was read, cut into chunks, clients in the order they first appeared.
    pub fn into_dataset(self, name: &str, options: &Text) -> Result<Dataset> {
        if self.streams.is_empty() {
            return Err(Error::unmeetable("no text was read", ONE_OBJECT_A_LINE));
        }
        let length = usize::from(options.length.get());
        let (mut inputs, mut targets, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for (client, stream) in (0u32..).zip(&self.streams) {
            extend_padded(&mut inputs, &stream[..stream.len() - 1], length);
            extend_padded(&mut targets, &stream[1..], length);
            owners.resize(inputs.len() / length, client);
        }
        Ok(Dataset {
            name: name.into(),
            samples: Samples::Sequences(Sequences { length, vocabulary: vocabulary::SIZE, symbols: inputs }),
            labels: Labels::NextSymbols(targets),
            owners: Some(Owners { names: self.names.into_names(), of: owners }),
            test_start: None,
        })
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), Flaw> {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return Ok(());
        }
        let Line { client, text } = parse(line)?;
        if text.is_empty() {
            return Err(Flaw::new(format!("the text of client `{client}` is empty"), "remove the line"));
        }
        self.add(&client, &text);
        Ok(())
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    client: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

fn parse(line: &[u8]) -> Result<Line<'_>, Flaw> {
    if line.len() as u64 >= MOST_LINE_BYTES {
        return Err(Flaw::new(format!("is longer than {MOST_LINE_BYTES} bytes"), ONE_OBJECT_A_LINE));
    }
    let line = std::str::from_utf8(line).map_err(|error| {
        let column = error.valid_up_to() + 1;
        Flaw::new(format!("is not UTF-8 from column {column} on"), "save the file as UTF-8")
    })?;
    serde_json::from_str(line)
        .map_err(|error| Flaw::new(format!("{} (column {})", problem_of(&error), error.column()), ONE_OBJECT_A_LINE))
}

/// Appends `symbols` and pads to whole chunks.
fn extend_padded(chunks: &mut Vec<u8>, symbols: &[u8], length: usize) {
    chunks.extend_from_slice(symbols);
    chunks.resize(chunks.len().next_multiple_of(length), vocabulary::PAD);
}
