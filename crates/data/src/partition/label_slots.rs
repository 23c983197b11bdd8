//! How often a label table names each class.
use std::cmp::Reverse;

use super::classes::Classes;
use super::plan::check_clients;
use super::pools::Pools;
use crate::error::{counted, quoted};
use crate::{Error, Result};

/// The slots of each class in a table of `clients` rows with `labels` slots each: equally many, the largest classes (among equals
/// the first) one more where they do not come out even. A class without training samples has none.
pub(super) fn label_slots(classes: &Classes, pools: &Pools, clients: usize, labels: usize) -> Result<Vec<usize>> {
    check_clients(clients, pools.train.len())?;
    let sizes = classes.sizes(&pools.train);
    let mut present: Vec<usize> = (0..sizes.len()).filter(|&class| sizes[class] > 0).collect();
    check_labels(clients, labels, present.len())?;
    check_tested(classes, pools, &sizes)?;

    present.sort_by_key(|&class| Reverse(sizes[class]));
    let (each, left_over) = (clients * labels / present.len(), clients * labels % present.len());
    let mut slots = vec![0; sizes.len()];
    for (rank, &class) in present.iter().enumerate() {
        slots[class] = each + usize::from(rank < left_over);
    }
    check_supply(classes, &sizes, &slots)?;
    Ok(slots)
}

fn check_labels(clients: usize, labels: usize, classes: usize) -> Result<()> {
    if labels == 0 || labels > classes {
        let (held, all) = (quoted(labels, "label"), quoted(classes, "class"));
        let problem = format!("a client cannot hold {held} of a data set with {all}");
        let range = if classes < 2 { "1 label".into() } else { format!("1 to {classes} labels") };
        return Err(Error::unmeetable(problem, format!("ask for {range} a client")));
    }
    if clients * labels < classes {
        let problem = format!(
            "{} with {} each leave some of the `{classes}` classes without an owner",
            quoted(clients, "client"),
            quoted(labels, "label")
        );
        let more_clients = counted(classes.div_ceil(labels), "client");
        let more_labels = counted(classes.div_ceil(clients), "label");
        return Err(Error::unmeetable(problem, format!("ask for {more_clients} or {more_labels} a client")));
    }
    Ok(())
}

/// Refuses a class that would be tested but never trained on: no client could be given its test samples.
fn check_tested(classes: &Classes, pools: &Pools, trained: &[usize]) -> Result<()> {
    let tested = classes.sizes(pools.test.as_deref().unwrap_or_default());
    match (0..trained.len()).find(|&class| tested[class] > 0 && trained[class] == 0) {
        None => Ok(()),
        Some(class) => {
            let problem = format!("class `{}` has test samples but none to train on, so no client holds it", classes.name(class));
            Err(Error::unmeetable(problem, "set a test fraction, so that training and test samples are divided again"))
        }
    }
}

fn check_supply(classes: &Classes, sizes: &[usize], slots: &[usize]) -> Result<()> {
    match (0..sizes.len()).find(|&class| sizes[class] < slots[class]) {
        None => Ok(()),
        Some(class) => {
            let (name, size, slots) = (classes.name(class), sizes[class], slots[class]);
            let problem = format!("class `{name}` has {}, too few for `{slots}` shards", quoted(size, "training sample"));
            Err(Error::unmeetable(problem, "ask for fewer clients or fewer labels a client"))
        }
    }
}
