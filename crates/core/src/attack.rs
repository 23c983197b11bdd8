//! Malicious clients, to test the robustness of a federation. In simulations only: nothing here is reached by a message of a real client.
use std::collections::BTreeSet;

use fedeq_data::{Seed, named};
use rand_chacha::rand_core::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::acceptance::LARGEST_COUNT;
use crate::algorithm::{Algorithm, Update};
use crate::client::shares_anything;
use crate::error::{Error, Result};
use crate::message::{Reply, Request};
use crate::params::Params;
use crate::stats::Score;
use crate::training::positive;
use crate::weights::Weights;

/// Some clients are malicious, always the same ones, drawn by seed. They train as told and send something else; running statistics and everything else they
/// report is true, sample counts unless the attack is about them. They are left out of every evaluation: accuracies are those of honest clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// What malicious clients do.
    pub kind: AttackKind,
    /// The share of malicious clients, rounded down.
    #[serde(default = "usual_share")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub share: f64,
    /// The strength of the attack; what is usual for the [kind](AttackKind) if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub strength: Option<f64>,
}

fn usual_share() -> f64 {
    0.2
}

named! {
    /// What malicious clients send in place of `theta + change`. Where a method sends changes, it is the same without `theta`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum AttackKind {
        /// `theta - strength * change`; 4 if left out.
        SignFlip = "sign-flip",
        /// `theta + noise`, each a random direction of its own, `strength` times as long as the change; 10 if left out.
        Noise = "noise",
        /// `theta + strength * change`: the right direction, and far too far; 100 if left out.
        LargeNorm = "large-norm",
        /// What comes of training on reversed labels: of `c` classes, class `k` becomes `c - 1 - k`. There is no strength.
        LabelFlip = "label-flip",
        /// `theta + strength * boost * (x - theta)` with one random model `x` for all malicious clients; with the boost the plain mean becomes `x` where the usual number of them takes
        /// part and the others do not move (Bagdasaryan et al., 2020). 1 if left out.
        ModelReplacement = "model-replacement",
        /// `theta - change`, and `strength` times as many samples as there are; 1000 if left out. It is nothing to clients that count the same.
        Weight = "weight",
    }
}

impl AttackKind {
    fn usual_strength(self) -> f64 {
        match self {
            Self::SignFlip => 4.0,
            Self::Noise => 10.0,
            Self::LargeNorm => 100.0,
            Self::LabelFlip | Self::ModelReplacement => 1.0,
            Self::Weight => 1000.0,
        }
    }
}

impl Attack {
    /// Refuses settings that mean nothing, or nothing to this method.
    pub fn validate(&self, algorithm: &dyn Algorithm) -> Result<()> {
        if !shares_anything(algorithm) {
            let problem = "`attack` does not go with this method, which sends nothing";
            return Err(Error::invalid(problem, "leave it out, or choose another method"));
        }
        if !(0.0..1.0).contains(&self.share) {
            return Err(Error::invalid(format!("`attack.share` is `{}`", self.share), "give a share of at least 0 and below 1"));
        }
        let Some(strength) = self.strength else { return Ok(()) };
        if self.kind == AttackKind::LabelFlip {
            return Err(Error::invalid("`attack.strength` means nothing to `attack = label-flip`", "leave it out"));
        }
        positive("attack.strength", strength)
    }

    /// Draws the liars among so many clients, of which `cohort` take part in a round.
    pub fn draw(&self, clients: usize, cohort: usize, algorithm: &dyn Algorithm, seed: Seed) -> Result<Liars> {
        let count = (self.share * clients as f64 + 1e-9).floor() as usize;
        if count == 0 && self.share > 0.0 {
            let problem = format!("`attack.share = {}` of `{clients}` clients selects no client", self.share);
            return Err(Error::invalid(problem, format!("give at least {}, or 0", 1.0 / clients as f64)));
        }
        let mut rng = seed.derive("liars", []).rng();
        let mut below = |bound: usize| ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize;
        let mut all: Vec<usize> = (0..clients).collect();
        (0..count).for_each(|at| all.swap(at, at + below(clients - at)));
        // Of a mean over the cohort they have their share; of the exact consensus step, which divides by all clients, so much less.
        let counted = if algorithm.sends_changes() { clients as f64 / cohort as f64 } else { 1.0 };
        let boost = clients as f64 / count.max(1) as f64 * counted;
        Ok(Liars {
            attack: *self,
            numbers: all[..count].iter().copied().collect(),
            boost,
            are_changes: algorithm.sends_changes(),
            seed,
        })
    }
}

/// The clients that lie.
#[derive(Clone, Debug)]
pub struct Liars {
    attack: Attack,
    numbers: BTreeSet<usize>,
    /// How much further one liar has to go than all clients would.
    boost: f64,
    /// Whether clients send how their weights changed instead of the weights.
    are_changes: bool,
    seed: Seed,
}

impl Liars {
    /// What they do.
    pub fn attack(&self) -> &Attack {
        &self.attack
    }

    /// Their numbers, in order.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.numbers.iter().copied()
    }

    /// Whether a client is one of them.
    pub fn contains(&self, client: usize) -> bool {
        self.numbers.contains(&client)
    }

    /// What a client says to a request in place of the truth: liars change what they send, and are not evaluated.
    pub(crate) fn falsified(&self, client: usize, request: &Request, reply: Reply) -> Result<Reply> {
        if !self.contains(client) {
            return Ok(reply);
        }
        Ok(match reply {
            Reply::Update(update) if self.attack.kind != AttackKind::LabelFlip => {
                let sent = self.lie(client, request, update.weights.to_host()?.as_ref());
                Reply::Update(Update { weights: sent.into(), samples: self.claimed(update.samples), ..update })
            }
            Reply::Scores(mut scores) => {
                scores.local = Score::default();
                scores.shared = scores.shared.map(|_| Score::default());
                scores.validation = scores.validation.map(|_| Score::default());
                Reply::Scores(scores)
            }
            other => other,
        })
    }

    fn lie(&self, client: usize, request: &Request, truth: &Weights) -> Weights {
        let theta = &request.weights.params;
        let origin = if self.are_changes { theta.zeros_like() } else { theta.clone() };
        let change = truth.params.minus(&origin);
        let strength = self.strength();
        let lie = match self.attack.kind {
            AttackKind::SignFlip => origin.plus(-strength as f32, &change),
            AttackKind::LargeNorm => origin.plus(strength as f32, &change),
            AttackKind::Noise => {
                let noise = random_like(theta, self.seed.derive("noise", [request.round, client as u64]));
                origin.plus((strength * change.norm() / noise.norm().max(f64::MIN_POSITIVE)) as f32, &noise)
            }
            AttackKind::ModelReplacement => {
                let other = self.other_model(theta);
                origin.plus((strength * self.boost) as f32, &other.minus(theta))
            }
            AttackKind::Weight => origin.plus(-1.0, &change),
            AttackKind::LabelFlip => truth.params.clone(),
        };
        Weights { params: lie, statistics: truth.statistics.clone() }
    }

    fn strength(&self) -> f64 {
        self.attack.strength.unwrap_or(self.attack.kind.usual_strength())
    }

    /// How many samples a liar says that it has: no more than a server of strangers would believe.
    fn claimed(&self, samples: u64) -> u64 {
        match self.attack.kind {
            AttackKind::Weight => ((self.strength() * samples as f64) as u64).clamp(1, LARGEST_COUNT),
            _ => samples,
        }
    }

    /// A random model: always the same directions, as large as `theta` is layer by layer.
    fn other_model(&self, theta: &Params) -> Params {
        let random = random_like(theta, self.seed.derive("other model", []));
        let layer = |name: &str| theta.filter(|other| other == name);
        let scaled = |name: &str| {
            let (own, drawn) = (layer(name), random.filter(|other| other == name));
            let factor = own.norm() / drawn.norm().max(f64::MIN_POSITIVE);
            drawn.map(|value| (factor * f64::from(value)) as f32)
        };
        let mut model = theta.clone();
        theta.iter().for_each(|(name, _)| model.overwrite(&scaled(name)));
        model
    }
}

/// Numbers between -1 and 1, on every platform the same.
fn random_like(like: &Params, seed: Seed) -> Params {
    let rng = std::cell::RefCell::new(seed.rng());
    like.map(|_| (rng.borrow_mut().next_u32() >> 8) as f32 / (1u32 << 23) as f32 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FedAvg, FedEq, Local, ServerStep};
    use crate::message::ClientTask;
    use crate::params::Array;
    use crate::stats::TrainStats;

    fn weights(values: &[f32]) -> Weights {
        let params: Params = [("theta".to_owned(), Array::new(vec![values.len()], values.to_vec()))].into_iter().collect();
        Weights { params, ..Weights::default() }
    }

    fn attack(kind: AttackKind, strength: Option<f64>) -> Attack {
        Attack { kind, share: 0.3, strength }
    }

    /// What the first liar makes of an update, and one that is honest.
    fn sent(attack: &Attack, algorithm: &dyn Algorithm) -> [Vec<f32>; 2] {
        let liars = attack.draw(10, 5, algorithm, Seed::new(7)).expect("sound");
        let request =
            Request { task: ClientTask::Train, round: 3, rounds: 9, rho: None, weights: weights(&[1.0, 1.0, -2.0, 0.5]) };
        let reply = || {
            let stats = TrainStats::default();
            Reply::Update(Update { weights: weights(&[2.0, 1.0, -2.0, 0.5]).into(), samples: 4, gap: 1.0, stats })
        };
        let values = |client: usize| {
            let reply = liars.falsified(client, &request, reply()).expect("sound");
            let weights = reply.weights().expect("here").expect("an update").into_owned();
            weights.params.get("theta").expect("there").values.to_vec()
        };
        let honest = (0..10).find(|client| !liars.contains(*client)).expect("most are");
        [values(liars.numbers().next().expect("three")), values(honest)]
    }

    #[test]
    fn liars_are_always_the_same_and_as_many_as_asked_for() {
        let liars = |seed: u64| {
            let drawn = attack(AttackKind::Noise, None).draw(10, 5, &FedAvg::default(), Seed::new(seed)).expect("sound");
            drawn.numbers().collect::<Vec<_>>()
        };
        assert_eq!((liars(1).len(), liars(1)), (3, liars(1)));
        assert!((2..9).any(|seed| liars(seed) != liars(1)));
        let none = Attack { share: 0.0, ..attack(AttackKind::Noise, None) };
        assert_eq!(none.draw(10, 5, &FedAvg::default(), Seed::new(1)).expect("no client lies").numbers().count(), 0);
    }

    #[test]
    fn every_attack_sends_what_it_says_and_honest_clients_the_truth() {
        let method = FedAvg::default();
        let truth = [2.0, 1.0, -2.0, 0.5];
        for (kind, expected) in [
            (AttackKind::SignFlip, [-3.0, 1.0, -2.0, 0.5]),
            (AttackKind::LargeNorm, [101.0, 1.0, -2.0, 0.5]),
            (AttackKind::LabelFlip, truth),
            (AttackKind::Weight, [0.0, 1.0, -2.0, 0.5]),
        ] {
            let [liar, honest] = sent(&attack(kind, None), &method);
            assert_eq!((liar, honest), (expected.to_vec(), truth.to_vec()), "{kind:?}");
        }
        let [noise, _] = sent(&attack(AttackKind::Noise, Some(5.0)), &method);
        let length = weights(&noise).params.minus(&weights(&[1.0, 1.0, -2.0, 0.5]).params).norm();
        assert!((length - 5.0).abs() < 1e-5, "{length}");
    }

    #[test]
    fn a_liar_about_its_samples_claims_so_many_times_as_many_and_no_more_than_is_plausible() {
        let request = Request { task: ClientTask::Train, round: 0, rounds: 1, rho: None, weights: weights(&[0.0]) };
        let claimed = |kind: AttackKind, strength: Option<f64>| {
            let liars = attack(kind, strength).draw(10, 5, &FedAvg::default(), Seed::new(7)).expect("sound");
            let liar = liars.numbers().next().expect("three");
            let update = Update { weights: weights(&[1.0]).into(), samples: 4, gap: 1.0, stats: TrainStats::default() };
            match liars.falsified(liar, &request, Reply::Update(update)).expect("sound") {
                Reply::Update(update) => update.samples,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(claimed(AttackKind::Weight, None), 4000);
        assert_eq!(claimed(AttackKind::Weight, Some(2.5)), 10);
        assert_eq!(claimed(AttackKind::Weight, Some(1e30)), LARGEST_COUNT);
        assert_eq!(claimed(AttackKind::SignFlip, None), 4, "the others say how many they have");
    }

    #[test]
    fn with_the_usual_number_of_liars_the_mean_is_their_model() {
        // Three of ten send theta + 10/3 (x - theta), seven stay at theta: the mean is x, which is as large as theta.
        let [liar, _] = sent(&attack(AttackKind::ModelReplacement, None), &FedAvg::default());
        let theta = [1.0, 1.0, -2.0, 0.5];
        let mean: Vec<f32> = liar.iter().zip(theta).map(|(liar, theta)| 0.3 * liar + 0.7 * theta).collect();
        assert!((weights(&mean).params.norm() - weights(&theta).params.norm()).abs() < 1e-5, "{mean:?}");
        // The consensus step divides by all ten: of five updates, one and a half by liars.
        let consensus = FedEq { server_step: ServerStep::Consensus, ..FedEq::default() };
        let [change, _] = sent(&attack(AttackKind::ModelReplacement, None), &consensus);
        let moved: Vec<f32> = change.iter().zip(theta).map(|(change, theta)| theta + 1.5 * change / 10.0).collect();
        assert!(moved.iter().zip(&mean).all(|(moved, mean)| (moved - mean).abs() < 1e-5), "{moved:?} {mean:?}");
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        let refused = |attack: Attack, algorithm: &dyn Algorithm, expected: &str| {
            let drawn = attack.validate(algorithm).and_then(|()| attack.draw(10, 5, algorithm, Seed::new(1)).map(|_| ()));
            let error = drawn.expect_err("it means nothing").to_string();
            assert!(error.contains(expected), "{error}");
        };
        let method = FedAvg::default();
        let noise = attack(AttackKind::Noise, None);
        refused(noise, &Local::default(), "`attack` does not go with this method, which sends nothing");
        refused(Attack { share: 1.0, ..noise }, &method, "`attack.share` is `1`");
        refused(Attack { share: f64::NAN, ..noise }, &method, "`attack.share` is `NaN`");
        refused(Attack { share: 0.05, ..noise }, &method, "`attack.share = 0.05` of `10` clients selects no client");
        refused(attack(AttackKind::Noise, Some(-1.0)), &method, "`attack.strength` is `-1`");
        refused(attack(AttackKind::LabelFlip, Some(1.0)), &method, "`attack.strength` means nothing to `attack = label-flip`");
    }
}
