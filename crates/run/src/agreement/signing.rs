//! The list of keys by which clients know each other, as a file.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Result, key_from_hex, key_to_hex};

/// The clients' public keys to sign with, by their numbers: what `fedeq node key --signing --client N` prints, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SigningKeys(BTreeMap<usize, [u8; 32]>);

const LINES: &str = "write a line `N = \"KEY\"` for every client, as `fedeq node key --signing --client N --state DIR` prints it";

impl SigningKeys {
    /// The line of one client.
    pub fn line(client: usize, key: &[u8; 32]) -> String {
        format!("{client} = \"{}\"\n", key_to_hex(key))
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(Error::io(path, "read it"))?;
        Self::from_toml(&text)
            .map_err(|problem| Error::invalid(format!("`{}` is no list of keys to sign with: {problem}", path.display()), LINES))
    }

    fn from_toml(text: &str) -> std::result::Result<Self, String> {
        let lines: BTreeMap<String, String> = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let mut keys = BTreeMap::new();
        for (client, key) in lines {
            let number = client.parse::<usize>().map_err(|_| format!("`{client}` is no number of a client"))?;
            let key = key_from_hex(&key).ok_or_else(|| format!("the key of client `{client}` is not 64 hexadecimal digits"))?;
            if let Some((other, _)) = keys.iter().find(|(_, known)| **known == key) {
                return Err(format!("clients `{other}` and `{number}` have the same key"));
            }
            if keys.insert(number, key).is_some() {
                return Err(format!("client `{number}` is there twice"));
            }
        }
        Ok(Self(keys))
    }

    /// As an experiment has them: one for each client, from 0.
    pub fn in_order(&self) -> Result<Vec<String>> {
        match self.0.keys().enumerate().find(|(place, client)| place != *client) {
            Some((missing, _)) => Err(Error::invalid(format!("the list of keys has none of client `{missing}`"), LINES)),
            None => Ok(self.0.values().map(key_to_hex).collect()),
        }
    }

    /// Refuses keys of an experiment that are not on this list, and an experiment that has none.
    pub fn require_all(&self, keys: &[String]) -> Result<()> {
        if keys.is_empty() {
            return Err(Error::invalid(
                "the experiment has no keys of clients to sign with, and `--signing-keys` asks for them",
                "leave out `--signing-keys` if the server may be trusted to follow the protocol",
            ));
        }
        let is_known = |(client, key): &(usize, &String)| self.0.get(client).copied() == key_from_hex(key);
        match keys.iter().enumerate().find(|line| !is_known(line)) {
            Some((client, _)) => Err(Error::invalid(
                format!("the experiment has a key of client `{client}` that is not on the list of `--signing-keys`"),
                "ask the owner of that client for its key",
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> String {
        key_to_hex(&[byte; 32])
    }

    #[test]
    fn lines_put_together_are_a_list() {
        let lines: String =
            [(10, 3), (1, 2), (0, 1)].iter().map(|(client, byte)| SigningKeys::line(*client, &[*byte; 32])).collect();
        let keys = SigningKeys::from_toml(&lines).expect("a list");
        assert_eq!(keys.0.keys().copied().collect::<Vec<_>>(), [0, 1, 10]);
        assert!(keys.in_order().expect_err("others are missing").to_string().contains("client `2`"));
        keys.require_all(&[key(1), key(2).to_uppercase()]).expect("known");
        assert!(keys.require_all(&[key(1), key(9)]).expect_err("unknown").to_string().contains("client `1`"));
        assert!(keys.require_all(&[key(1), key(2), key(3)]).expect_err("of another client").to_string().contains("client `2`"));
        assert!(keys.require_all(&[]).is_err());
        assert_eq!(SigningKeys::from_toml(&lines.replace("10 =", "2 =")).expect("a list").in_order().expect("all").len(), 3);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let same = format!("0 = \"{0}\"\n1 = \"{0}\"\n", key(1));
        let twice = format!("0 = \"{}\"\n00 = \"{}\"\n", key(1), key(2));
        for (wrong, words) in [
            ("0 = 1", "invalid type"),
            ("first = \"00\"", "no number"),
            ("0 = \"00\"", "64 hexadecimal"),
            (&same, "the same key"),
            (&twice, "there twice"),
        ] {
            let said = SigningKeys::from_toml(wrong).expect_err(words);
            assert!(said.contains(words), "{said}");
        }
    }
}
