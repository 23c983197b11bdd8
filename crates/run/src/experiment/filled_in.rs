//! An experiment with everything in it, for people to read.
use fedeq_core::{Error, Result};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::registry::unsaid;
use super::{Experiment, TOO_LARGE};

impl Experiment {
    /// The experiment as a file in which every setting stands that it has a value of, also those that [`to_toml`](Self::to_toml) leaves out since they are usual.
    pub fn to_full_toml(&self) -> Result<String> {
        let mut text = self.to_toml()?;
        for (path, value) in self.unsaid()? {
            let Some((key, section)) = path.split_last() else { continue };
            insert_line(&mut text, &section.join("."), &format!("{key} = {value}\n"));
        }
        Ok(text)
    }

    /// The same for programs.
    pub fn to_full_json(&self) -> Result<Json> {
        let mut whole = serde_json::to_value(self).map_err(unwritable)?;
        for (path, value) in self.unsaid()? {
            let place = path.iter().fold(&mut whole, |place, key| &mut place[key.as_str()]);
            *place = serde_json::to_value(value).map_err(unwritable)?;
        }
        Ok(whole)
    }

    fn unsaid(&self) -> Result<Vec<(&'static [String], Value)>> {
        let said = Table::try_from(self).map_err(unwritable)?;
        Ok(unsaid(&said).collect())
    }
}

/// Puts a line into a section of a file, below its own keys; into a new one at the end where there is none.
fn insert_line(text: &mut String, section: &str, line: &str) {
    let heading = format!("[{section}]\n");
    let Some(begin) = text.find(&format!("\n{heading}")).map(|at| at + 1 + heading.len()) else {
        text.push_str(&format!("\n{heading}{line}"));
        return;
    };
    // The next heading follows an empty line.
    let end = text[begin..].find("\n\n").map_or(text.len(), |at| begin + at + 1);
    text.insert_str(end, line);
}

fn unwritable(error: impl std::fmt::Display) -> Error {
    Error::invalid(format!("the experiment cannot be written: {error}"), TOO_LARGE)
}
