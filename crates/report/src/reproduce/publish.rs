//! Everything that is shown of an experiment: tables, figures and the README of its folder.
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Result, write_atomically};

use super::cell::{ExperimentCell, cells};
use super::chart::write_figures;
use super::metric::Metric;
use super::results::Results;
use super::spec::{ScaleName, Spec};
use super::table::markdown_tables;
use fedeq_run::experiment::Override;
use fedeq_run::number::{counted, duration};

/// Writes tables, figures and the README of an experiment's folder from the results that lie there, at both scales.
pub fn publish(spec: &Spec, overrides: &[Override], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
    let mut shown: Vec<(Results, Vec<String>)> = Vec::new();
    for scale in ScaleName::ALL {
        let cells: Vec<ExperimentCell> = cells(spec, scale, overrides)?;
        let results = Results::load(folder, &spec.name, scale, &cells)?;
        if !results.cells.is_empty() {
            let figures = write_figures(spec, &cells, &results, folder)?;
            shown.push((results, figures));
        }
    }
    let shown: Vec<(&Results, &[String])> = shown.iter().map(|(results, figures)| (results, figures.as_slice())).collect();
    write_readme(spec, overrides, &shown, folder)
}

/// What stands between these lines is written again after every run; everything else is left as it is.
const BEGIN: &str = "<!-- begin: written by `fedeq reproduce`; edit only what is outside -->";
const END: &str = "<!-- end -->";

/// What a scale has to show: its results and the names of its figures, without endings.
type Shown<'a> = (&'a Results, &'a [String]);

/// Writes the tables of a scale to `table-SCALE.md`, and everything that is known of all `scales` to `README.md`.
fn write_readme(spec: &Spec, overrides: &[Override], scales: &[Shown<'_>], folder: &Path) -> Result<()> {
    for (results, _) in scales {
        let tables = markdown_tables(spec, results)?;
        write_atomically(&folder.join(format!("table-{}.md", results.scale)), tables.as_bytes())?;
    }
    let path = folder.join("README.md");
    let before = if path.is_file() { fs::read_to_string(&path).map_err(Error::io(&path, "read it"))? } else { String::new() };
    write_atomically(&path, replaced(&before, spec, &generated(spec, overrides, scales)?).as_bytes())
}

/// The old text with what is between the lines exchanged.
fn replaced(before: &str, spec: &Spec, generated: &str) -> String {
    let section = format!("{BEGIN}\n\n{generated}\n{END}");
    match (before.find(BEGIN), before.find(END)) {
        (Some(begin), Some(end)) if begin < end => format!("{}{section}{}", &before[..begin], &before[end + END.len()..]),
        _ if before.is_empty() => format!("# {}: {}\n\n{section}\n", spec.name, spec.title),
        _ => format!("{}\n\n{section}\n", before.trim_end()),
    }
}

fn generated(spec: &Spec, overrides: &[Override], scales: &[Shown<'_>]) -> Result<String> {
    let notes: String = spec.notes.iter().map(|note| format!("\n\n{note}")).collect();
    let mut text = format!("{}.\n\n**Expected.** {}{notes}\n", spec.source, spec.expected.trim());
    for name in ScaleName::ALL {
        text += &format!("\n## Scale `{name}`\n\n{}\n\n", spec.scale(name)?.about.trim());
        text += &format!("```sh\n{}\n```\n\n", command(spec, overrides, name)?);
        match scales.iter().find(|(results, _)| results.scale == name && !results.cells.is_empty()) {
            Some(shown) => text += &obtained(spec, *shown)?,
            None => text += "Not run.\n",
        }
    }
    Ok(text)
}

fn command(spec: &Spec, overrides: &[Override], scale: ScaleName) -> Result<String> {
    let data = if cells(spec, scale, overrides)?.iter().any(ExperimentCell::needs_data) { " --data DIR" } else { "" };
    let said: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let device = |text: &String| text.strip_prefix("engine.device=").map(|device| format!(" --device {device}"));
    let devices: String = said.iter().filter_map(device).collect();
    let settings: String = said.iter().filter(|text| device(text).is_none()).map(|text| format!(" --set '{text}'")).collect();
    let out = if settings.is_empty() { "" } else { " --out DIR" };
    Ok(format!("fedeq reproduce {} --scale {scale}{data}{devices}{settings}{out}", spec.name))
}

fn obtained(spec: &Spec, (results, figures): Shown<'_>) -> Result<String> {
    let machines: Vec<String> = results.machines().iter().map(ToString::to_string).collect();
    let runs = results.cells.values().flat_map(|cell| &cell.runs);
    let seconds: f64 = runs.clone().filter_map(|run| run.metrics.get(&Metric::Seconds)).sum();
    let most = results.seeds();
    let runs = format!("{} of {}", counted(runs.count(), "run"), counted(results.cells.len(), "cell"));
    let took =
        format!("{runs}, {} a cell at most, {} of training and evaluation in all", counted(most, "seed"), duration(seconds));
    let pictures: String = figures.iter().map(|name| format!("\n![{name}]({name}.svg)\n")).collect();
    Ok(format!("**Obtained** on {}: {took}.\n\n{}{pictures}", machines.join("; and on "), markdown_tables(spec, results)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_wrote_around_the_results_stays() {
        let spec =
            Spec::parse("tiny", "title = 'Tiny'\nsource = ''\nexpected = ''\npart = []\n[scale]").expect("a specification");
        let first = replaced("", &spec, "one");
        assert!(first.starts_with("# tiny: Tiny\n\n<!-- begin"), "{first}");
        let edited = format!("{first}\nSeen by a person.\n");
        let second = replaced(&edited, &spec, "two");
        assert_eq!(second, edited.replace("one", "two"));
        assert!(replaced("# Own words\n", &spec, "three").starts_with("# Own words\n\n<!-- begin"));
    }
}
