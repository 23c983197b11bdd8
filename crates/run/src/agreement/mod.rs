//! What the owner of a device agrees to: one experiment, with what it does with the device's data and what it sends.
//!
//! A server sends the experiment with every request. Who owns the data decides beforehand, by a fingerprint, which one may be carried out.
//!
//! # Layout
//! - this file: an agreement, its file and its fingerprint
//! - `request`: which requests belong to it
//! - `signing`: the list of keys by which clients know each other
//! - `words`: what it means, for people
mod request;
mod signing;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use fedeq_core::{Error, Result, Weights};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use signing::SigningKeys;
pub use words::Section;

use crate::experiment::Experiment;

/// The name of its file in an app.
pub const AGREEMENT_FILE: &str = "agreement.toml";

/// The version of the format, which is part of the fingerprint.
const FORMAT: u32 = 1;

/// The longest text of an experiment. Lists of classes and scales of columns may be long; everything else is short.
const LONGEST: usize = 4 << 20;

/// An experiment as a node carries it out, and what it sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreement {
    format: u32,
    /// The arrays that are received before and sent after training, in order of their names.
    sent: Vec<SentArray>,
    /// Method, network, task, data, training and rounds; nothing of a machine.
    experiment: Experiment,
}

/// An array that is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentArray {
    name: String,
    shape: Vec<usize>,
}

/// Identifies an agreement: the first 192 bits of a SHA-256 over all of it, in hexadecimal. Who wanted two agreements with the same one would have to try 2^96 of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgreementFingerprint(String);

/// Hexadecimal digits of a fingerprint.
const DIGITS: usize = 48;

impl Agreement {
    /// The agreement on an experiment whose server sends these weights.
    pub fn new(experiment: Experiment, weights: &Weights) -> Self {
        let packed = weights.packed();
        Self::about(experiment, packed.iter().map(|(name, array)| (name.to_owned(), array.shape.clone())))
    }

    fn about(experiment: Experiment, arrays: impl Iterator<Item = (String, Vec<usize>)>) -> Self {
        let sent = arrays.map(|(name, shape)| SentArray { name, shape }).collect();
        Self { format: FORMAT, sent, experiment: experiment.on_another_machine("".into()) }
    }

    /// What a server asks for: the text of an experiment, and the names and shapes of weights.
    pub fn of_request(experiment: &str, arrays: Vec<(String, Vec<usize>)>) -> Result<Self> {
        require_short(experiment)?;
        Ok(Self::about(Experiment::from_resolved(experiment)?, arrays.into_iter()))
    }

    /// Reads a file, or the one of an app's folder.
    pub fn read(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join(AGREEMENT_FILE) } else { path.to_owned() };
        let text = fs::read_to_string(&file).map_err(Error::io(&file, "read it"))?;
        let name = |error: Error| Error::invalid(format!("`{}` is {error}", file.display()), WRITE_AGAIN);
        Self::from_toml(&text).map_err(name)
    }

    /// Reads what [`to_toml`](Self::to_toml) wrote.
    pub fn from_toml(text: &str) -> Result<Self> {
        require_short(text)?;
        let refuse = |problem: &str| Error::invalid(format!("not an agreement: {problem}"), WRITE_AGAIN);
        let Self { format, mut sent, experiment } = toml::from_str(text).map_err(|error| refuse(error.message()))?;
        if format != FORMAT {
            return Err(refuse(&format!("its format is `{format}`, not `{FORMAT}`")));
        }
        sent.sort_by(|one, other| one.name.cmp(&other.name));
        // Its fingerprint is that of what a node would do, whatever the file says of a machine.
        Ok(Self { format, sent, experiment: experiment.on_another_machine("".into()) })
    }

    /// All of it, as a file.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::invalid(format!("the agreement cannot be written: {error}"), "report this"))
    }

    /// What identifies it.
    pub fn fingerprint(&self) -> Result<AgreementFingerprint> {
        let text = self.to_toml()?;
        let digest = Sha256::digest([b"fedeq agreement\n", text.as_bytes()].concat());
        Ok(AgreementFingerprint(digest[..DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// What it is about.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }
}

const WRITE_AGAIN: &str = "give the `agreement.toml` that `fedeq init-federation` writes, or the app's folder";

fn require_short(text: &str) -> Result<()> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    Err(Error::invalid(format!("the experiment has {} characters", text.len()), format!("at most {LONGEST} are read")))
}

impl fmt::Display for AgreementFingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for AgreementFingerprint {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let text = text.trim().to_ascii_lowercase();
        let is_one = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_one { Ok(Self(text)) } else { Err(format!("a fingerprint has {DIGITS} hexadecimal digits")) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::experiment::Override;

    pub(super) fn agreement(settings: &[&str]) -> Agreement {
        let settings: Vec<Override> = settings.iter().map(|setting| setting.parse().expect("a setting")).collect();
        let prepared = Experiment::read(None, &settings).expect("sound").prepare().expect("sound");
        Agreement::new(prepared.experiment.clone(), &prepared.server().weights)
    }

    fn fingerprint(settings: &[&str]) -> String {
        agreement(settings).fingerprint().expect("writable").to_string()
    }

    #[test]
    fn a_file_has_the_same_fingerprint_wherever_it_is_read() {
        let agreement = agreement(&["model=deq-mlp"]);
        let text = agreement.to_toml().expect("writable");
        assert_eq!(Agreement::from_toml(&text).expect("readable"), agreement);
        let elsewhere =
            text.replace("folder = \"\"", "folder = \"/srv/elsewhere\"").replace("checkpoint_every = 10", "checkpoint_every = 3");
        assert_ne!(elsewhere, text);
        let elsewhere = Agreement::from_toml(&format!("# With a remark.\n{elsewhere}")).expect("readable");
        assert_eq!(elsewhere.fingerprint().expect("writable"), agreement.fingerprint().expect("writable"));
        let experiment = agreement.experiment.to_toml().expect("writable");
        let prepared = agreement.experiment.prepare().expect("digits");
        let weights = prepared.server().weights.packed();
        let arrays = weights.iter().map(|(name, array)| (name.to_owned(), array.shape.clone())).collect();
        let asked = Agreement::of_request(&experiment, arrays).expect("readable");
        assert_eq!(asked, agreement);
    }

    #[test]
    fn everything_that_a_node_would_do_changes_the_fingerprint() {
        let all = [
            "seed=1",
            "method=fedavg",
            "method=fedrep",
            "method.rho=0.5",
            "model=mlp",
            "model=deq-mlp",
            "training.batch_size=1",
            "training.epochs=7",
            "training.personal_epochs=7",
            "training.learning_rate=0.5",
            "training.remainder=keep",
            "plan.rounds=7",
            "plan.evaluate_every=3",
            "plan.measure_theory=true",
            "plan.sampling.fraction=1",
            "data.limit.train=1",
            "data.limit.test=1",
            "data.split.test=0.5",
            "data.copies=2",
            "data.partition.clients=7",
            "plan.compression.up=int8",
            "plan.compression.down=int8",
            "plan.aggregation.rule=median",
            "plan.secure_aggregation.clip=0.5",
        ];
        let mut seen = BTreeSet::from([fingerprint(&[])]);
        assert!(seen.iter().all(|one| one.len() == DIGITS && one.parse::<AgreementFingerprint>().is_ok()));
        for setting in all {
            assert!(seen.insert(fingerprint(&[setting])), "{setting}");
        }
        // Of a network without statistics, which no noise would cover.
        assert!(seen.insert(fingerprint(&["model=deq-mlp", "plan.privacy.epsilon=8"])));
        assert_eq!(fingerprint(&["engine.checkpoint_every=3", "engine.client_memory_mb=5"]), fingerprint(&[]));
    }

    #[test]
    fn other_arrays_are_another_agreement() {
        let whole = agreement(&[]);
        let mut less = whole.clone();
        less.sent.pop();
        let mut flat = whole.clone();
        flat.sent[0].shape = vec![flat.sent[0].shape.iter().product()];
        let prints: BTreeSet<_> = [whole, less, flat].iter().map(|one| one.fingerprint().expect("writable")).collect();
        assert_eq!(prints.len(), 3);
    }

    #[test]
    fn what_is_no_agreement_is_refused() {
        let text = agreement(&[]).to_toml().expect("writable");
        for (wrong, words) in [
            (text.replace("format = 1", "format = 2"), "its format is `2`"),
            ("seed = 1".into(), "not an agreement"),
            (text.replace("seed = 0", "sed = 0"), "not an agreement"),
            ("#".repeat(LONGEST + 1), "characters"),
        ] {
            let said = Agreement::from_toml(&wrong).expect_err(words).to_string();
            assert!(said.contains(words), "{said}");
        }
        assert!("12".parse::<AgreementFingerprint>().is_err() && "g".repeat(DIGITS).parse::<AgreementFingerprint>().is_err());
    }
}
