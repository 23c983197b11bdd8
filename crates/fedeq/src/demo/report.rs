//! The results as a page to keep.
use std::path::{Path, PathBuf};

use fedeq_core::{Result, write_atomically};

use super::curve::svg;
use super::entry::{COLUMNS, Entry};
use super::verdict::verdict;

const STYLE: &str = "\
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1.5rem 0 }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ced4da }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
svg { max-width: 45rem; font-size: 13px }
svg polyline { fill: none; stroke-width: 2.5 }
svg .level { stroke: #ced4da }
";

/// Writes `report.html`, which needs no other file, into a folder; returns its path.
pub fn write_report(folder: &Path, entries: &[Entry]) -> Result<PathBuf> {
    let path = folder.join("report.html");
    write_atomically(&path, page(entries).as_bytes())?;
    Ok(path)
}

fn page(entries: &[Entry]) -> String {
    let clients = entries.first().map_or(0, |entry| entry.summary.clients);
    let seed = entries.first().map_or(0, |entry| entry.summary.seed);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Four methods on digits</title>\n\
         <style>\n{STYLE}</style>\n<h1>Four methods on digits</h1>\n\
         <p>{clients} clients with at most three different digits each and about nine samples to learn from, seed {seed}. Accuracy is the mean over clients, on samples that nobody trained \
         with; the worst tenth is the mean over the tenth of the clients that fare worst.</p>\n\
         {}<h2>Accuracy over rounds</h2>\n{}<p>{}</p>\n\
         <p>The folders beside this file hold the four runs: experiment, metrics, checkpoints and every client's model.</p>\n</html>\n",
        table(entries),
        svg(entries),
        escaped(&verdict(entries).join(" "))
    )
}

fn table(entries: &[Entry]) -> String {
    let row = |tag: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let heading = row("th", &COLUMNS.map(str::to_owned));
    let rows: String = entries.iter().map(|entry| row("td", &entry.cells())).collect();
    format!("<table>\n{heading}{rows}</table>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
