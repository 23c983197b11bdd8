//! Text: JSON lines, one `{"text": ..}` a line. The model says what comes next.
use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result};
use fedeq_data::source::vocabulary::{BEGIN, PAD, symbol};
use fedeq_data::{Samples, Sequences};
use serde::Deserialize;

use super::question::Brought;

#[derive(Deserialize)]
struct Line {
    text: String,
}

pub(super) fn read(like: &Sequences, files: &[PathBuf]) -> Result<Brought> {
    let (mut names, mut symbols) = (Vec::new(), Vec::new());
    for file in files {
        let content = fs::read_to_string(file).map_err(Error::io(file, "read it"))?;
        for (index, line) in content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let Line { text } = serde_json::from_str(line).map_err(|error| malformed(file, index + 1, &error))?;
            symbols.extend(chunk(&text, like.length));
            names.push(format!("{}:{}", file.display(), index + 1));
        }
    }
    Ok(Brought { names, samples: Samples::Sequences(Sequences { symbols, ..like.clone() }) })
}

fn malformed(file: &Path, line: usize, error: &serde_json::Error) -> Error {
    Error::invalid(format!("`{}` on line {line}: {error}", file.display()), "write one {\"text\": ..} a line")
}

/// The last symbols of a text that has begun, padded to the length a model wants.
fn chunk(text: &str, length: usize) -> Vec<u8> {
    let all: Vec<u8> = [BEGIN].into_iter().chain(text.chars().map(symbol)).collect();
    let mut last = all[all.len().saturating_sub(length)..].to_vec();
    last.resize(length, PAD);
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_end_and_short_ones_are_padded() {
        assert_eq!(chunk("to be", 3), [' ', 'b', 'e'].map(symbol));
        assert_eq!(chunk("a", 4), [BEGIN, symbol('a'), PAD, PAD]);
    }
}
