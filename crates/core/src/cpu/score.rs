//! Scoring a model on data, alone or together with nearest neighbours.
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor};
use fedeq_data::shard::{Batch, Targets};
use fedeq_models::Output;

use super::bridge::ints;
use super::loss::{Goal, loss_of, padding_of};
use crate::error::Result;
use crate::stats::{Neighbours, Score};

/// Scores a model, given by its forward pass, on batches.
pub(crate) fn score(
    batches: impl Iterator<Item = Batch>,
    forward: impl Fn(&Batch) -> Result<Output>,
    store: Option<&Store>,
    device: &Device,
) -> Result<Score> {
    let mut total = Score::default();
    for batch in batches {
        let output = forward(&batch)?;
        total = total.plus(match store {
            Some(store) => score_mixed(&batch, &output, store, device),
            None => score_plain(&batch, &output, device),
        });
    }
    Ok(total)
}

fn score_plain(batch: &Batch, output: &Output, device: &Device) -> Score {
    let loss = loss_of(&output.logits, &Goal::of(batch, device));
    let predictions = loss.count as u64;
    let loss = loss.mean.into_scalar::<f64>() * loss.count as f64;
    Score { predictions, correct: count_correct(batch, output.logits.clone()), loss }
}

fn score_mixed(batch: &Batch, output: &Output, store: &Store, device: &Device) -> Score {
    let mixed = store.mixed(output);
    let Goal::Classes { targets, padding, count } = Goal::of(batch, device) else {
        return score_plain(batch, output, device); // Numbers have no votes.
    };
    let chosen = mixed.clone().gather(1, targets.unsqueeze_dim(1)).squeeze_dim::<1>(1);
    let logs = chosen.clamp_min(f64::from(f32::MIN_POSITIVE)).log();
    let counted = padding.map_or(logs.clone(), |padding| logs.mask_fill(padding, 0.0));
    let loss = -counted.sum().into_scalar::<f64>();
    Score { predictions: count as u64, correct: count_correct(batch, mixed), loss }
}

/// How many rows have their largest entry where they should.
fn count_correct(batch: &Batch, scores: Tensor<2>) -> u64 {
    let expected = match &batch.targets {
        Targets::Classes(classes) => classes,
        Targets::Symbols { values, .. } => values,
        Targets::Numbers(_) => return 0,
    };
    let padding = padding_of(&batch.inputs, expected.len());
    let found: Vec<i64> = scores.argmax(1).try_into_vec_as().expect("indices are integers");
    let right =
        found.iter().zip(expected).zip(padding).filter(|((found, expected), padded)| **found == i64::from(**expected) && !padded);
    right.count() as u64
}

/// The embedded training samples of a client.
pub(crate) struct Store {
    neighbours: Neighbours,
    /// `[entries, d]`.
    embeddings: Tensor<2>,
    /// `[entries]`.
    classes: Tensor<1, Int>,
}

impl Store {
    /// Embeds training batches; nothing if there is nothing to vote.
    pub(crate) fn build(
        batches: impl Iterator<Item = Batch>,
        forward: impl Fn(&Batch) -> Result<Output>,
        neighbours: Neighbours,
        device: &Device,
    ) -> Result<Option<Self>> {
        let (mut embeddings, mut classes) = (Vec::new(), Vec::new());
        for batch in batches {
            let values = match &batch.targets {
                Targets::Classes(classes) => classes,
                Targets::Symbols { values, .. } => values,
                Targets::Numbers(_) => return Ok(None),
            };
            let padding = padding_of(&batch.inputs, values.len());
            let kept: Vec<i32> = (0..).zip(&padding).filter(|(_, padded)| !**padded).map(|(row, _)| row).collect();
            classes.extend(kept.iter().map(|&row| values[row as usize]));
            embeddings.push(forward(&batch)?.embedding.select(0, ints(&kept, [kept.len()], device)));
        }
        if classes.is_empty() || neighbours.mixing == 0.0 {
            return Ok(None);
        }
        let classes = ints(&classes, [classes.len()], device);
        Ok(Some(Self { neighbours, embeddings: Tensor::cat(embeddings, 0), classes }))
    }

    /// `mixing * vote + (1 - mixing) * softmax(logits)`.
    pub(crate) fn mixed(&self, output: &Output) -> Tensor<2> {
        let network = softmax(output.logits.clone(), 1);
        let vote = self.vote(&output.embedding, network.dims()[1]);
        vote.mul_scalar(self.neighbours.mixing) + network.mul_scalar(1.0 - self.neighbours.mixing)
    }

    /// The nearest entries vote for their class with weight `exp(-distance)`: `[rows, classes]`, rows summing to 1.
    fn vote(&self, queries: &Tensor<2>, classes: usize) -> Tensor<2> {
        let [rows, _] = queries.dims();
        let count = self.neighbours.count.min(self.embeddings.dims()[0]);
        let (closeness, nearest) = self.distances(queries).neg().topk_with_indices(count, 1);
        let weights = softmax(closeness, 1); // exp(-d), normalised.
        let labels = self.classes.clone().select(0, nearest.reshape([rows * count]));
        let ballots: Tensor<2> = labels.one_hot::<2>(classes).float();
        (ballots.reshape([rows, count, classes]) * weights.unsqueeze_dim(2)).sum_dim(1).squeeze_dim(1)
    }

    /// Euclidean distances, `[rows, entries]`.
    fn distances(&self, queries: &Tensor<2>) -> Tensor<2> {
        let sizes = |rows: &Tensor<2>| rows.clone().square().sum_dim(1);
        let cross = queries.clone().matmul(self.embeddings.clone().transpose());
        (sizes(queries) + sizes(&self.embeddings).transpose() - cross.mul_scalar(2.0)).clamp_min(0.0).sqrt()
    }
}
