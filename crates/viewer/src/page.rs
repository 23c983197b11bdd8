//! The page, embedded in the program: nothing is built, and nothing comes from elsewhere.
//!
//! Its scripts are modules of one idea each. They are joined to one script here, in the order of their imports, since a page on disk cannot load modules; the
//! dashboard serves the same script. What that asks of the modules is checked by a test: imports by name on one line each, and no top-level name twice.
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The page of a dashboard.
pub const INDEX: &str = include_str!("../assets/index.html");
/// Its icon.
pub const ICON: &str = include_str!("../assets/icon.svg");
const CHART_SCRIPT: &str = include_str!("../assets/vendor/uPlot.iife.min.js");
const CHART_STYLE: &str = include_str!("../assets/vendor/uPlot.min.css");
const STYLE: &str = include_str!("../assets/style.css");

macro_rules! modules {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("../assets/", $name)))),*] };
}

/// In the order in which they are joined: what a module imports stands before it.
const MODULES: [(&str, &str); MODULE_COUNT] = modules![
    "dom.js",
    "format.js",
    "state.js",
    "columns.js",
    "live.js",
    "embedded.js",
    "source.js",
    "measures.js",
    "labels.js",
    "colour.js",
    "lines.js",
    "division.js",
    "scale.js",
    "picture.js",
    "export.js",
    "readout.js",
    "chart.js",
    "board_address.js",
    "board_state.js",
    "legend.js",
    "controls.js",
    "curves.js",
    "runs_columns.js",
    "runs_table.js",
    "groups_table.js",
    "differences.js",
    "side_by_side.js",
    "confusion.js",
    "contents.js",
    "report.js",
    "overview.js",
    "actions.js",
    "workers.js",
    "client_table.js",
    "run.js",
    "client.js",
    "app.js",
];
const MODULE_COUNT: usize = 37;

/// All scripts of the page but the chart library's, as one.
pub static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    let modules: String = MODULES.iter().map(|(name, text)| format!("// {name}\n{}", joined(text))).collect();
    format!("(() => {{\n\"use strict\";\n{modules}}})();\n")
});

/// The chart library (uPlot, MIT; see `assets/vendor`).
pub const LIBRARY: &str = CHART_SCRIPT;

/// All styles of the page.
pub static STYLES: LazyLock<String> = LazyLock::new(|| format!("{CHART_STYLE}\n{STYLE}"));

/// A module without its imports and exports.
fn joined(text: &str) -> String {
    let line = |line: &str| {
        let line = line.strip_prefix("export ").unwrap_or(line);
        if line.starts_with("import ") { String::new() } else { format!("{line}\n") }
    };
    text.lines().map(line).collect()
}

/// The page in a file of its own, with its data inside. Nothing in the data can become a tag or a script: it is a block of data in which every `<` is written as an
/// escape, and the page's policy lets no script run but the two that are its own, and nothing be loaded.
pub fn standalone(title: &str, data: &impl Serialize) -> serde_json::Result<String> {
    let data = serde_json::to_string(data)?.replace('<', "\\u003c");
    let (script, styles) = (&*SCRIPT, &*STYLES);
    let policy = format!(
        "default-src 'none'; script-src '{}' '{}'; style-src '{}'; img-src data: blob:; base-uri 'none'; form-action 'none'",
        fingerprint(LIBRARY),
        fingerprint(script),
        fingerprint(styles)
    );
    let icon = STANDARD.encode(ICON);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"content-security-policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n\
         <link rel=\"icon\" href=\"data:image/svg+xml;base64,{icon}\">\n<style>{styles}</style>\n</head>\n<body class=\"report\">\n{BODY}\
         <script id=\"data\" type=\"application/json\">{data}</script>\n<script>{LIBRARY}</script>\n<script>{script}</script>\n</body>\n</html>\n",
        escaped(title)
    ))
}

/// What is inside the page before its scripts run.
const BODY: &str = "<a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header class=\"top\"><a class=\"home\" href=\"#/\">fedeq</a>\
    <p id=\"connection\" class=\"connection\" role=\"status\"></p></header>\n<main id=\"main\" tabindex=\"-1\"></main>\n\
    <noscript><p class=\"notice bad\">This page needs JavaScript. <code>fedeq report --format md</code> writes its tables as text.</p></noscript>\n";

/// By which a policy knows a script or a style.
fn fingerprint(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The name that a line of a module defines for the whole of it.
    fn defined(line: &str) -> Option<&str> {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        let rest = ["function ", "const ", "let ", "class "].iter().find_map(|kind| line.strip_prefix(kind))?;
        rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '$')
            .next()
            .filter(|name| !name.is_empty())
    }

    #[test]
    fn modules_can_be_joined() {
        let (mut names, mut before) = (BTreeSet::new(), BTreeSet::new());
        for (module, text) in MODULES {
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("import ") {
                    let (things, from) = rest.split_once(" from ").expect("by name, on one line");
                    assert!(things.starts_with("{ ") && things.ends_with(" }") && !things.contains(" as "), "{module}: {line}");
                    let from = from.trim_matches([';', '"']).trim_start_matches("./");
                    assert!(before.contains(from), "{module} imports {from}, which stands after it");
                }
                if let Some(rest) = line.strip_prefix("export ") {
                    assert!(defined(rest).is_some(), "{module}: {line}");
                }
                if let Some(name) = defined(line) {
                    assert!(names.insert(name), "{module} defines {name}, which another module has already");
                }
            }
            assert!(!text.contains("</script") && !text.contains("innerHTML") && !text.contains("eval("), "{module}");
            before.insert(module);
        }
    }

    #[test]
    fn what_is_imported_is_exported() {
        for (module, text) in MODULES {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let (things, from) = line.trim_start_matches("import { ").split_once(" } from \"./").expect("by name");
                let (_, source) = MODULES.iter().find(|(name, _)| *name == from.trim_end_matches("\";")).expect("a module");
                let exported: BTreeSet<&str> =
                    source.lines().filter(|line| line.starts_with("export ")).filter_map(defined).collect();
                for thing in things.split(", ") {
                    assert!(exported.contains(thing), "{module} imports {thing} from {from}");
                }
            }
        }
    }

    #[test]
    fn the_library_is_the_one_that_was_published() {
        let hash = |text: &str| Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let list = include_str!("../assets/vendor/README.md");
        assert!(list.contains(&hash(CHART_SCRIPT)) && list.contains(&hash(CHART_STYLE)), "the checksums of the list");
    }

    #[test]
    fn data_cannot_leave_its_block() {
        let page = standalone("a <b>", &["</script><script>alert(1)</script>", "<!--"]).expect("a page");
        assert!(page.contains("<title>a &lt;b&gt;</title>") && !page.contains("alert(1)</script>") && !page.contains("<!--"));
        assert!(page.contains(r#"["\u003c/script>\u003cscript>alert(1)\u003c/script>","\u003c!--"]"#));
        assert_eq!(page.matches("</script>").count(), 3, "the data, the library and the page's own");
    }
}
