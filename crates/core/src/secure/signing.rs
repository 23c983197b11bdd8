//! Long-term keys: which clients there are, to each other.
use std::collections::BTreeMap;

use fedeq_secure::{Registry, key_from_hex};

use super::refused;
use crate::error::Result;

/// The registry of so many keys, one for each client from 0.
pub(super) fn registry(keys: &[String]) -> Result<Registry> {
    const REMEDY: &str =
        "collect them again: every client's owner prints its line with `fedeq node key --signing --client N --state DIR`";
    let mut read = BTreeMap::new();
    for (client, text) in keys.iter().enumerate() {
        let (Ok(number), Some(key)) = (u16::try_from(client), key_from_hex(text)) else {
            let problem =
                format!("`plan.secure_aggregation.signing_keys`: the key of client `{client}` is not 64 hexadecimal digits");
            return refused(problem, REMEDY);
        };
        read.insert(number, key);
    }
    Registry::new(read).or_else(|error| refused(format!("`plan.secure_aggregation.signing_keys`: {error}"), REMEDY))
}
