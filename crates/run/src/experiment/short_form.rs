//! Short names of the settings that are given most.
use fedeq_core::{Error, Result};

use super::registry::SettingInfo;
use super::setting::Override;

/// Short names, and the keys that they stand for.
pub const SHORT_FORMS: [(&str, &str); 6] = [
    ("method", "method"),
    ("model", "model"),
    ("rounds", "plan.rounds"),
    ("clients", "data.partition.clients"),
    ("lr", "training.learning_rate"),
    ("seed", "seed"),
];

impl Override {
    /// Refuses to say again what another setting says already, by whichever name. `written` and `other` are how both look to whoever wrote them.
    pub fn require_alone(
        &self,
        others: &[Self],
        written: impl FnOnce() -> String,
        other: impl FnOnce(&Self) -> String,
    ) -> Result<()> {
        let key = self.path.join(".");
        match others.iter().find(|other| is_same(&other.path.join("."), &key)) {
            None => Ok(()),
            Some(same) => {
                let problem = format!("`{}` and `{}` both say `{key}`", written(), other(same));
                Err(Error::invalid(problem, "leave one of them out"))
            }
        }
    }
}

/// Whether two keys are one, written out or not: `method` and `method.name`.
fn is_same(one: &str, other: &str) -> bool {
    one == other || SettingInfo::named(one).any(|setting| setting.key == other || setting.short.as_deref() == Some(other))
}
