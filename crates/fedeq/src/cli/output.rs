//! Where text, JSON and pictures go, and text that fits into the reader's terminal.
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Args;
use fedeq_report::draw::DataPicture;
use fedeq_run::number::count;
use serde::Serialize;
use terminal_size::{Width, terminal_size};

use super::failure::{Failure, Outcome};

/// Writes to stdout.
pub(super) fn print(text: &str) -> Outcome<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::output)
}

/// Writes to stdout for other programs.
pub(super) fn print_json(value: &impl Serialize) -> Outcome<()> {
    let json = serde_json::to_string_pretty(value).map_err(io::Error::from).map_err(Failure::output)?;
    print(&(json + "\n"))
}

/// Tells the person something beside the data itself.
pub(super) fn tell(text: &str) {
    // Nothing is lost that the person asked for if stderr is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether and where a command draws.
#[derive(Args, Clone, Debug)]
pub(super) struct PictureArgs {
    /// Where to draw [default: a file named after the data set, in this folder]
    #[arg(long, value_name = "FILE.png", value_parser = png_path)]
    out: Option<PathBuf>,
    /// Draw nothing
    #[arg(long, conflicts_with = "out")]
    no_picture: bool,
}

impl PictureArgs {
    /// Whether the person named a file, and so must get it.
    pub(super) fn is_asked_for(&self) -> bool {
        self.out.is_some()
    }

    /// The file to draw to: the one named, else one that says what `of` is; none if it was declined or only a program reads.
    pub(super) fn path(&self, of: &str, kind: &str, json: bool) -> Option<PathBuf> {
        let usual = || {
            let name = Path::new(of).file_stem().unwrap_or_else(|| OsStr::new("data")).to_string_lossy();
            PathBuf::from(format!("{name}-{kind}.png"))
        };
        self.out.clone().or_else(|| (!self.no_picture && !json).then(usual))
    }
}

/// Accepts only names of PNG files, before any work is done.
fn png_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_png = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    if is_png { Ok(path) } else { Err("pictures are written as PNG: name a file that ends in `.png`".into()) }
}

/// Writes a picture and says so.
pub(super) fn save(picture: DataPicture, path: &Path) -> Outcome<()> {
    let [width, height] = picture.size();
    let bytes = picture.png().map_err(Failure::io(path, "draw it"))?;
    fs::write(path, bytes).map_err(Failure::io(path, "write it"))?;
    tell(&format!("wrote `{}` ({} x {} pixels)", path.display(), count(width as usize), count(height as usize)));
    Ok(())
}

/// Lines are no longer than this where nobody says how wide the terminal is, and in terminals that are wider.
const USUAL: usize = 110;
/// No terminal is narrower; words would stand alone.
const NARROWEST: usize = 40;

/// The columns that text may have.
fn columns() -> usize {
    limit().unwrap_or(USUAL)
}

/// The columns that a table may have: those of the terminal, or what `COLUMNS` says; as many as it likes where stdout is a file.
pub(super) fn limit() -> Option<usize> {
    let told = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    terminal_size().map(|(Width(columns), _)| usize::from(columns)).or(told).map(|columns| columns.max(NARROWEST))
}

/// Lines of whole words that fit into the terminal; one line where there is none.
pub(super) fn wrapped_within(text: &str) -> String {
    wrap(text, "", "", limit().unwrap_or(usize::MAX))
}

/// Lines of whole words, each after an indent.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    wrap(text, indent, indent, columns().min(USUAL))
}

/// The same after a heading; the other lines are indented as far.
pub(super) fn wrapped_after(heading: &str, text: &str) -> String {
    wrap(text, heading, &" ".repeat(heading.chars().count()), columns().min(USUAL))
}

fn wrap(text: &str, first: &str, indent: &str, width: usize) -> String {
    let (mut lines, mut line, mut is_empty) = (String::new(), first.to_owned(), true);
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines += line.trim_end();
            lines.push('\n');
            (line, is_empty) = (indent.to_owned(), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    lines + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_longer_than_asked_for_unless_a_word_is() {
        assert_eq!(wrap("one two three", "- ", "  ", 9), "- one two\n  three\n");
        assert_eq!(wrap("incomprehensible", "", "", 5), "incomprehensible\n");
    }
}
