//! Devices by name.
use fedeq_core::{Error, Result};

/// Refuses devices that this program cannot compute on.
pub(super) fn check(names: &str) -> Result<()> {
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    let is_repeated = |(at, name): (usize, &&str)| names[..at].contains(name);
    if let Some(name) = names.iter().enumerate().find(|place| is_repeated(*place)).map(|(_, name)| name) {
        return Err(Error::invalid(format!("`engine.device` names `{name}` twice"), "name every device once"));
    }
    names.into_iter().try_for_each(one)
}

fn one(name: &str) -> Result<()> {
    if name == "cpu" {
        return Ok(());
    }
    Err(Error::invalid(format!("`engine.device` cannot be `{name}`: this program computes on the CPU"), "set it to `cpu`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_is_named_once() {
        assert!(check("cpu").is_ok());
        let problem = |names: &str| check(names).expect_err("refused").to_string();
        assert_eq!(problem("cpu, cpu"), "`engine.device` names `cpu` twice");
        assert!(problem("cpu,abacus").starts_with("`engine.device` cannot be `abacus`"));
        assert!(problem("").starts_with("`engine.device` cannot be ``"));
    }
}
