//! Everything that is shown of an experiment: tables, figures and the README of its folder.
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Result, write_atomically};

use super::cell::{ExperimentCell, cells};
use super::chart::write_figures;
use super::results::{Measured, Results};
use super::spec::{ScaleName, Spec};
use super::table::markdown_tables;
use fedeq_run::experiment::Override;
use fedeq_run::number::{counted, duration};

/// Writes tables, figures and the README of an experiment's folder from the results that lie there, at both scales.
pub fn publish(spec: &Spec, overrides: &[Override], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
    let mut shown: Vec<Shown> = Vec::new();
    for scale in ScaleName::ALL {
        let cells: Vec<ExperimentCell> = cells(spec, scale, overrides)?;
        let results = Results::load(folder, &spec.name, scale, &cells)?;
        if !results.cells.is_empty() {
            let figures = write_figures(spec, &cells, &results, folder)?;
            shown.push(Shown { cells, results, figures });
        }
    }
    write_readme(spec, overrides, &shown, folder)
}

/// What stands between these lines is written again after every run; everything else is left as it is.
const BEGIN: &str = "<!-- begin: written by `fedeq reproduce`; edit only what is outside -->";
const END: &str = "<!-- end -->";

/// What a scale has to show.
struct Shown {
    cells: Vec<ExperimentCell>,
    results: Results,
    /// The names of its figures, without endings.
    figures: Vec<String>,
}

/// Writes the tables of a scale to `table-SCALE.md`, and everything that is known of all `scales` to `README.md`.
fn write_readme(spec: &Spec, overrides: &[Override], scales: &[Shown], folder: &Path) -> Result<()> {
    for Shown { cells, results, .. } in scales {
        let tables = markdown_tables(spec, cells, results, device(overrides).is_none())?;
        write_atomically(&folder.join(format!("table-{}.md", results.scale)), tables.as_bytes())?;
    }
    let path = folder.join("README.md");
    let before = if path.is_file() { fs::read_to_string(&path).map_err(Error::io(&path, "read it"))? } else { String::new() };
    write_atomically(&path, replaced(&before, spec, &generated(spec, overrides, scales, folder)?).as_bytes())
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

fn generated(spec: &Spec, overrides: &[Override], scales: &[Shown], folder: &Path) -> Result<String> {
    let notes: String = spec.notes.iter().map(|note| format!("\n\n{note}")).collect();
    let mut text = format!("{}.\n\n**Expected.** {}{notes}\n", spec.source, spec.expected.trim());
    for name in ScaleName::ALL {
        let shown = scales.iter().find(|shown| shown.results.scale == name);
        // The folder of another device has what was run there; the experiment itself is told in the usual one.
        if shown.is_none() && !scales.is_empty() && device(overrides).is_some() {
            continue;
        }
        text += &format!("\n## Scale `{name}`\n\n{}\n\n", spec.scale(name)?.about.trim());
        text += &format!("```sh\n{}\n```\n\n", command(spec, overrides, name)?);
        text += &shown.map_or_else(|| Ok(not_run(folder, name)), |shown| obtained(spec, overrides, shown))?;
    }
    Ok(text)
}

fn command(spec: &Spec, overrides: &[Override], scale: ScaleName) -> Result<String> {
    let data = if cells(spec, scale, overrides)?.iter().any(ExperimentCell::needs_data) { " --data DIR" } else { "" };
    let said: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let device = device(overrides).map(|device| format!(" --device {device}")).unwrap_or_default();
    let settings: String = said.iter().filter(|text| !text.starts_with(DEVICE)).map(|text| format!(" --set '{text}'")).collect();
    let out = if settings.is_empty() { "" } else { " --out DIR" };
    Ok(format!("fedeq reproduce {} --scale {scale}{data}{device}{settings}{out}", spec.name))
}

const DEVICE: &str = "engine.device=";

/// The device that is asked for; nothing where none is.
fn device(overrides: &[Override]) -> Option<String> {
    overrides.iter().find_map(|setting| setting.to_string().strip_prefix(DEVICE).map(str::to_owned))
}

/// Where nothing was run: the folder beside this one that has what a GPU computed, if there is one.
fn not_run(folder: &Path, scale: ScaleName) -> String {
    let beside = folder.file_name().map(|name| format!("{}-cuda", name.to_string_lossy()));
    let is_there = |name: &String| Results::path(&folder.with_file_name(name), scale).is_file();
    match beside.filter(is_there) {
        Some(name) => format!("Not run on a CPU. On a GPU, as far as it was run: [{name}](../{name}/README.md).\n"),
        None => "Not run.\n".into(),
    }
}

fn obtained(spec: &Spec, overrides: &[Override], Shown { cells, results, figures }: &Shown) -> Result<String> {
    let machines: Vec<String> = results.machines().iter().map(ToString::to_string).collect();
    let runs = results.cells.values().flat_map(|cell| &cell.runs);
    let seconds: f64 = runs.clone().filter_map(Measured::machine_seconds).sum();
    let most = results.seeds();
    let runs = format!("{} of {}", counted(runs.count(), "run"), counted(results.cells.len(), "cell"));
    let took =
        format!("{runs}, {} a cell at most, {} of training and evaluation in all", counted(most, "seed"), duration(seconds));
    let pictures: String = figures.iter().map(|name| format!("\n![{name}]({name}.svg)\n")).collect();
    let tables = markdown_tables(spec, cells, results, device(overrides).is_none())?;
    Ok(format!("**Obtained** on {}: {took}.\n\n{tables}{pictures}", machines.join("; and on ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_run_here_is_looked_for_in_the_folder_of_the_gpu() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let [own, beside] = ["tiny", "tiny-cuda"].map(|name| folder.path().join(name));
        assert_eq!(not_run(&own, ScaleName::Full), "Not run.\n");
        fs::create_dir_all(&beside).expect("made");
        fs::write(Results::path(&beside, ScaleName::Full), "{}").expect("written");
        assert!(not_run(&own, ScaleName::Full).contains("[tiny-cuda](../tiny-cuda/README.md)"));
        assert_eq!(not_run(&own, ScaleName::Small), "Not run.\n");
    }

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
