//! A person's table laid over the defaults.
use toml::{Table, Value};

/// The keys that say which of several kinds a table is.
pub(super) const TAGS: [&str; 3] = ["name", "rule", "kind"];

/// Lays `over` over `base`, key by key. Where `over` chooses another kind than `base` has, nothing of `base` remains.
pub(super) fn lay(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) if is_same_kind(below, above) => lay(below, above),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Kinds are told apart by a tag, or by the one key that holds all the rest: `{ broyden = { memory = 20 } }`.
fn is_same_kind(below: &Table, above: &Table) -> bool {
    let differs = |tag: &&str| matches!((below.get(*tag), above.get(*tag)), (Some(a), Some(b)) if a != b);
    // A kind without settings of its own has nothing but its tag.
    let has_tag = TAGS.iter().any(|tag| below.contains_key(*tag) || above.contains_key(*tag));
    let has_other_key = !has_tag && below.len() == 1 && above.len() == 1 && below.keys().ne(above.keys());
    !TAGS.iter().any(differs) && !has_other_key
}

/// Puts a value at a path, making tables on the way.
pub(super) fn put(table: &mut Table, path: &[String], value: &Value) {
    let Some((key, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        table.insert(key.clone(), value.clone());
        return;
    }
    let below = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
    if !below.is_table() {
        *below = Value::Table(Table::new());
    }
    if let Value::Table(below) = below {
        put(below, rest, value);
    }
}

/// Kinds whose settings stand below their name, and may be left out: where they stand, and what they are called.
const KINDS_WITH_SETTINGS: [(&[&str], &[&str]); 3] = [
    (&["model", "equilibrium", "solver"], &["anderson", "broyden", "fixed-point"]),
    (&["model", "equilibrium", "adjoint"], &["implicit", "phantom"]),
    (&["training", "warm_start"], &["by-sample"]),
];

/// Writes names out: `model = "mlp"` means `model = { name = "mlp" }`, `solver = "broyden"` means `solver = { broyden = {} }`.
pub(super) fn expand(table: &mut Table) {
    for (path, kinds) in KINDS_WITH_SETTINGS {
        expand_kind(table, path, kinds);
    }
    for section in ["model", "method"] {
        expand_one(table, section, "name");
    }
    if let Some(Value::String(_)) = table.get("data") {
        expand_one(table, "data", "source");
    }
    if let Some(Value::Table(data)) = table.get_mut("data") {
        expand_one(data, "source", "name");
        expand_one(data, "partition", "rule");
    }
}

/// Makes a table of a name at a path; other words are left for the reader to refuse.
fn expand_kind(table: &mut Table, path: &[&str], kinds: &[&str]) {
    match (path, path.first().and_then(|key| table.get_mut(*key))) {
        ([_], Some(value)) => {
            if let Some(kind) = value.as_str().filter(|name| kinds.contains(name)).map(str::to_owned) {
                *value = Value::Table(Table::from_iter([(kind, Value::Table(Table::new()))]));
            }
        }
        ([_, rest @ ..], Some(Value::Table(below))) => expand_kind(below, rest, kinds),
        _ => {}
    }
}

fn expand_one(table: &mut Table, key: &str, tag: &str) {
    if let Some(value @ Value::String(_)) = table.get_mut(key) {
        let name = value.clone();
        *value = Value::Table(Table::from_iter([(tag.to_owned(), name)]));
    }
}

/// Every value that is no table, with its path, in order.
pub(super) fn leaves(table: &Table) -> Vec<(Vec<String>, Value)> {
    let below = |(key, value): (&String, &Value)| -> Vec<(Vec<String>, Value)> {
        let prefixed = |(mut path, value): (Vec<String>, Value)| {
            path.insert(0, key.clone());
            (path, value)
        };
        match value {
            Value::Table(inner) if !inner.is_empty() => leaves(inner).into_iter().map(prefixed).collect(),
            other => vec![(vec![key.clone()], other.clone())],
        }
    };
    table.iter().flat_map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid(base: &str, over: &str) -> Table {
        let mut base: Table = base.parse().expect("TOML");
        lay(&mut base, &over.parse().expect("TOML"));
        base
    }

    #[test]
    fn the_same_kind_is_completed_and_another_kind_replaced() {
        let base = "solver = { anderson = { memory = 5, delay = 0 } }\npartition = { rule = 'iid', clients = 3 }";
        let same = laid(base, "solver = { anderson = { memory = 2 } }\npartition = { clients = 4 }");
        let other = laid(base, "solver = { broyden = { memory = 9 } }\npartition = { rule = 'natural' }");
        let expected = "solver = { anderson = { memory = 2, delay = 0 } }\npartition = { rule = 'iid', clients = 4 }";
        assert_eq!(same, expected.parse().expect("TOML"));
        let expected = "solver = { broyden = { memory = 9 } }\npartition = { rule = 'natural' }";
        assert_eq!(other, expected.parse().expect("TOML"));
    }

    #[test]
    fn names_are_written_out() {
        let mut table: Table = "data = 'digits'\nmodel = 'mlp'".parse().expect("TOML");
        expand(&mut table);
        assert_eq!(table, "data.source.name = 'digits'\nmodel.name = 'mlp'".parse().expect("TOML"));
    }

    #[test]
    fn kinds_may_stand_without_their_settings() {
        let mut table: Table = "model.equilibrium = { solver = 'broyden', adjoint = 'jacobian-free' }".parse().expect("TOML");
        expand(&mut table);
        let expected = "model.equilibrium = { solver = { broyden = {} }, adjoint = 'jacobian-free' }";
        assert_eq!(table, expected.parse().expect("TOML"));
    }
}
