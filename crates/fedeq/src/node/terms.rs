//! On which terms a node takes part: what its owner has agreed to.
use fedeq_core::{ClientInfo, Disclosure, Error, LocalUpdate, Result, RoundContext, SigningSecret, key_from_hex};
use fedeq_flower::envelope::Envelope;
use fedeq_flower::node::{Accepted, Objection, Refusal};
use fedeq_flower::store::Proposal;
use fedeq_run::agreement::{Agreement, AgreementFingerprint, SigningKeys};
use fedeq_run::experiment::{Experiment, Prepared};
use fedeq_run::number::counted;

/// Who a node is to other clients.
pub(super) struct Signer<'a> {
    /// Its number.
    pub(super) client: usize,
    /// What it signs with, if it has a key for that.
    pub(super) signing: Option<&'a SigningSecret>,
}

/// What the owner of a node has agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The one experiment that is carried out; none if nothing is.
    pub accepted: Option<AgreementFingerprint>,
    /// How much the node tells beside its weights.
    pub disclosure: Disclosure,
    /// With fewer training samples than this it does not train.
    pub least_samples: usize,
    /// With fewer samples than this in a gradient step it does not train.
    pub least_batch: usize,
    /// For more epochs a round than this, of the body or of the head, it does not train.
    pub most_epochs: usize,
    /// The clients that it knows by their keys, if it masks what it sends with these alone.
    pub known_keys: Option<SigningKeys>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            accepted: None,
            disclosure: Disclosure::Everything,
            least_samples: 10,
            least_batch: 5,
            most_epochs: 50,
            known_keys: None,
        }
    }
}

impl Terms {
    /// Those of an owner who has accepted an experiment, and leaves the rest as it usually is.
    pub fn accepting(accepted: AgreementFingerprint) -> Self {
        Self { accepted: Some(accepted), ..Self::default() }
    }

    /// What a request is to the owner; refuses what was not agreed to. No data is touched for that.
    pub(super) fn review(&self, envelope: &Envelope, me: &Signer<'_>) -> std::result::Result<Accepted, Objection> {
        let agreement =
            Agreement::of_request(&envelope.experiment, envelope.layout()).map_err(|error| object(Refusal::Unreadable, error))?;
        let fingerprint = agreement.fingerprint().map_err(|error| object(Refusal::Unreadable, error))?;
        if self.accepted.as_ref() != Some(&fingerprint) {
            return Err(not_accepted(&agreement, &fingerprint));
        }
        agreement.check_request(&envelope.request).map_err(|error| object(Refusal::NotAccepted, error))?;
        self.check_epochs(&agreement).map_err(|error| object(Refusal::Limit, error))?;
        self.check_keys(&agreement, me).map_err(|error| object(Refusal::NotAccepted, error))?;
        Ok(Accepted { agreement: fingerprint.to_string(), ends_training: agreement.ends_training(&envelope.request) })
    }

    /// Refuses an experiment whose clients this node does not know, or that takes it for another one.
    fn check_keys(&self, agreement: &Agreement, me: &Signer<'_>) -> Result<()> {
        let secure = agreement.experiment().plan.secure_aggregation.as_ref();
        let keys = secure.map_or(&[][..], |secure| &secure.signing_keys);
        self.known_keys.as_ref().map_or(Ok(()), |known| known.require_all(keys))?;
        // Clients that are met only after training have no part in any sum.
        let Some(mine) = keys.get(me.client) else { return Ok(()) };
        let is_mine = me.signing.is_some_and(|secret| key_from_hex(mine) == Some(secret.public_key()));
        if is_mine {
            return Ok(());
        }
        let problem = format!("the key to sign with that the experiment has for client `{}` is not this node's", me.client);
        Err(Error::invalid(
            problem,
            "`fedeq node key --signing --state DIR` prints this node's; the author of the federation must have it",
        ))
    }

    fn check_epochs(&self, agreement: &Agreement) -> Result<()> {
        let Experiment { method, training, plan, .. } = agreement.experiment();
        let rounds = plan.rounds;
        let last = RoundContext { round: rounds, rounds, rho: method.algorithm().initial_rho(), training };
        let me = ClientInfo::default();
        // Fine-tuning after training has epochs of its own.
        let finally = [method.algorithm().finish(&me, &last), method.algorithm().adopt(&me, &last)];
        let finally = finally.iter().flat_map(LocalUpdate::phases).map(|phase| phase.epochs).max().unwrap_or_default();
        let epochs = training.epochs.max(training.personal_epochs).max(finally);
        if epochs <= self.most_epochs {
            return Ok(());
        }
        let problem = format!("it would train for {epochs} epochs in a round; this node allows {}", self.most_epochs);
        Err(Error::invalid(problem, "`--max-epochs` allows more"))
    }

    /// Refuses to train on so few samples that what is sent would be about them.
    pub(super) fn check_samples(&self, prepared: &Prepared, client: usize) -> Result<()> {
        let samples = fedeq_core::LocalProblems::samples(prepared, client);
        let batch = prepared.smallest_batch(client);
        let refuse = |problem: String, option: &str| Err(Error::invalid(problem, format!("`{option}` allows fewer")));
        if samples < self.least_samples {
            let problem = format!(
                "there are {} to train on; this node asks for at least {}",
                counted(samples, "sample"),
                self.least_samples
            );
            return refuse(problem, "--min-samples");
        }
        if batch < self.least_batch {
            let problem = format!(
                "a gradient step would use {}; this node asks for at least {}",
                counted(batch, "sample"),
                self.least_batch
            );
            return refuse(problem, "--min-batch");
        }
        Ok(())
    }
}

fn object(refusal: Refusal, error: Error) -> Objection {
    Objection { refusal, reason: format!("{error}; {}", error.hint()), proposal: None }
}

fn not_accepted(agreement: &Agreement, fingerprint: &AgreementFingerprint) -> Objection {
    let title = agreement.experiment().title();
    let look = "`fedeq node inspect --state DIR` shows what it would do with your data";
    let reason = format!(
        "the server asks for an experiment that this node has not accepted: {title}; {look}, and `--accept {fingerprint}` accepts it"
    );
    let proposal = agreement.to_toml().ok().map(|text| Proposal { name: fingerprint.to_string(), text });
    Objection { refusal: Refusal::NotAccepted, reason, proposal }
}
