//! One array that a program hands over, and what it is as samples.
use super::super::flaw::Flaw;
use crate::{Error, Images, Result, Samples, Sequences, Vectors};

/// Tokens are kept as bytes.
pub(super) const MOST_TOKENS: usize = 256;
/// How far from a whole number of steps of brightness a float may be: what is lost by writing it as a float.
const ROUNDING: f64 = 1e-4;

const TO_BYTES: &str = "pictures are kept as bytes: give them as `uint8`, such as `(x * 255).round().astype(\"uint8\")` where 1 is white; \
                        numbers that are no pixels can be given as rows, `x.reshape(len(x), -1)`";
const SHAPES: &str =
    "give pictures as [N, H, W] or [N, H, W, C] of `uint8`, numbers as [N, D] of `float32`, or tokens as [N, T] of integers";
const CHANNELS_LAST: &str = "put the channels last: `x.transpose(0, 2, 3, 1)`";

/// Values, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenValues {
    /// `uint8`.
    Bytes(Vec<u8>),
    /// `float32`.
    Floats(Vec<f32>),
    /// `float64`.
    Doubles(Vec<f64>),
    /// Integers of any other size.
    Integers(Vec<i64>),
}

impl GivenValues {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Doubles(values) => values.len(),
            Self::Integers(values) => values.len(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "uint8",
            Self::Floats(_) => "float32",
            Self::Doubles(_) => "float64",
            Self::Integers(_) => "integers",
        }
    }
}

/// An array, the first axis of which counts samples.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenArray {
    /// How long each axis is.
    pub shape: Vec<usize>,
    /// As many as the shape multiplies to.
    pub values: GivenValues,
}

/// What is to be predicted for the samples of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenLabels {
    /// Whole numbers: a class a sample, or a token a position.
    Numbers(GivenArray),
    /// The name of a class a sample.
    Names(Vec<String>),
}

/// What one sample of an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowShape {
    /// Height, width, channels.
    Image([usize; 3]),
    /// So many numbers.
    Vector(usize),
    /// So many tokens.
    Tokens(usize),
}

impl RowShape {
    /// In words, as axes after the first.
    pub(super) fn words(self) -> String {
        match self {
            Self::Image([height, width, channels]) => format!("pictures [N, {height}, {width}, {channels}]"),
            Self::Vector(width) => format!("rows [N, {width}] of floats"),
            Self::Tokens(length) => format!("sequences [N, {length}] of integers"),
        }
    }

    /// That of other samples.
    fn of(samples: &Samples) -> Self {
        match samples {
            Samples::Images(images) => Self::Image(images.shape),
            Samples::Vectors(vectors) => Self::Vector(vectors.width),
            Samples::Sequences(sequences) => Self::Tokens(sequences.length),
        }
    }
}

impl GivenArray {
    /// How many samples it has.
    pub(super) fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// What one of its samples is; refuses shapes and types that are none of the three.
    pub(super) fn row_shape(&self) -> Result<RowShape, Flaw> {
        self.check_size()?;
        let refused = |remedy| Err(Flaw::new(format!("is {} of shape `{:?}`", self.values.name(), self.shape), remedy));
        match (&self.shape[..], &self.values) {
            ([_, height, width], GivenValues::Bytes(_) | GivenValues::Floats(_) | GivenValues::Doubles(_)) => {
                Ok(RowShape::Image([*height, *width, 1]))
            }
            // There are no pictures of so few rows and so many channels, and many have channels first.
            ([_, first, _, last], _) if *first <= 4 && *last > 4 => refused(CHANNELS_LAST),
            ([_, height, width, channels], GivenValues::Bytes(_) | GivenValues::Floats(_) | GivenValues::Doubles(_)) => {
                Ok(RowShape::Image([*height, *width, *channels]))
            }
            ([_, _, _] | [_, _, _, _], GivenValues::Integers(_)) => refused(TO_BYTES),
            ([_, width], GivenValues::Floats(_) | GivenValues::Doubles(_)) => Ok(RowShape::Vector(*width)),
            ([_, length], GivenValues::Bytes(_) | GivenValues::Integers(_)) => Ok(RowShape::Tokens(*length)),
            _ => refused(SHAPES),
        }
    }

    /// Refuses an array without samples, without values, or with another number of values than its shape says.
    fn check_size(&self) -> Result<(), Flaw> {
        let product = self.shape.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis));
        if self.rows() == 0 {
            return Err(Flaw::new("has no samples", "give some, or leave the client out"));
        }
        if product != Some(self.values.len()) {
            let problem = format!("has `{}` values, which do not fit the shape `{:?}`", self.values.len(), self.shape);
            return Err(Flaw::new(problem, SHAPES));
        }
        if self.values.len() == 0 {
            Err(Flaw::new(format!("has the shape `{:?}`: no values", self.shape), SHAPES))
        } else {
            Ok(())
        }
    }

    /// Steps of brightness: bytes as they are, floats that are such a step as a share of white.
    pub(super) fn into_pixels(self, white: u8) -> Result<Vec<u8>, Flaw> {
        let each = self.values.len() / self.rows().max(1);
        let flaw = |at: usize, value: String| {
            let problem = format!(
                "`{value}` in sample {} is no pixel: whole numbers from 0 to {white}, or these divided by {white}",
                at / each.max(1)
            );
            Flaw::new(problem, TO_BYTES)
        };
        let step = |(at, value): (usize, f64)| {
            let (steps, nearest) = (value * f64::from(white), (value * f64::from(white)).round());
            let is_step = (0.0..=f64::from(white)).contains(&nearest) && (steps - nearest).abs() <= ROUNDING;
            if is_step { Ok(nearest as u8) } else { Err(flaw(at, value.to_string())) }
        };
        match self.values {
            GivenValues::Bytes(pixels) => match pixels.iter().position(|&pixel| pixel > white) {
                None => Ok(pixels),
                Some(at) => Err(flaw(at, pixels[at].to_string())),
            },
            GivenValues::Floats(values) => values.into_iter().map(f64::from).enumerate().map(step).collect(),
            GivenValues::Doubles(values) => values.into_iter().enumerate().map(step).collect(),
            GivenValues::Integers(_) => Err(Flaw::new("are integers of another size than a byte", TO_BYTES)),
        }
    }

    /// Finite numbers.
    pub(super) fn into_numbers(self) -> Result<Vec<f32>, Flaw> {
        let width = self.values.len() / self.rows().max(1);
        let values = match self.values {
            GivenValues::Floats(values) => values,
            GivenValues::Doubles(values) => values.into_iter().map(|value| value as f32).collect(),
            other => return Err(Flaw::new(format!("is {} where floats are expected", other.name()), SHAPES)),
        };
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let (sample, column) = (at / width.max(1), at % width.max(1));
                let problem = format!("`{}` in sample {sample}, feature {column} is not a finite number of 32 bits", values[at]);
                Err(Flaw::new(problem, "fill in a number, or remove the feature or the sample"))
            }
        }
    }

    /// Tokens, each a byte.
    pub(super) fn into_tokens(self, vocabulary: usize) -> Result<Vec<u8>, Flaw> {
        let length = self.values.len() / self.rows().max(1);
        let flaw = |at: usize, value: String| {
            let problem = format!("`{value}` in sample {} is no token from 0 to {}", at / length.max(1), vocabulary - 1);
            Flaw::new(problem, "number tokens from 1, with 0 for padding; there may be at most 256")
        };
        let token = |(at, value): (usize, i64)| match u8::try_from(value) {
            Ok(token) if usize::from(token) < vocabulary => Ok(token),
            _ => Err(flaw(at, value.to_string())),
        };
        match self.values {
            GivenValues::Bytes(values) => values.into_iter().map(i64::from).enumerate().map(token).collect(),
            GivenValues::Integers(values) => values.into_iter().enumerate().map(token).collect(),
            other => Err(Flaw::new(format!("is {} where integers are expected", other.name()), SHAPES)),
        }
    }

    /// Whole numbers.
    pub(super) fn into_integers(self) -> Result<Vec<i64>, Flaw> {
        match self.values {
            GivenValues::Integers(values) => Ok(values),
            GivenValues::Bytes(values) => Ok(values.into_iter().map(i64::from).collect()),
            other => Err(Flaw::new(
                format!("is {} where integers are expected", other.name()),
                "give classes as integers or strings: `y.astype(\"int64\")`",
            )),
        }
    }

    /// New samples for a model that has learned from others: of the same kind and size, in the same units. They go by the name `x` in errors.
    pub fn into_samples_like(self, like: &Samples) -> Result<Samples> {
        let (found, wanted) = (self.row_shape().map_err(|flaw| flaw.about("`x`"))?, RowShape::of(like));
        if found != wanted {
            let problem = format!("`x` holds {}, and the model has learned from {}", found.words(), wanted.words());
            return Err(Error::unmeetable(problem, "give samples like those of the run; one sample alone is `x[None]`"));
        }
        let samples = match like {
            Samples::Images(images) => {
                self.into_pixels(images.white).map(|pixels| Samples::Images(Images { pixels, ..empty_like(images) }))
            }
            Samples::Vectors(Vectors { width, .. }) => {
                self.into_numbers().map(|values| Samples::Vectors(Vectors { width: *width, values }))
            }
            &Samples::Sequences(Sequences { length, vocabulary, .. }) => {
                self.into_tokens(vocabulary).map(|symbols| Samples::Sequences(Sequences { length, vocabulary, symbols }))
            }
        };
        samples.map_err(|flaw| flaw.about("`x`"))
    }
}

/// No pictures, of the same kind.
fn empty_like(images: &Images) -> Images {
    Images { shape: images.shape, pixels: Vec::new(), white: images.white, scaling: images.scaling.clone() }
}
