//! The arrays of one client after the other, put together to a data set.
use std::collections::BTreeSet;

use super::super::flaw::Flaw;
use super::super::roster::Roster;
use super::Source;
use super::given::{GivenArray, GivenLabels, MOST_TOKENS, RowShape};
use super::whole::{check_name, check_padding, check_whole};
use crate::{Dataset, Error, Images, Labels, Owners, Result, Samples, Scaling, Sequences, Vectors};

/// What some of a client's samples are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenPart {
    /// To learn from; split into training and test by the experiment where no client gives test samples.
    Train,
    /// To be evaluated by.
    Test,
}

impl GivenPart {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}

/// What clients have given so far.
///
/// ```
/// use fedeq_data::source::arrays::{GivenArray, GivenClients, GivenLabels, GivenPart, GivenValues};
/// let x = |shape: &[usize], values: &[f32]| GivenArray { shape: shape.to_vec(), values: GivenValues::Floats(values.to_vec()) };
/// let names = |names: &[&str]| GivenLabels::Names(names.iter().map(|name| (*name).into()).collect());
/// let mut clients = GivenClients::default();
/// clients.add("ann", GivenPart::Train, x(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), names(&["oak", "elm"]))?;
/// let refused = clients.add("bob", GivenPart::Train, x(&[1, 3], &[1.0, 2.0, 3.0]), names(&["oak"])).unwrap_err();
/// assert!(refused.to_string().contains("`bob`"));
/// assert_eq!(clients.into_dataset()?.len(), 2);
/// # Ok::<(), fedeq_data::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GivenClients {
    names: Roster,
    /// What the first samples are, and whose: all others must be alike.
    first: Option<(RowShape, String)>,
    classes: Roster,
    /// Whether classes have names; nothing before the first one.
    is_named: Option<bool>,
    train: Rows,
    test: Rows,
}

/// The samples of all clients for one purpose.
#[derive(Clone, Debug, Default)]
struct Rows {
    /// Pixels or tokens.
    bytes: Vec<u8>,
    numbers: Vec<f32>,
    /// Classes as numbers of the roster.
    classes: Vec<u32>,
    next: Vec<u8>,
    owners: Vec<u32>,
    /// The clients that have given some.
    given: BTreeSet<u32>,
}

impl GivenClients {
    /// Adds samples of a client and what is to be predicted for each.
    pub fn add(&mut self, client: &str, part: GivenPart, x: GivenArray, y: GivenLabels) -> Result<()> {
        check_name(client).map_err(|flaw| flaw.about(&format!("client `{}`", client.escape_debug())))?;
        let about =
            |array: &'static str| move |flaw: Flaw| flaw.about(&format!("client `{client}`: `{}` `{array}`", part.name()));
        let shape = x.row_shape().map_err(about("x"))?;
        self.check_shape(shape, client).map_err(about("x"))?;
        let rows = x.rows();
        let mut given = Rows::default();
        match shape {
            RowShape::Image(_) => given.bytes = x.into_pixels(u8::MAX).map_err(about("x"))?,
            RowShape::Vector(_) => given.numbers = x.into_numbers().map_err(about("x"))?,
            RowShape::Tokens(length) => {
                given.bytes = x.into_tokens(MOST_TOKENS).map_err(about("x"))?;
                given.next = next_tokens(y, rows, length).map_err(about("y"))?;
                check_padding(&given.bytes, &given.next, length).map_err(about("y"))?;
                return self.append(client, part, given, rows);
            }
        }
        let (is_named, classes) = classes_of(y, rows).map_err(about("y"))?;
        if *self.is_named.get_or_insert(is_named) != is_named {
            let problem = "has strings where others have integers, or the other way round";
            return Err(about("y")(Flaw::new(problem, "name classes in one way for all clients")));
        }
        given.classes = classes.iter().map(|name| self.classes.number(name)).collect();
        self.append(client, part, given, rows)
    }

    fn append(&mut self, client: &str, part: GivenPart, given: Rows, rows: usize) -> Result<()> {
        let number = self.names.number(client);
        let known = if part == GivenPart::Train { &mut self.train } else { &mut self.test };
        if !known.given.insert(number) {
            let flaw = Flaw::new("is given twice", "give each client once");
            return Err(flaw.about(&format!("client `{client}`: `{}`", part.name())));
        }
        known.bytes.extend(given.bytes);
        known.numbers.extend(given.numbers);
        known.classes.extend(given.classes);
        known.next.extend(given.next);
        known.owners.resize(known.owners.len() + rows, number);
        Ok(())
    }

    fn check_shape(&mut self, shape: RowShape, client: &str) -> Result<(), Flaw> {
        let (expected, first) = self.first.get_or_insert_with(|| (shape, client.to_owned()));
        if *expected == shape {
            return Ok(());
        }
        let problem = format!("holds {}, and that of client `{first}` holds {}", shape.words(), expected.words());
        Err(Flaw::new(problem, "give all clients samples of one shape and type"))
    }

    /// All that was given, clients in the order in which they were.
    pub fn into_dataset(self) -> Result<Dataset> {
        let Some((shape, _)) = self.first else {
            return Err(Error::unmeetable("there are no clients", "give at least one: `{\"name\": (x, y)}`"));
        };
        let Rows { mut bytes, mut numbers, mut classes, mut next, mut owners, .. } = self.train;
        let start = owners.len();
        bytes.extend(self.test.bytes);
        numbers.extend(self.test.numbers);
        classes.extend(self.test.classes);
        next.extend(self.test.next);
        owners.extend(self.test.owners);
        let samples = samples_of(shape, bytes, numbers, &next);
        let labels = match shape {
            RowShape::Tokens(_) => Labels::NextSymbols(next),
            RowShape::Image(_) | RowShape::Vector(_) => self.classes.into_classes(&classes, None)?,
        };
        let dataset = Dataset {
            name: Source::of_arrays_like(&samples).name().into(),
            samples,
            labels,
            test_start: (start < owners.len()).then_some(start),
            owners: Some(Owners { names: self.names.into_names(), of: owners }),
        };
        check_whole(&dataset).map_err(|flaw| flaw.about("data"))?;
        Ok(dataset)
    }
}

/// Samples of a shape; tokens are counted with those that follow them.
fn samples_of(shape: RowShape, bytes: Vec<u8>, values: Vec<f32>, next: &[u8]) -> Samples {
    match shape {
        RowShape::Image(shape) => {
            Samples::Images(Images { shape, pixels: bytes, white: u8::MAX, scaling: Scaling::identity(shape[2]) })
        }
        RowShape::Vector(width) => Samples::Vectors(Vectors { width, values }),
        RowShape::Tokens(length) => {
            let vocabulary = largest(&bytes).max(largest(next)) + 1;
            Samples::Sequences(Sequences { length, vocabulary, symbols: bytes })
        }
    }
}

fn largest(tokens: &[u8]) -> usize {
    tokens.iter().copied().max().unwrap_or(0).into()
}

/// The name of every sample's class, and whether it had one: integers are called by their digits.
fn classes_of(y: GivenLabels, rows: usize) -> Result<(bool, Vec<String>), Flaw> {
    let (is_named, classes) = match y {
        GivenLabels::Names(names) => (true, names),
        GivenLabels::Numbers(array) => {
            if array.shape.len() != 1 {
                let problem = format!("has the shape `{:?}`, and one class a sample is expected", array.shape);
                return Err(Flaw::new(problem, "give labels as [N]; the classes of one-hot labels are `y.argmax(axis=1)`"));
            }
            (false, array.into_integers()?.iter().map(i64::to_string).collect())
        }
    };
    check_count(classes.len(), rows)?;
    if classes.iter().any(String::is_empty) {
        return Err(Flaw::new("has a class without a name", "give every sample a class"));
    }
    Ok((is_named, classes))
}

fn next_tokens(y: GivenLabels, rows: usize, length: usize) -> Result<Vec<u8>, Flaw> {
    const NEXT: &str = "give for every token the one that follows, [N, T] like `x`: `x, y = t[:, :-1], t[:, 1:]`; \
                        numbers that are no tokens are given as floats: `x.astype(\"float32\")`";
    match y {
        GivenLabels::Numbers(array) if array.shape == [rows, length] => array.into_tokens(MOST_TOKENS),
        GivenLabels::Numbers(array) => {
            Err(Flaw::new(format!("has the shape `{:?}`, and `x` is tokens [{rows}, {length}]", array.shape), NEXT))
        }
        GivenLabels::Names(_) => Err(Flaw::new("has strings, and `x` is tokens", NEXT)),
    }
}

/// Refuses another number of labels than of samples.
pub(super) fn check_count(labels: usize, rows: usize) -> Result<(), Flaw> {
    if labels == rows {
        return Ok(());
    }
    Err(Flaw::new(format!("has `{labels}` labels for `{rows}` samples in `x`"), "give one label a sample"))
}
