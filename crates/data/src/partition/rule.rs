//! The rules by which samples become clients, as a user writes them.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::classes::Classes;
use super::client_splits::ClientSplits;
use super::dirichlet::Shares;
use super::label_slots::label_slots;
use super::label_table::LabelTable;
use super::natural::{Chosen, Pick};
use super::own::Own;
use super::plan::{MOST_CLIENTS, Plan, check_clients};
use super::pools::Pools;
use super::quantity::Sizes;
use super::split::Split;
use crate::source::UsualPartition;
use crate::{Dataset, Result, Seed};

/// A rule that divides a data set among clients.
///
/// In an experiment file the field `rule` says which:
///
/// ```
/// use fedeq_data::partition::Partition;
/// let partition: Partition = serde_json::from_str(r#"{ "rule": "label-shards", "clients": 100, "shards": 5 }"#)?;
/// assert_eq!(partition, Partition::LabelShards { clients: 100, shards: 5 });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Partition {
    /// One client an owner: the writers of FEMNIST, the speaking roles of Shakespeare.
    Natural {
        /// How many clients to take; all who qualify where it is left out.
        #[serde(default)]
        #[schemars(range(min = 1, max = MOST_CLIENTS))]
        clients: Option<usize>,
        /// Which of those who qualify.
        #[serde(default)]
        pick: Pick,
        /// An owner with fewer samples than this does not qualify. The publisher's test set is not counted; what
        /// [`Split`] sets aside is.
        #[serde(default = "one")]
        #[schemars(range(min = 1))]
        minimum: usize,
    },
    /// The FedRep rule: a client draws `shards` one-label shards, and may draw a label twice.
    ///
    /// Each of the K classes is cut, in the data set's order, into `clients * shards / K` shards of equal size; where that is not
    /// a whole number, the classes with the most samples are cut into one shard more. Samples left over by a cut go one each to
    /// the class's first shards. A shuffled table says which labels each client draws, and each draw takes one of that class's
    /// remaining shards.
    LabelShards {
        /// How many clients.
        #[schemars(range(min = 1, max = MOST_CLIENTS))]
        clients: usize,
        /// How many shards each draws: an upper bound of the labels it holds.
        #[schemars(range(min = 1))]
        shards: usize,
    },
    /// As `label-shards`, but every client holds exactly `labels` different labels (of a label with a single sample, the test
    /// set may get that one).
    DistinctLabels {
        /// How many clients.
        #[schemars(range(min = 1, max = MOST_CLIENTS))]
        clients: usize,
        /// How many labels each holds.
        #[schemars(range(min = 1))]
        labels: usize,
    },
    /// Each class is shared out in proportions drawn from a symmetric Dirichlet distribution over the clients.
    ///
    /// Drawn again, up to a hundred times, until every client has at least `minimum` samples.
    Dirichlet {
        /// How many clients.
        #[schemars(range(min = 1, max = MOST_CLIENTS))]
        clients: usize,
        /// The concentration: towards 0 a class belongs to few clients, towards infinity all clients are alike.
        #[schemars(extend("exclusiveMinimum" = 0))]
        alpha: f64,
        /// The fewest samples a client may have. The publisher's test set is not counted; what [`Split`] sets aside is.
        #[serde(default = "one")]
        #[schemars(range(min = 1))]
        minimum: usize,
    },
    /// Some clients have many samples and others few, of the same kinds: shares of the shuffled samples, drawn from a symmetric Dirichlet distribution.
    ///
    /// Drawn again, up to a hundred times, until every client has at least `minimum` samples.
    QuantitySkew {
        /// How many clients.
        #[schemars(range(min = 1, max = MOST_CLIENTS))]
        clients: usize,
        /// The concentration: towards 0 few clients have nearly everything, towards infinity all have as many.
        #[schemars(extend("exclusiveMinimum" = 0))]
        alpha: f64,
        /// The fewest samples a client may have. The publisher's test set is not counted; what [`Split`] sets aside is.
        #[serde(default = "one")]
        #[schemars(range(min = 1))]
        minimum: usize,
    },
    /// Stretches of the data set's own order, one a client: where samples stand in the order of their time, what changes with time changes from client to client.
    Temporal {
        /// How many clients.
        #[schemars(range(min = 1, max = MOST_CLIENTS))]
        clients: usize,
    },
    /// Equal parts of the shuffled samples; sizes differ by at most one.
    Iid {
        /// How many clients.
        #[schemars(range(min = 1, max = MOST_CLIENTS))]
        clients: usize,
    },
    /// Every client brings its own: all samples belong to the client whose machine this is, and the others' lie elsewhere.
    ///
    /// For a federation of devices that hold no samples but their own. A client trains on the same bytes as under
    /// [`Partition::Natural`] over the samples of all.
    Own {
        /// How many clients.
        #[schemars(range(min = 1, max = MOST_CLIENTS))]
        clients: usize,
        /// Whose machine this is; no client's on a server. No part of an experiment.
        #[serde(skip)]
        here: Option<usize>,
    },
}

fn one() -> usize {
    1
}

impl Partition {
    /// The name of the rule in an experiment file.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Natural { .. } => "natural",
            Self::LabelShards { .. } => "label-shards",
            Self::DistinctLabels { .. } => "distinct-labels",
            Self::Dirichlet { .. } => "dirichlet",
            Self::QuantitySkew { .. } => "quantity-skew",
            Self::Temporal { .. } => "temporal",
            Self::Iid { .. } => "iid",
            Self::Own { .. } => "own",
        }
    }

    /// The rule of that name with the usual settings of a data set; nothing if there is no such rule.
    pub fn named(rule: &str, usual: &UsualPartition) -> Option<Self> {
        Self::all(usual).into_iter().find(|partition| partition.rule() == rule)
    }

    /// The name of every rule.
    pub fn rules() -> Vec<&'static str> {
        Self::all(&UsualPartition::NATURAL).iter().map(Self::rule).collect()
    }

    /// One of each, with the usual settings of a data set.
    fn all(usual: &UsualPartition) -> Vec<Self> {
        let UsualPartition { clients, labels, owners, .. } = *usual;
        vec![
            Self::Natural { clients: owners, pick: Pick::First, minimum: 1 },
            Self::LabelShards { clients, shards: labels },
            Self::DistinctLabels { clients, labels },
            Self::Dirichlet { clients, alpha: 0.5, minimum: 1 },
            Self::QuantitySkew { clients, alpha: 2.0, minimum: 1 },
            Self::Temporal { clients },
            Self::Iid { clients },
            Self::Own { clients, here: None },
        ]
    }

    /// Divides `dataset` among clients, and each client's samples into training, validation and test.
    ///
    /// The result depends on the labels, the owners and the seed alone. Every client has at least one sample to train on, unless its
    /// samples are elsewhere; where samples are few, a client's validation and test parts may miss labels it trains on, or be
    /// empty. A request that this data cannot meet is [`Error::Unmeetable`](crate::Error::Unmeetable).
    pub fn assign(&self, dataset: &Dataset, split: &Split, seed: Seed) -> Result<ClientSplits> {
        let seed = seed.derive("partition", []);
        let pools = Pools::of(dataset, split)?;
        split.check(pools.test.is_some())?;
        let plan = self.plan(dataset, &pools, seed.derive("plan", []))?;
        let train = plan.deal(&pools.train, seed.derive("deal train", []));
        let published = match &pools.test {
            Some(test) => plan.deal(test, seed.derive("deal test", [])).into_iter().map(Some).collect(),
            None => vec![None; train.len()],
        };
        let hands = train.into_iter().zip(published);
        let clients = plan.names().into_iter().zip(hands).enumerate().map(|(client, (name, (own, published)))| {
            split.divide(name, own, published, dataset.classes(), seed.derive("split", [client as u64]))
        });
        Ok(ClientSplits { clients: clients.collect(), unseen: Vec::new() })
    }

    fn plan<'a>(&self, dataset: &'a Dataset, pools: &Pools, seed: Seed) -> Result<Plan<'a>> {
        let classes = || Classes::required(dataset, self.rule());
        match *self {
            Self::Natural { clients, pick, minimum } => {
                Ok(Plan::Natural(Chosen::of(dataset, &pools.train, clients, pick, minimum, seed)?))
            }
            Self::LabelShards { clients, shards } => {
                let classes = classes()?;
                let slots = label_slots(&classes, pools, clients, shards)?;
                Ok(Plan::Labels(LabelTable::shuffled(&slots, shards, seed), classes))
            }
            Self::DistinctLabels { clients, labels } => {
                let classes = classes()?;
                let slots = label_slots(&classes, pools, clients, labels)?;
                Ok(Plan::Labels(LabelTable::distinct(slots, clients, labels, seed), classes))
            }
            Self::Dirichlet { clients, alpha, minimum } => {
                let classes = classes()?;
                Ok(Plan::Shares(Shares::draw(&classes, &pools.train, clients, alpha, minimum, seed)?, classes))
            }
            Self::QuantitySkew { clients, alpha, minimum } => {
                Ok(Plan::Sizes(Sizes::draw(pools.train.len(), clients, alpha, minimum, seed)?))
            }
            Self::Temporal { clients } => {
                check_clients(clients, pools.train.len())?;
                Ok(Plan::InOrder(clients))
            }
            Self::Iid { clients } => {
                check_clients(clients, pools.train.len())?;
                Ok(Plan::Even(clients))
            }
            Self::Own { clients, here } => Ok(Plan::Own(Own::of(clients, here)?)),
        }
    }
}
