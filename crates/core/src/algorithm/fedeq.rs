//! FeDEQ: a shared representation by consensus ADMM, and personal heads.
use fedeq_data::Seed;
use fedeq_models::{Part, Preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, View, Weighting};
use crate::aggregation::Received;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::training::{non_negative, positive};
use crate::weights::Weights;
use crate::work::{ClientInfo, LocalUpdate, ProximalTerm, RoundContext, Slot, Trains, dual, own, received};

/// FeDEQ (CIKM 2024): minimise `sum_i L_i(theta_i, w_i)` subject to `theta_i = theta`, by steps on the augmented Lagrangian
/// `L_i(theta_i, w_i) + <lambda_i, theta_i - theta> + (rho / 2) ||theta_i - theta||^2`.
///
/// The defaults are those of the preset `recommended`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedEq {
    /// The penalty.
    #[schemars(range(min = 0.0))]
    pub rho: f64,
    /// What the server does.
    pub server_step: ServerStep,
    /// How much each client counts.
    pub weighting: Weighting,
    /// Where the duals start, if there are any.
    pub dual: DualStart,
    /// Where the theta-step starts.
    pub start: ThetaStart,
    /// On which representation the head is trained.
    pub head_on: HeadOn,
    /// Divides the two ADMM terms of a gradient step by the number of symbols in its batch, padding left out: what the authors' code does for
    /// text, and makes `rho` and the duals as many times weaker. The dual step stays as it is.
    pub per_symbol: bool,
    /// By which model the method is evaluated.
    pub evaluate: View,
    /// Adapts `rho` during training, if given.
    pub balance: Option<BalanceRho>,
}

impl Default for FedEq {
    fn default() -> Self {
        Self {
            rho: 0.01,
            server_step: ServerStep::Mean,
            weighting: Weighting::Uniform,
            dual: DualStart::Zero,
            start: ThetaStart::Received,
            head_on: HeadOn::Received,
            per_symbol: false,
            evaluate: View::Local,
            balance: None,
        }
    }
}

/// What the server does with what clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServerStep {
    /// `theta = mean(theta_i)` over the cohort, as the paper writes it. Clients agree, but not on the minimiser: since `theta` is averaged
    /// before the duals move, the duals add up to `rho (theta - theta^0)` a client, and the agreement minimises
    /// `sum_i L_i(theta) + (rho / 2) ||theta - theta^0||^2` a client. Harmless for a small `rho`; a large one holds `theta` near its start.
    Mean,
    /// `theta = mean(theta_i + lambda_i / rho)` over *all* clients, the exact minimiser of the augmented Lagrangian. Clients send by how
    /// much their term has changed, so the mean stays exact when few take part, and duals stay with their clients.
    Consensus,
}

/// Where the duals start, if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DualStart {
    /// There are none: the penalty alone draws `theta_i` towards `theta`. No ADMM, but what tells the penalty's part in it from the duals'.
    None,
    /// At zero.
    Zero,
    /// At one value everywhere.
    Constant(f32),
    /// Uniform between minus this and this, each client its own.
    Uniform(f32),
}

/// Where the theta-step starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ThetaStart {
    /// At the received `theta`. Measured to be the better choice by far where clients take part seldom.
    Received,
    /// At the client's own `theta_i`: exactly as in the paper.
    Own,
    /// At its own if the client took part in the round before, else at the received: what the authors' code does.
    OwnIfConsecutive,
}

/// On which representation the head is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HeadOn {
    /// On the received `theta`, as in the paper.
    Received,
    /// On whatever the theta-step starts from, as in the authors' code.
    Start,
}

/// Residual balancing: `rho` grows while clients disagree more than `theta` moves, and shrinks the other way round.
///
/// How much they disagree is the median of `||theta_i - theta||` over the round, computed from what clients sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BalanceRho {
    /// How many times larger one residual must be than the other.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub ratio: f64,
    /// The factor by which `rho` changes then.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub factor: f64,
}

impl Default for BalanceRho {
    fn default() -> Self {
        Self { ratio: 10.0, factor: 2.0 }
    }
}

impl Algorithm for FedEq {
    fn shares(&self, part: Part) -> bool {
        part == Part::Shared
    }

    /// Algorithm 1 of the paper, the client's side.
    fn client_update(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let rho = round.rho.unwrap_or(self.rho);
        let (theta, theta_i, lambda_i) = (received, || own().only(Part::Shared), dual);
        let consensus_term = || theta_i() + (1.0 / rho) * lambda_i();
        let mut work = LocalUpdate::default();

        // What the server has counted for this client so far: its last term, or theta^0 before its first round.
        let counted = match (self.server_step, me.participations) {
            (ServerStep::Mean, _) => None,
            (ServerStep::Consensus, 0) => Some(work.keep("counted", theta_i())),
            (ServerStep::Consensus, _) => Some(work.keep("counted", consensus_term())),
        };
        let own_start = self.starts_at_own(me, round.round).then(|| work.keep("start", theta_i()));

        // w-step: w_i <- argmin_w L_i(theta, w), by SGD from the last w_i.
        if self.head_on == HeadOn::Received || own_start.is_none() {
            work.assign(Slot::Own, own().with(theta()));
        }
        work.train(round.head());

        // theta-step: theta_i <- theta_i - eta (grad L_i + lambda_i + rho (theta_i - theta)).
        if let Some(start) = own_start {
            work.assign(Slot::Own, own().with(start));
        }
        let lagrangian = ProximalTerm { per_prediction: self.per_symbol, ..ProximalTerm::augmented(rho, theta(), lambda_i()) };
        work.train(round.body(Trains::Shared).towards(lagrangian));

        // dual step: lambda_i <- lambda_i + rho (theta_i - theta).
        if self.dual != DualStart::None {
            work.assign(Slot::Dual, lambda_i() + rho * (theta_i() - theta()));
        }

        // To the server: theta_i, or by how much its term in the exact consensus step has changed.
        work.sending(counted.map_or_else(theta_i, |counted| consensus_term() - counted))
    }

    /// `theta <- mean(theta_i)`, or `theta <- theta + (1 / clients) sum of changes`.
    fn server_update(&self, server: &mut ServerState, received: &Received<'_>) -> Result<()> {
        let before = server.weights.params.clone();
        server.average(received, self.weighting)?;
        if self.server_step == ServerStep::Consensus {
            let share = received.count() as f32 / server.clients as f32;
            server.weights.params = before.plus(share, &server.weights.params);
        }
        if let Some(balance) = self.balance {
            let rho = server.rho.unwrap_or(self.rho);
            let dual = rho * server.weights.params.minus(&before).norm();
            // The median: what clients send is theirs to choose, and one of them must not steer the penalty of all.
            if let Some(primal) = received.median_gap(&before)? {
                server.rho = Some(balance.next(rho, primal, dual));
            }
        }
        Ok(())
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn spoils_privacy(&self) -> Option<(&'static str, &'static str)> {
        self.balance.map(|_| ("method.balance", "it follows how far single clients went, which no noise covers"))
    }

    /// The plain mean of one update would be that update.
    fn takes_single_updates(&self) -> bool {
        self.server_step == ServerStep::Consensus
    }

    fn sends_changes(&self) -> bool {
        self.server_step == ServerStep::Consensus
    }

    fn averages(&self) -> bool {
        self.server_step == ServerStep::Mean && self.balance.is_none()
    }

    fn initial_dual(&self, own: &Weights, seed: Seed) -> Params {
        let theta = own.theta();
        match self.dual {
            DualStart::None | DualStart::Zero => theta.zeros_like(),
            DualStart::Constant(value) => theta.map(|_| value),
            DualStart::Uniform(size) => random_like(&theta, size, seed),
        }
    }

    fn default_view(&self) -> View {
        self.evaluate
    }

    fn initial_rho(&self) -> Option<f64> {
        Some(self.rho)
    }

    fn penalty_factor(&self) -> Option<f64> {
        self.balance.map(|balance| balance.factor)
    }

    fn needs_single_updates(&self) -> Option<&'static str> {
        self.balance.map(|_| "method.balance")
    }

    fn needs_text(&self) -> Option<&'static str> {
        self.per_symbol.then_some("method.per_symbol")
    }

    fn prefers_equilibrium(&self) -> bool {
        true
    }

    fn penalty(&self, rho: Option<f64>) -> Option<(&'static str, f64)> {
        Some(("method.rho", rho.unwrap_or(self.rho)))
    }

    fn apply_preset(&mut self, preset: Preset, is_text: bool) {
        match preset {
            Preset::Recommended => self.start = ThetaStart::Received,
            Preset::Paper => self.start = ThetaStart::Own,
            Preset::Reference => {
                self.start = ThetaStart::OwnIfConsecutive;
                self.head_on = HeadOn::Start;
                self.weighting = if is_text { Weighting::Uniform } else { Weighting::Samples };
                self.dual = if is_text { DualStart::Constant(0.001) } else { DualStart::Zero };
                self.per_symbol = is_text;
            }
        }
    }

    fn validate(&self) -> Result<()> {
        non_negative("method.rho", self.rho)?;
        if let DualStart::Constant(size) | DualStart::Uniform(size) = self.dual
            && !size.is_finite()
        {
            return Err(Error::invalid(format!("`method.dual` is `{size}`"), "give a finite number"));
        }
        if self.server_step == ServerStep::Consensus {
            positive("method.rho", self.rho)?;
            self.refuse_with_consensus(self.weighting != Weighting::Uniform, "method.weighting = samples")?;
            self.refuse_with_consensus(self.balance.is_some(), "method.balance")?;
        }
        self.balance.iter().try_for_each(|balance| {
            positive("method.rho", self.rho)?;
            positive("method.balance.ratio", balance.ratio)?;
            positive("method.balance.factor", balance.factor)
        })
    }
}

impl FedEq {
    /// Whether the theta-step starts at the client's own `theta_i`.
    fn starts_at_own(&self, me: &ClientInfo, round: u64) -> bool {
        match self.start {
            ThetaStart::Received => false,
            ThetaStart::Own => true,
            ThetaStart::OwnIfConsecutive => me.last_round.is_some_and(|last| last + 1 == round),
        }
    }

    fn refuse_with_consensus(&self, given: bool, setting: &str) -> Result<()> {
        if !given {
            return Ok(());
        }
        Err(Error::invalid(
            format!("`{setting}` does not go with `method.server_step = consensus`"),
            "leave it out, or set `method.server_step = mean`",
        ))
    }
}

impl BalanceRho {
    fn next(&self, rho: f64, primal: f64, dual: f64) -> f64 {
        if primal > self.ratio * dual {
            rho * self.factor
        } else if dual > self.ratio * primal {
            rho / self.factor
        } else {
            rho
        }
    }
}

fn random_like(theta: &Params, size: f32, seed: Seed) -> Params {
    use rand_chacha::rand_core::Rng;
    let rng = std::cell::RefCell::new(seed.rng());
    // 24 random bits make every f32 of this grid equally likely, on every platform.
    theta.map(|_| size * ((rng.borrow_mut().next_u32() >> 8) as f32 / (1u32 << 23) as f32 - 1.0))
}
