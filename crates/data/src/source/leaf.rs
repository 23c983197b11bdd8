//! The envelope of LEAF's JSON files: `{"users": [..], "num_samples": [..], "user_data": {user: {..}, ..}}`.
//!
//! The keys may come in any order and others are skipped. The file streams by: what is kept of a user is up to the data set.
use super::json::problem_of;
use crate::{Error, Place, Result};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// What a data set does with the users of a file, one after the other.
pub(super) trait Users {
    /// A user begins; refuses one that was there before.
    fn begin(&mut self, name: &str) -> Result<(), String>;

    /// Reads the value of one key of the user's object; `sample` follows along where the value is an array.
    fn field<'de, A: MapAccess<'de>>(&mut self, key: &str, object: &mut A, sample: &mut Option<u64>) -> Result<(), A::Error>;

    /// The user ends; says how many samples there were.
    fn end(&mut self) -> Result<u64, String>;
}

/// Reads one file, and checks that its lists of users and counts agree with what it holds.
pub(super) fn read(input: impl Read, file: &Path, users: &mut impl Users, remedy: &str) -> Result<()> {
    let mut cursor = Cursor::default();
    let mut json = serde_json::Deserializer::from_reader(input);
    let envelope = Whole { users, cursor: &mut cursor }.deserialize(&mut json).and_then(|envelope| json.end().map(|()| envelope));
    let envelope = envelope.map_err(|error| cursor.explain(error, file, remedy))?;
    envelope.check().map_err(|problem| Error::malformed(file, Place::Whole, problem, remedy))
}

/// The user and the sample being read.
#[derive(Default)]
struct Cursor {
    user: Option<String>,
    sample: Option<u64>,
}

impl Cursor {
    fn explain(self, error: serde_json::Error, file: &Path, remedy: &str) -> Error {
        if error.is_io() {
            return Error::io(file, "read it")(error.into());
        }
        let problem = format!("{} (column {} of line {})", problem_of(&error), error.column(), error.line());
        let place = match self.user {
            Some(user) => Place::Client(user, self.sample),
            None => Place::Line(error.line() as u64),
        };
        Error::malformed(file, place, problem, remedy)
    }
}

/// What a file says of itself, and how many samples each user turned out to have.
#[derive(Default)]
struct Envelope {
    users: Option<Vec<String>>,
    num_samples: Option<Vec<u64>>,
    found: Option<BTreeMap<String, u64>>,
}

impl Envelope {
    fn check(self) -> Result<(), String> {
        let users = self.users.ok_or("there is no key `users`")?;
        let counts = self.num_samples.ok_or("there is no key `num_samples`")?;
        let mut found = self.found.ok_or("there is no key `user_data`")?;
        if users.len() != counts.len() {
            return Err(format!("`users` has {} entries but `num_samples` has {}", users.len(), counts.len()));
        }
        if users.is_empty() {
            return Err("`users` is empty".into());
        }
        for (user, count) in users.iter().zip(counts) {
            let found =
                found.remove(user).ok_or_else(|| format!("user `{user}` is missing from `user_data`, or listed twice"))?;
            if found != count {
                return Err(format!("user `{user}` has {found} samples, but `num_samples` says {count}"));
            }
        }
        match found.first_key_value() {
            Some((user, _)) => Err(format!("user `{user}` of `user_data` is missing from `users`")),
            None => Ok(()),
        }
    }
}

/// Reads the whole file.
struct Whole<'a, U> {
    users: &'a mut U,
    cursor: &'a mut Cursor,
}

impl<'de, U: Users> DeserializeSeed<'de> for Whole<'_, U> {
    type Value = Envelope;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Envelope, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, U: Users> Visitor<'de> for Whole<'_, U> {
    type Value = Envelope;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the keys `users`, `num_samples` and `user_data`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Envelope, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(key) = object.next_key::<String>()? {
            let repeated = match key.as_str() {
                "users" => envelope.users.replace(object.next_value()?).is_some(),
                "num_samples" => envelope.num_samples.replace(object.next_value()?).is_some(),
                "user_data" => {
                    let users = AllUsers { users: &mut *self.users, cursor: &mut *self.cursor };
                    envelope.found.replace(object.next_value_seed(users)?).is_some()
                }
                _ => object.next_value::<IgnoredAny>().map(|_| false)?,
            };
            if repeated {
                return Err(A::Error::custom(format!("the key `{key}` appears twice")));
            }
        }
        Ok(envelope)
    }
}

/// Reads `user_data`, and counts the samples of each user.
struct AllUsers<'a, U> {
    users: &'a mut U,
    cursor: &'a mut Cursor,
}

impl<'de, U: Users> DeserializeSeed<'de> for AllUsers<'_, U> {
    type Value = BTreeMap<String, u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, U: Users> Visitor<'de> for AllUsers<'_, U> {
    type Value = BTreeMap<String, u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one entry a user")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut found = BTreeMap::new();
        while let Some(name) = object.next_key::<String>()? {
            self.cursor.user = Some(name.clone());
            self.users.begin(&name).map_err(A::Error::custom)?;
            object.next_value_seed(OneUser { users: &mut *self.users, sample: &mut self.cursor.sample })?;
            found.insert(name, self.users.end().map_err(A::Error::custom)?);
        }
        self.cursor.user = None;
        Ok(found)
    }
}

/// Reads the object of one user.
struct OneUser<'a, U> {
    users: &'a mut U,
    sample: &'a mut Option<u64>,
}

impl<'de, U: Users> DeserializeSeed<'de> for OneUser<'_, U> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, U: Users> Visitor<'de> for OneUser<'_, U> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the keys `x` and `y`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(key) = object.next_key::<String>()? {
            self.users.field(&key, &mut object, self.sample)?;
        }
        Ok(())
    }
}
