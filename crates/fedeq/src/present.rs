//! Whether a data set is where it is looked for.
use std::path::Path;

use fedeq_data::fetch::offer;
use fedeq_data::source::Source;
use fedeq_data::{Error, Result};

/// A set that can be fetched and is not there is worth a better hint than its reader's.
pub(crate) fn require_present(source: &Source, data: &Path) -> Result<()> {
    let name = source.name();
    if data.is_file() || offer::offer(name).is_none() || offer::find(source, data).is_some() {
        return Ok(());
    }
    Err(Error::unmeetable(
        format!("`{name}` is not in the data folder `{}`", data.display()),
        format!("get it with `fedeq data get {name}`, or name the folder that holds it with `--data DIR`"),
    ))
}
