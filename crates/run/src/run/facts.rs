//! What came out of a run, in words.
use fedeq_core::{SolveTally, View};

use super::engine::DeviceUse;
use super::summary::RunSummary;
use crate::number::{bytes, count, counted, percent};

impl RunSummary {
    /// What it is, in a line.
    pub fn title(&self) -> String {
        let rounds = counted(self.rounds as usize, "round");
        format!("{} on {} with {}, {rounds}", self.method, self.data, self.model)
    }

    /// What there is to say about it: names, and values in words.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let quality = self.quality();
        let traffic = self.evaluation.traffic;
        let mut lines = vec![
            ("accuracy", format!("{} (mean over {}, {})", percent(quality.mean), who(self), judged(self.headline))),
            ("worst tenth", percent(quality.worst_decile)),
            ("sent", format!("{} up, {} down", bytes(traffic.up), bytes(traffic.down))),
            ("parameters", format!("{} shared, {} personal", count(self.shared_parameters), count(self.personal_parameters))),
            ("a round", format!("{:.1} s", self.resources.seconds_per_round)),
        ];
        if let Some(attack) = &self.attack {
            lines.insert(1, ("attack", format!("{} by {}", attack.kind.name(), liars(&attack.names))));
        }
        if let Some(unseen) = &self.unseen {
            let clients = counted(unseen.clients, "client");
            lines.insert(2, ("unseen", format!("{} (mean over {clients}, {})", percent(unseen.local.mean), judged(View::Local))));
        }
        if let (View::Local, Some(shared)) = (self.headline, &self.evaluation.shared) {
            lines.insert(1, ("shared", format!("{} ({})", percent(shared.mean), judged(View::Shared))));
        } else if self.headline == View::Shared {
            lines.insert(1, ("local", format!("{} ({})", percent(self.evaluation.local.mean), judged(View::Local))));
        }
        lines.extend(self.privacy.as_ref().map(|privacy| ("privacy", privacy.to_string())));
        lines.extend(solves(&self.solves).map(|text| ("solves", text)));
        lines.extend(self.resources.peak_memory.map(|peak| ("peak memory", bytes(peak))));
        lines.extend(self.resources.device.map(|used| ("GPU", device_use(&used))));
        lines
    }
}

/// What the equilibrium solves of training took and how they ended; nothing where there were none.
fn solves(solves: &SolveTally) -> Option<String> {
    let ([steps, _, unconverged], warm) = (solves.means()?, solves.warm_share()?);
    let warm = if warm > 0.0 { format!(", {} started warm", percent(warm)) } else { String::new() };
    let broken = percent(solves.not_finite as f64 / solves.samples as f64);
    let broken = if solves.not_finite > 0 { format!(", {broken} became NaN or infinite") } else { String::new() };
    Some(format!("{steps:.1} steps a sample{warm}, {} did not converge{broken}", percent(unconverged)))
}

/// What a GPU held and did.
fn device_use(used: &DeviceUse) -> String {
    format!("{} at most, at work {} of the time", bytes(used.peak_memory), percent(used.utilisation))
}

/// Whose accuracies are averaged.
fn who(summary: &RunSummary) -> String {
    let all = summary.quality().clients.len();
    match &summary.attack {
        Some(attack) => format!("{} that do not lie", counted(all - attack.liars.len(), "client")),
        None => counted(all, "client"),
    }
}

/// Who lies: all of them, or the first few.
fn liars(names: &[String]) -> String {
    const MOST: usize = 10;
    let first = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "no client".into(),
        1..=MOST => first,
        many => format!("{} clients: {first} ..", count(many)),
    }
}

/// With which of its models a client is evaluated, in words.
fn judged(view: View) -> &'static str {
    match view {
        View::Local => "each client's own model",
        View::Shared => "the server's model with each client's head",
    }
}
