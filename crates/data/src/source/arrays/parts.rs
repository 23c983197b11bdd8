//! From the arrays of a file to a data set.
use std::collections::BTreeMap;
use std::path::Path;

use super::super::classes::ClassNames;
use super::super::flaw::Flaw;
use super::super::roster::Roster;
use super::clients::check_count;
use super::file::{Notes, TENSORS, malformed};
use super::given::{GivenArray, GivenValues, MOST_TOKENS, RowShape};
use super::whole::{check_name, check_padding};
use super::{Expected, SampleKind, source_of};
use crate::{Dataset, Error, Images, Labels, Owners, Place, Result, Samples, Scaling, Sequences, Vectors};

/// Everything that a file holds.
pub(super) struct Parts<'a> {
    pub(super) arrays: BTreeMap<String, GivenArray>,
    pub(super) notes: Notes,
    pub(super) file: &'a Path,
}

/// What a sample is to be, and the values of all of them.
enum Inputs {
    Pixels([usize; 3], Vec<u8>),
    Numbers(usize, Vec<f32>),
    Tokens(usize, Vec<u8>),
}

impl Parts<'_> {
    pub(super) fn into_dataset(mut self, expected: &Expected<'_>) -> Result<Dataset> {
        self.check_names()?;
        let (x, y, client) = (self.take("train/x")?, self.take("train/y")?, self.arrays.remove("train/client"));
        let tests = ["test/x", "test/y", "test/client"].map(|name| self.arrays.remove(name));
        let (start, shape) = (x.rows(), x.row_shape().map_err(self.about("train/x"))?);
        self.check_kind(shape, expected.kind)?;
        let mut inputs = self.inputs("train/x", x, shape)?;
        let mut labels = self.integers("train/y", y, shape, start)?;
        let mut owners = client.map(|client| self.owners("train/client", client, start)).transpose()?;
        let has_test = match tests {
            [None, None, None] => false,
            [Some(x), Some(y), client] if client.is_some() == owners.is_some() => {
                let rows = x.rows();
                let found = x.row_shape().map_err(self.about("test/x"))?;
                if found != shape {
                    let problem = format!("`test/x` holds {}, and `train/x` {}", found.words(), shape.words());
                    return Err(malformed(self.file, &problem, "give both the same shape and type"));
                }
                inputs.extend(self.inputs("test/x", x, shape)?);
                labels.extend(self.integers("test/y", y, shape, rows)?);
                if let (Some(owners), Some(client)) = (&mut owners, client) {
                    owners.extend(self.owners("test/client", client, rows)?);
                }
                true
            }
            _ => return Err(malformed(self.file, "some of the tensors of `test` are missing", TENSORS)),
        };
        let owners = match (owners, self.notes.clients.take()) {
            (Some(of), Some(names)) => Some(Owners { names, of }),
            (None, None) => None,
            _ => {
                let problem = "one of the tensor `train/client` and the names `clients` in the metadata is missing";
                return Err(malformed(self.file, problem, "give both, or none where a partition is to deal the samples"));
            }
        };
        let (samples, labels) = self.joined(inputs, labels, expected)?;
        let name = source_of(expected.kind).name().into();
        Ok(Dataset { name, samples, labels, owners, test_start: has_test.then_some(start) })
    }

    fn take(&mut self, name: &str) -> Result<GivenArray> {
        self.arrays.remove(name).ok_or_else(|| malformed(self.file, &format!("there is no `{name}`"), TENSORS))
    }

    fn about(&self, name: &'static str) -> impl Fn(Flaw) -> Error + '_ {
        move |flaw| flaw.in_array(name).at(Place::Whole, self.file)
    }

    fn check_kind(&self, shape: RowShape, kind: SampleKind) -> Result<()> {
        let found = match shape {
            RowShape::Image(_) => SampleKind::Images,
            RowShape::Vector(_) => SampleKind::Numbers,
            RowShape::Tokens(_) => SampleKind::Text,
        };
        if found == kind {
            return Ok(());
        }
        let problem = format!("holds {}, and the data set is `{}`", shape.words(), source_of(kind).name());
        Err(malformed(
            self.file,
            &problem,
            format!("leave out the name of the data set, or choose `data={}`", source_of(found).name()),
        ))
    }

    fn inputs(&self, name: &'static str, x: GivenArray, shape: RowShape) -> Result<Inputs> {
        let inputs = match shape {
            RowShape::Image(shape) => x.into_pixels(u8::MAX).map(|pixels| Inputs::Pixels(shape, pixels)),
            RowShape::Vector(width) => x.into_numbers().map(|values| Inputs::Numbers(width, values)),
            RowShape::Tokens(length) => x.into_tokens(MOST_TOKENS).map(|tokens| Inputs::Tokens(length, tokens)),
        };
        inputs.map_err(self.about(name))
    }

    /// Labels: one a sample, for tokens one a position.
    fn integers(&self, name: &'static str, y: GivenArray, shape: RowShape, rows: usize) -> Result<Vec<i64>> {
        let (labels, wanted) = match shape {
            RowShape::Tokens(length) => (y.shape.get(..2), vec![rows, length]),
            RowShape::Image(_) | RowShape::Vector(_) => (y.shape.get(..1), vec![rows]),
        };
        if labels != Some(&wanted[..]) || y.shape.len() != wanted.len() {
            let problem = format!("`{name}` has the shape `{:?}`", y.shape);
            return Err(malformed(self.file, &problem, format!("give it the shape {wanted:?}")));
        }
        y.into_integers().map_err(self.about(name))
    }

    fn owners(&self, name: &'static str, client: GivenArray, rows: usize) -> Result<Vec<u32>> {
        check_count(if client.shape.len() == 1 { client.rows() } else { 0 }, rows).map_err(self.about(name))?;
        let names = self.notes.clients.as_deref().unwrap_or_default();
        let number = |value: &i64| {
            let number = usize::try_from(*value).ok().filter(|number| *number < names.len());
            let problem = format!("`{value}` is none of the `{}` clients that the metadata name", names.len());
            number.map(|number| number as u32).ok_or_else(|| Flaw::new(problem, "name every client in `clients`"))
        };
        let of = client.into_integers().and_then(|values| values.iter().map(number).collect());
        of.map_err(self.about(name))
    }

    fn joined(&mut self, inputs: Inputs, labels: Vec<i64>, expected: &Expected<'_>) -> Result<(Samples, Labels)> {
        match inputs {
            Inputs::Pixels(shape, pixels) => {
                let scaling = Scaling::identity(shape[2]);
                Ok((Samples::Images(Images { shape, pixels, white: u8::MAX, scaling }), self.classes(&labels, expected)?))
            }
            Inputs::Numbers(width, values) => Ok((Samples::Vectors(Vectors { width, values }), self.classes(&labels, expected)?)),
            Inputs::Tokens(length, symbols) => {
                let next = GivenArray { shape: vec![symbols.len() / length, length], values: GivenValues::Integers(labels) };
                let next = next.into_tokens(MOST_TOKENS).map_err(self.about("y"))?;
                check_padding(&symbols, &next, length).map_err(self.about("y"))?;
                let vocabulary = self.vocabulary(&symbols, &next, expected)?;
                Ok((Samples::Sequences(Sequences { length, vocabulary, symbols }), Labels::NextSymbols(next)))
            }
        }
    }

    fn check_names(&self) -> Result<()> {
        let mut seen = Roster::default();
        for name in self.notes.clients.iter().flatten() {
            let shown = name.escape_debug();
            check_name(name).map_err(|flaw| flaw.at(Place::Client(shown.to_string(), None), self.file))?;
            if seen.number_new(name).is_none() {
                return Err(malformed(self.file, &format!("two clients are called `{shown}`"), "give each a name of its own"));
            }
        }
        Ok(())
    }

    /// Classes by the names in the metadata, or called by their own digits.
    fn classes(&mut self, labels: &[i64], expected: &Expected<'_>) -> Result<Labels> {
        let Some(names) = self.notes.classes.take() else {
            let mut roster = Roster::default();
            let of: Vec<u32> = labels.iter().map(|label| roster.number(&label.to_string())).collect();
            return roster.into_classes(&of, expected.classes);
        };
        let count = names.len() as i64;
        if let Some(label) = labels.iter().find(|label| !(0..count).contains(*label)) {
            let problem = format!("the label `{label}` is none of the `{count}` classes that the metadata name");
            return Err(malformed(self.file, &problem, "name every class in `classes`"));
        }
        let own =
            ClassNames::try_from(names.clone()).map_err(|problem| malformed(self.file, &problem, "name each class once"))?;
        let classes = expected.classes.unwrap_or(&own);
        let numbers = classes.numbers(&names)?;
        let values = labels.iter().map(|label| numbers[*label as usize]).collect();
        Ok(Labels::Classes { names: classes.clone().into(), values })
    }

    fn vocabulary(&self, symbols: &[u8], next: &[u8], expected: &Expected<'_>) -> Result<usize> {
        let largest = symbols.iter().chain(next).copied().max().map_or(0, usize::from);
        let said = expected.vocabulary.map(|size| size.get()).or(self.notes.vocabulary).map(usize::from);
        match said.unwrap_or(largest + 1) {
            size if size > MOST_TOKENS => {
                Err(malformed(self.file, &format!("the vocabulary of `{size}` tokens is too large"), "give at most 256"))
            }
            size if largest >= size => {
                let problem = format!("the token `{largest}` is not below the vocabulary of {size}");
                Err(malformed(self.file, &problem, "give a larger `vocabulary`, or leave it out"))
            }
            size => Ok(size),
        }
    }
}

impl Inputs {
    /// Appends samples of the same shape.
    fn extend(&mut self, more: Self) {
        match (self, more) {
            (Self::Pixels(_, all), Self::Pixels(_, more)) | (Self::Tokens(_, all), Self::Tokens(_, more)) => all.extend(more),
            (Self::Numbers(_, all), Self::Numbers(_, more)) => all.extend(more),
            _ => {}
        }
    }
}
