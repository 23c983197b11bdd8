//! Text broken into lines of a given width.
use super::canvas::Pen;

/// Breaks at line ends and, where a line is too wide, at spaces; a single word that is too wide is cut.
///
/// Empty lines are kept; no more than `most` lines are returned.
pub fn wrap(text: &str, pen: Pen, width: u32, most: usize) -> Vec<String> {
    text.lines().flat_map(|line| wrap_line(line, pen, width)).take(most).collect()
}

fn wrap_line(line: &str, pen: Pen, width: u32) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let current = lines.last_mut().expect("there is always a line");
        let longer = if current.is_empty() { word.to_owned() } else { format!("{current} {word}") };
        if pen.length(&longer) <= width {
            *current = longer;
        } else if current.is_empty() {
            *current = shorten(word, pen, width);
        } else {
            lines.push(shorten(word, pen, width));
        }
    }
    lines
}

/// The text itself, or as much of its beginning as fits, with an ellipsis.
pub fn shorten(text: &str, pen: Pen, width: u32) -> String {
    if pen.length(text) <= width {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while kept.pop().is_some() {
        let shorter = format!("{}…", kept.trim_end());
        if pen.length(&shorter) <= width {
            return shorter;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::super::canvas::PLAIN;
    use super::*;

    #[test]
    fn no_line_is_wider_than_asked() {
        let text = "To be, or not to be, that is the question:\n\nWhether 'tis nobler in the mind to suffer";
        let lines = wrap(text, PLAIN, 200, 100);
        assert!(lines.iter().all(|line| PLAIN.length(line) <= 200));
        assert_eq!(lines.join(" ").split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        assert!(lines.contains(&String::new()));
    }

    #[test]
    fn a_word_wider_than_the_line_is_shortened() {
        let lines = wrap("Honorificabilitudinitatibus", PLAIN, 120, 10);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with('…') && PLAIN.length(&lines[0]) <= 120);
    }
}
