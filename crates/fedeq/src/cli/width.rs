//! How wide the reader's terminal is, and text that fits in.
use std::env;

use terminal_size::{Width, terminal_size};

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
