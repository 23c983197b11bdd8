//! Which samples are looked at.
use fedeq_data::{Dataset, Owners};

use crate::cli::failure::{Failure, Outcome};
use fedeq_run::closest::closest;
use fedeq_run::number::count;

/// The samples that are looked at.
pub(in crate::cli::data) struct Selection {
    /// Whose they are, where one client was asked for.
    pub(in crate::cli::data) client: Option<String>,
    /// Indices into the data set, ascending.
    pub(in crate::cli::data) samples: Vec<usize>,
}

impl Selection {
    /// Everything, or what one client holds.
    pub(super) fn of(dataset: &Dataset, client: Option<&str>) -> Outcome<Self> {
        let Some(client) = client else {
            return Ok(Self { client: None, samples: (0..dataset.len()).collect() });
        };
        let owners = dataset.owners.as_ref().ok_or_else(|| no_clients(dataset))?;
        let owner = owners.names.iter().position(|name| name == client).ok_or_else(|| no_such_client(client, owners))?;
        let samples = (0..dataset.len()).filter(|&sample| owners.of[sample] as usize == owner).collect();
        Ok(Self { client: Some(client.to_owned()), samples })
    }

    /// A single sample.
    pub(super) fn one(dataset: &Dataset, sample: usize) -> Outcome<Self> {
        let samples = dataset.len();
        if sample >= samples {
            let problem = format!("there is no sample `{sample}` in `{}`", dataset.name);
            return Err(Failure::request(problem, format!("choose one from 0 to {}", samples.saturating_sub(1))));
        }
        Ok(Self { client: None, samples: vec![sample] })
    }
}

fn no_clients(dataset: &Dataset) -> Failure {
    let name = &dataset.name;
    Failure::request(
        format!("`{name}` does not say whose its samples are"),
        format!("leave out `--client`, or divide the set with `fedeq data partition {name}`"),
    )
}

fn no_such_client(client: &str, owners: &Owners) -> Failure {
    let hint = match closest(client, owners.names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("choose one of {}, such as `{}`", count(owners.names.len()), owners.names[0]),
    };
    Failure::request(format!("there is no client `{client}`"), hint)
}
