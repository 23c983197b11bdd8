//! JSON taken apart as it streams by, and its errors in this crate's words.
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Hands the elements of an array to a function one by one, so that the array is never held in memory.
///
/// `index` follows along and keeps the place of a failure.
pub(super) struct Each<'a, T, F> {
    index: &'a mut Option<u64>,
    take: F,
    element: PhantomData<T>,
}

impl<'a, T, F: FnMut(T) -> Result<(), String>> Each<'a, T, F> {
    pub(super) fn new(index: &'a mut Option<u64>, take: F) -> Self {
        Self { index, take, element: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de> for Each<'_, T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Each<'_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        *self.index = Some(0);
        while let Some(element) = elements.next_element()? {
            (self.take)(element).map_err(A::Error::custom)?;
            *self.index = self.index.map(|index| index + 1);
        }
        *self.index = None;
        Ok(())
    }
}

/// What a JSON error says, without the position at its end.
pub(super) fn problem_of(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    said.strip_suffix(&position).unwrap_or(&said).to_owned()
}
