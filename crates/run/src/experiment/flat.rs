//! An experiment as one value a key.
use std::collections::BTreeMap;

use fedeq_core::{Error, Result};
use toml::Table;

use super::Experiment;
use super::overlay::leaves;

impl Experiment {
    /// Every setting that changes results, but the seed, by its dotted path.
    pub fn settings(&self) -> Result<BTreeMap<String, String>> {
        let table = Table::try_from(self).map_err(|error| Error::invalid(error.to_string(), super::TOO_LARGE))?;
        let settings = leaves(&table).into_iter().map(|(path, value)| (path.join("."), value.to_string()));
        let is_essential = |key: &str| key != "seed" && key != "data.folder" && !key.starts_with("engine.");
        let device = ("engine.device".to_owned(), toml::Value::from(self.devices()).to_string());
        Ok(settings.filter(|(key, _)| is_essential(key)).chain([device]).collect())
    }
}
