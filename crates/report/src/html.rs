//! Words in HTML and SVG.

/// The text with everything replaced that would not stand for itself, inside and outside quoted attributes.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Escaped text in which what stands in backticks is code.
pub(crate) fn prose(text: &str) -> String {
    let parts: Vec<String> = text.split('`').map(escaped).collect();
    // A backtick without a partner stands for itself.
    if parts.len().is_multiple_of(2) {
        return parts.join("`");
    }
    let part = |(index, part): (usize, String)| if index % 2 == 1 { format!("<code>{part}</code>") } else { part };
    parts.into_iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_written_becomes_a_tag_or_leaves_an_attribute() {
        assert_eq!(escaped("<b a='1' c=\"2\">&"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;");
    }

    #[test]
    fn what_stands_in_backticks_is_code() {
        assert_eq!(prose("run `a <b>` now"), "run <code>a &lt;b&gt;</code> now");
        assert_eq!(prose("a ` alone"), "a ` alone");
    }
}
