//! From options to a rule: what is left out gets its default, what does not belong is refused.
use clap::{Args, ValueEnum};
use fedeq_data::partition::{Partition, Pick};

use crate::cli::failure::{Failure, Outcome};

/// The rule and its options.
#[derive(Args, Debug)]
pub(super) struct RuleArgs {
    /// The rule that divides samples among clients [default: `natural` where the data set names its clients, else `label-shards`]
    #[arg(long, value_enum)]
    rule: Option<Rule>,
    /// How many clients [default: all of them for `natural`, else 100]
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// Labels a client: at most so many for `label-shards`, exactly so many for `distinct-labels` [default: 2]
    #[arg(long, value_name = "P")]
    labels: Option<usize>,
    /// For `dirichlet`: towards 0 a class belongs to few clients; for `quantity-skew`: few clients have nearly everything; the larger, the more alike all clients are [default: 0.5, for `quantity-skew` 2]
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    alpha: Option<f64>,
}

/// The rule that divides samples among clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rule {
    /// One client per owner of samples
    Natural,
    /// Each client draws one-label shards, perhaps several of one label
    LabelShards,
    /// Each client holds exactly so many labels
    DistinctLabels,
    /// Each class is divided in random proportions, drawn from a Dirichlet distribution
    Dirichlet,
    /// Clients of unequal sizes, drawn from a Dirichlet distribution
    QuantitySkew,
    /// Contiguous stretches of the data set's own order
    Temporal,
    /// Equal parts of the shuffled samples
    Iid,
}

const CLIENTS: usize = 100;
const LABELS: usize = 2;
const ALPHA: f64 = 0.5;
/// With less, some of many clients would soon have nothing.
const QUANTITY_ALPHA: f64 = 2.0;

impl RuleArgs {
    /// The rule as the library takes it.
    pub(super) fn partition(&self, has_owners: bool) -> Outcome<Partition> {
        let rule = self.rule.unwrap_or(if has_owners { Rule::Natural } else { Rule::LabelShards });
        self.refuse_strangers(rule)?;
        let clients = self.clients.unwrap_or(CLIENTS);
        let labels = self.labels.unwrap_or(LABELS);
        Ok(match rule {
            Rule::Natural => Partition::Natural { clients: self.clients, pick: Pick::First, minimum: 1 },
            Rule::LabelShards => Partition::LabelShards { clients, shards: labels },
            Rule::DistinctLabels => Partition::DistinctLabels { clients, labels },
            Rule::Dirichlet => Partition::Dirichlet { clients, alpha: self.alpha.unwrap_or(ALPHA), minimum: 1 },
            Rule::QuantitySkew => Partition::QuantitySkew { clients, alpha: self.alpha.unwrap_or(QUANTITY_ALPHA), minimum: 1 },
            Rule::Temporal => Partition::Temporal { clients },
            Rule::Iid => Partition::Iid { clients },
        })
    }

    /// An option that the rule would ignore is a misunderstanding, and better said than ignored.
    fn refuse_strangers(&self, rule: Rule) -> Outcome<()> {
        let by_labels = matches!(rule, Rule::LabelShards | Rule::DistinctLabels);
        if self.labels.is_some() && !by_labels {
            return Err(stranger("--labels", rule, "`label-shards` or `distinct-labels`"));
        }
        if self.alpha.is_some() && !matches!(rule, Rule::Dirichlet | Rule::QuantitySkew) {
            return Err(stranger("--alpha", rule, "`dirichlet` or `quantity-skew`"));
        }
        Ok(())
    }
}

fn stranger(option: &str, rule: Rule, belongs: &str) -> Failure {
    let name = rule.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    Failure::request(
        format!("`{option}` means nothing to the rule `{name}`"),
        format!("leave it out, or choose `--rule` {belongs}"),
    )
}
