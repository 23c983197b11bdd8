//! What Shakespeare's roles say, one client a role: [JSON lines](super::text), or the JSON LEAF makes.
//!
//! LEAF stores a role as windows that slide over its text by one character: `x` holds the windows (80 characters each) and `y` the
//! character after each. The text is put together again: as long as a window is the one before it moved on by one
//! character the two belong to one snippet; where that breaks, as it does in a sample of LEAF's windows, a new snippet
//! begins. The snippets are then treated like those of any other [text](super::text).
#[cfg(feature = "fetch")]
use super::Source;
use super::json::Each;
use super::leaf::{self, Users};
use super::text::{Clients, Text};
use super::{DataSet, Entry, SampleKind, UsualPartition, locate, stand_in, vocabulary};
#[cfg(feature = "fetch")]
use crate::fetch::{Offer, Recipe, Ways};
use crate::{Dataset, Result};
use schemars::JsonSchema;
use serde::de::{IgnoredAny, MapAccess};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

const REMEDY: &str = "make the file again with LEAF's `preprocess.sh`, or download it again";

/// Shakespeare's roles, cut like any other [text](super::text).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Shakespeare(pub Text);

impl DataSet for Shakespeare {
    const ENTRY: Entry = Entry {
        name: "shakespeare",
        about: "the complete works by speaking role, next-character prediction over 90 symbols",
        kind: SampleKind::Text,
        partition: UsualPartition { owners: Some(200), ..UsualPartition::NATURAL },
        places: &["", "shakespeare", "all_data", "data/all_data", "shakespeare/data/all_data"],
        layout: "roles.jsonl, one {\"client\": .., \"text\": ..} a line, or LEAF's all_data*.json",
        licence: "the edition LEAF uses is for non-commercial use",
        citation: "Caldas et al. (2018), LEAF: A Benchmark for Federated Settings",
    };

    fn load(&self, path: &Path) -> Result<Dataset> {
        load(path, &self.0)
    }

    fn stand_in(&self) -> Option<Dataset> {
        Some(stand_in::owned_text(Self::ENTRY.name, self.0.length.get().into(), vocabulary::SIZE))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Recipe(Recipe {
            source: Source::Shakespeare(Self::default()),
            folder: "shakespeare",
            names: &[("roles", ".jsonl"), ("all_data", ".json")],
            ways: Ways::Prepared {
                reason: "Project Gutenberg publishes the complete works as one text, which LEAF's scripts cut into speaking roles",
                steps: &[
                    "git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/shakespeare",
                    "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample    # fetches ebook 100 from gutenberg.org, whose address has moved before",
                    "fedeq data get shakespeare --from data/all_data",
                ],
            },
        }))
    }
}

/// Reads JSON lines (`roles*.jsonl`) where there are any, else LEAF's JSON (`all_data*.json`).
pub fn load(path: &Path, options: &Text) -> Result<Dataset> {
    let mut roles = Clients::default();
    for file in locate::files(path, Shakespeare::ENTRY.places, &["roles*.jsonl", "all_data*.json"])? {
        let input = locate::open(&file)?;
        roles = match file.extension() {
            Some(extension) if extension == "json" => read_leaf(roles, input, &file)?,
            _ => roles.read_lines(input, &file)?,
        };
    }
    roles.into_dataset(Shakespeare::ENTRY.name, options)
}

/// Reads one of LEAF's files on top of what was read before; a role that is already there is an error.
pub fn read_leaf(roles: Clients, input: impl Read, file: &Path) -> Result<Clients> {
    let mut reader = Reader { roles, role: String::new(), windows: Windows::default(), following: Vec::new() };
    leaf::read(input, file, &mut reader, REMEDY)?;
    Ok(reader.roles)
}

/// The roles so far, and the one being read.
struct Reader {
    roles: Clients,
    role: String,
    windows: Windows,
    following: Vec<char>,
}

impl Users for Reader {
    fn begin(&mut self, name: &str) -> Result<(), String> {
        if self.roles.has(name) {
            return Err(format!("role `{name}` was read before"));
        }
        self.role = name.into();
        Ok(())
    }

    fn field<'de, A: MapAccess<'de>>(&mut self, key: &str, role: &mut A, sample: &mut Option<u64>) -> Result<(), A::Error> {
        match key {
            "x" => role.next_value_seed(Each::new(sample, |window: String| self.windows.push(window))),
            "y" => role.next_value_seed(Each::new(sample, |character: String| {
                self.following.push(only_character(&character)?);
                Ok(())
            })),
            _ => role.next_value::<IgnoredAny>().map(|_| ()),
        }
    }

    fn end(&mut self) -> Result<u64, String> {
        let windows = std::mem::take(&mut self.windows);
        let following = std::mem::take(&mut self.following);
        if windows.count != following.len() {
            return Err(format!("`x` has {} windows but `y` has {} characters", windows.count, following.len()));
        }
        if windows.count == 0 {
            return Err("the role has no text".into());
        }
        for snippet in &windows.snippets {
            self.roles.add(&self.role, &snippet.completed(&following)?);
        }
        Ok(windows.count as u64)
    }
}

fn only_character(text: &str) -> Result<char, String> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Ok(character),
        _ => Err(format!("`y` should be one character, not `{text}`")),
    }
}

/// Windows put together into snippets as they come in, so that eighty copies of a text are never held.
#[derive(Default)]
struct Windows {
    snippets: Vec<Snippet>,
    last: String,
    count: usize,
}

impl Windows {
    fn push(&mut self, window: String) -> Result<(), String> {
        let (rest, newest) = split_last(&window).ok_or("the window is empty")?;
        match self.snippets.last_mut() {
            Some(snippet) if without_first(&self.last) == rest => snippet.text.push(newest),
            _ => self.snippets.push(Snippet { text: window.clone(), first: self.count, window: window.chars().count() }),
        }
        self.last = window;
        self.count += 1;
        Ok(())
    }
}

/// A stretch of text: a first window, and the last character of every window that continues it.
struct Snippet {
    text: String,
    /// The number of the first window.
    first: usize,
    /// Characters a window.
    window: usize,
}

impl Snippet {
    /// The text with the character that follows its last window; `following` must agree with the windows all the way.
    fn completed(&self, following: &[char]) -> Result<String, String> {
        let mut following = (self.first..).zip(&following[self.first..]);
        for next in self.text.chars().skip(self.window) {
            match following.next() {
                Some((_, &said)) if said == next => (),
                Some((sample, said)) => {
                    return Err(format!("`y` of sample {sample} is `{said}`, but `x` continues with `{next}`"));
                }
                None => return Err("`x` is longer than `y`".into()),
            }
        }
        let last = following.next().map(|(_, &character)| character);
        Ok(self.text.chars().chain(last).collect())
    }
}

fn split_last(text: &str) -> Option<(&str, char)> {
    let last = text.chars().next_back()?;
    Some((&text[..text.len() - last.len_utf8()], last))
}

fn without_first(text: &str) -> &str {
    let mut characters = text.chars();
    characters.next();
    characters.as_str()
}
