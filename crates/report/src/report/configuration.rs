//! What was asked for, where runs differ in it, and how to do it again.
use std::collections::{BTreeMap, BTreeSet};

use fedeq_core::Result;

use super::table::ReportTable;
use super::{MethodLine, Report, RunRecord};
use fedeq_run::run::Version;

/// The settings in which lines differ, side by side; nothing for a single line.
pub(super) fn differences(report: &Report) -> Result<Option<ReportTable>> {
    let first = |line: &MethodLine| line.runs(&report.runs)[0].experiment.settings();
    let settings = report.lines.iter().map(first).collect::<Result<Vec<BTreeMap<String, String>>>>()?;
    let keys: BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
    let differs = |key: &&String| settings.iter().any(|other| other.get(*key) != settings[0].get(*key));
    let value = |settings: &BTreeMap<String, String>, key: &String| settings.get(key).cloned().unwrap_or_else(|| "–".into());
    let row = |key: &String| {
        std::iter::once(key.clone()).chain(settings.iter().map(|settings| value(settings, key))).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = keys.into_iter().filter(differs).map(row).collect();
    let heading: Vec<String> =
        std::iter::once("setting".to_owned()).chain(report.lines.iter().map(|line| line.name.clone())).collect();
    Ok((!rows.is_empty()).then(|| ReportTable { words: heading.len(), heading, rows, best: Vec::new() }))
}

/// The commands that carry out all runs again, from what their folders hold.
pub(super) fn commands(report: &Report) -> String {
    report.runs.iter().map(|run| format!("{}\n", command(run))).collect()
}

fn command(run: &RunRecord) -> String {
    let folder = quoted(&run.path.display().to_string());
    let file = quoted(&run.path.join("experiment.toml").display().to_string());
    let again = quoted(&format!("{}-again", run.path.display()));
    if !run.experiment.engine.earlier_devices.is_empty() && run.is_finished() {
        // No single run does that.
        return format!("# {folder} was computed on {}", run.experiment.devices());
    }
    if run.is_finished() { format!("fedeq run {file} --out {again}") } else { format!("fedeq resume {folder}") }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-+=,:@".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Which programs carried out the runs.
pub(super) fn programs(report: &Report) -> String {
    let words = |Version { fedeq, system, architecture, gpu, .. }: &Version| {
        let gpu = gpu.as_ref().map(|gpu| format!(" with {}", gpu.name)).unwrap_or_default();
        format!("fedeq {fedeq} on {system} ({architecture}){gpu}")
    };
    let programs: BTreeSet<String> = report.runs.iter().filter_map(|run| run.program.as_ref()).map(words).collect();
    if programs.is_empty() { "an unknown version of fedeq".into() } else { programs.into_iter().collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_sees_one_word() {
        assert_eq!(
            (quoted("runs/fedeq-0"), quoted("my run"), quoted("it's")),
            ("runs/fedeq-0".into(), "'my run'".into(), "'it'\\''s'".into())
        );
    }
}
