//! The switches of the methods.
use fedeq_core::{Error, Method, Result};
use fedeq_data::source::Source;
use serde_json::{Value, json};

use super::Preset;
use super::runner::Runner;

/// The method as a preset has it.
pub(super) fn tuned(name: &str, preset: Preset, source: &Source) -> Result<Method> {
    let mut settings = switches(name, preset, &Runner::of(source));
    let known = Method::named(name)?;
    settings["name"] = known.name().into();
    serde_json::from_value(settings).map_err(|error| Error::invalid(format!("a preset of `{name}`: {error}"), "report this"))
}

/// The settings in which a preset differs from the method's own defaults.
fn switches(name: &str, preset: Preset, runner: &Runner) -> Value {
    let (is_text, is_reference) = (runner.is_text, preset == Preset::Reference);
    let weighting = if is_text { "uniform" } else { "samples" };
    match (name, preset) {
        ("fedeq", Preset::Recommended) => json!({ "start": "received" }),
        ("fedeq", Preset::Paper) => json!({ "start": "own" }),
        ("fedeq", Preset::Reference) => json!({
            "start": "own-if-consecutive",
            "head_on": "start",
            "weighting": weighting,
            "dual": if is_text { json!({ "constant": 0.001 }) } else { json!("zero") },
            "per_symbol": is_text,
        }),
        ("ditto", _) => json!({
            "penalty": runner.penalty,
            "start": if is_reference { "trained" } else { "own" },
            "adapt_unseen": !is_reference,
        }),
        ("fedavg", _) => json!({ "adapt_unseen": !is_reference }),
        ("fedavg-ft", Preset::Reference) => json!({ "tuning": { "from-share": 0.3 } }),
        ("fedper", Preset::Reference) => json!({ "weighting": weighting, "head_first": true }),
        _ => json!({}),
    }
}
