//! Numbers of a table, brought to one scale.
use fedeq_core::{Error, Result};
use fedeq_data::partition::Federation;
use fedeq_data::source::Source;
use fedeq_data::source::scale::Scale;
use fedeq_data::{Dataset, Samples, Scaling, Vectors};

use crate::number::counted;

/// What the features of a table are before they are scaled.
pub(super) struct Features {
    width: usize,
    least: f32,
    most: f32,
}

impl Features {
    /// Those of a table; nothing for other data.
    pub(super) fn of(source: &Source, dataset: &Dataset) -> Option<Self> {
        let (Source::Csv(_), Samples::Vectors(vectors)) = (source, &dataset.samples) else { return None };
        let least = vectors.values.iter().copied().fold(f32::INFINITY, f32::min);
        let most = vectors.values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Some(Self { width: vectors.width, least, most })
    }

    /// Their range, and what becomes of them.
    pub(super) fn remark(&self, source: &Source, is_scaled: bool, trained: usize) -> String {
        let range = format!("{} between {} and {}", counted(self.width, "feature"), self.least, self.most);
        let is_given = matches!(source, Source::Csv(table) if matches!(table.scale, Scale::By(_)));
        let fate = match (is_scaled, is_given) {
            (true, true) => "scaled by the numbers in `data.source.scale`".into(),
            (true, false) => format!("standardised with the mean and deviation of {}", counted(trained, "training sample")),
            (false, _) => {
                let far = self.least.abs().max(self.most.abs()) > FAR;
                let warning = if far { ", which is far from 1: networks learn badly from such numbers" } else { "" };
                format!("used as they are{warning}")
            }
        };
        format!("{range}; {fate}")
    }
}

/// Numbers beyond this are a reason for a warning.
const FAR: f32 = 10.0;

/// How the features of a data set are scaled before anything learns from them: by the training samples of those who take part.
pub(super) fn scaling_for(source: &Source, dataset: &Dataset, federation: &Federation) -> Result<Option<Scaling>> {
    let (Source::Csv(table), Samples::Vectors(vectors)) = (source, &dataset.samples) else { return Ok(None) };
    match &table.scale {
        Scale::None => Ok(None),
        Scale::By(scaling) => Ok(Some(scaling.clone())),
        Scale::Standardise => {
            let trained: Vec<u32> = federation.clients.iter().flat_map(|client| client.train.iter().copied()).collect();
            Ok(Scaling::of(vectors, trained))
        }
    }
}

/// The source for clients who hold other samples than these, which are an example: all of them scale alike, by the example.
///
/// Each by its own samples would give the same numbers another meaning at every client, and what they share would fit none of them.
pub fn scaled_by_example(source: Source, example: &Dataset) -> Result<Source> {
    let (Source::Csv(mut table), Samples::Vectors(vectors)) = (source.clone(), &example.samples) else { return Ok(source) };
    if table.scale != Scale::Standardise {
        return Ok(source);
    }
    if let Some(column) = (0..vectors.width).find(|&column| is_constant(vectors, column)) {
        return Err(Error::invalid(
            format!("feature `{}` is the same in every row of the example, so nodes cannot know its scale", column + 1),
            "give an example with values like those of the nodes, or set `data.source.scale=none`",
        ));
    }
    let all = 0..u32::try_from(example.len()).unwrap_or(u32::MAX);
    if let Some(scaling) = Scaling::of(vectors, all) {
        table.scale = Scale::By(scaling);
    }
    Ok(Source::Csv(table))
}

fn is_constant(vectors: &Vectors, column: usize) -> bool {
    let mut values = vectors.values.iter().skip(column).step_by(vectors.width);
    let first = values.next();
    values.all(|value| Some(value) == first)
}
