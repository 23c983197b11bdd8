//! Settings of one origin, and how those of several origins go over each other.
//!
//! Within one origin (a file, or a command) the order in which settings are given means nothing, but for a key that is given twice: there the
//! last value counts. What contradicts is refused. A later origin changes values of an earlier one; what it makes meaningless of the earlier
//! one is refused as well, by name, unless it replaces a whole section: `method={ name = "fedrep" }`.
use fedeq_core::{Error, Result};
use toml::{Table, Value};

use super::registry::{inner_defaults, kinds, tagged};
use super::setting::Override;

/// Settings of one origin.
#[derive(Default)]
pub(super) struct SettingsLayer {
    settings: Vec<Setting>,
    /// Sections that are given as a whole.
    sections: Vec<Vec<String>>,
}

/// One value and where it stands.
struct Setting {
    path: Vec<String>,
    value: Value,
    /// What a person wrote.
    said: String,
}

/// What two settings have to do with each other.
enum Relation {
    /// Both can stand.
    None,
    /// The same key.
    Same,
    /// Only one of them can stand: one is what the other is a part of, or they belong to different kinds.
    Either,
}

impl SettingsLayer {
    /// What a file says.
    pub(super) fn of_file(mut table: Table) -> Self {
        expand(&mut table);
        let setting = |(path, value): (Vec<String>, Value)| {
            let said = path.join(".");
            Setting { path, value, said }
        };
        Self { settings: leaves(&table).into_iter().map(setting).collect(), sections: Vec::new() }
    }

    /// What a command says, in whatever order.
    pub(super) fn of(overrides: &[Override]) -> Result<Self> {
        let mut layer = Self::default();
        for (index, setting) in overrides.iter().enumerate() {
            if overrides[index + 1..].iter().any(|later| later.path == setting.path) {
                continue;
            }
            if setting.value.is_table() {
                layer.sections.push(setting.path.clone());
            }
            for setting in settings_of(setting) {
                layer.add(setting)?;
            }
        }
        Ok(layer)
    }

    fn add(&mut self, new: Setting) -> Result<()> {
        if let Some(old) = self.settings.iter().find(|old| contradict(old, &new)) {
            let problem = format!("`{}` and `{}` contradict each other", old.said, new.said);
            return Err(Error::invalid(problem, "leave one of them out"));
        }
        self.settings.push(new);
        Ok(())
    }

    /// Lays the settings over those of an earlier origin.
    pub(super) fn over(&self, earlier: &mut Self) -> Result<()> {
        earlier.settings.retain(|old| !self.sections.iter().any(|section| old.path.starts_with(section)));
        for new in &self.settings {
            let lost = earlier.settings.iter().find(|old| matches!(relation(old, new), Relation::Either) && !is_choice(old, new));
            if let Some(old) = lost {
                return Err(unused(old, new));
            }
            earlier.settings.retain(|old| matches!(relation(old, new), Relation::None));
        }
        earlier.settings.extend(self.settings.iter().map(Setting::copied));
        Ok(())
    }

    /// The settings as one table.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        // What is only named goes first, so that what is said of it stays.
        let (named, said): (Vec<_>, Vec<_>) = self.settings.iter().partition(|setting| is_empty(&setting.value));
        named.into_iter().chain(said).for_each(|setting| put(&mut table, &setting.path, &setting.value));
        table
    }

    /// Where settings stand.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        self.settings.iter().map(|setting| setting.path.clone()).collect()
    }

    /// The value at a path.
    pub(super) fn get(&self, path: &[&str]) -> Option<&Value> {
        self.settings.iter().find(|setting| setting.path.iter().eq(path)).map(|setting| &setting.value)
    }
}

impl Setting {
    fn copied(&self) -> Self {
        Self { path: self.path.clone(), value: self.value.clone(), said: self.said.clone() }
    }
}

/// The values that a person sets at once: one, or those of a whole section.
fn settings_of(setting: &Override) -> Vec<Setting> {
    let mut table = Table::new();
    put(&mut table, &setting.path, &setting.value);
    expand(&mut table);
    let said = setting.to_string();
    leaves(&table).into_iter().map(|(path, value)| Setting { path, value, said: said.clone() }).collect()
}

fn contradict(old: &Setting, new: &Setting) -> bool {
    match relation(old, new) {
        Relation::None => false,
        Relation::Same => old.value != new.value,
        Relation::Either => true,
    }
}

fn relation(one: &Setting, other: &Setting) -> Relation {
    if one.path == other.path {
        return Relation::Same;
    }
    let contains = |outer: &Setting, inner: &Setting| inner.path.starts_with(&outer.path) && !is_empty(&outer.value);
    let are_kinds = kinds().iter().any(|kinds| {
        let kind = |setting: &Setting| setting.path.strip_prefix(kinds.path.as_slice()).and_then(|below| below.first()).cloned();
        matches!((kind(one), kind(other)), (Some(one), Some(other)) if one != other)
    });
    if are_kinds || contains(one, other) || contains(other, one) { Relation::Either } else { Relation::None }
}

/// Whether the older of two says no more than which kind it is, so that choosing another loses nothing.
fn is_choice(old: &Setting, new: &Setting) -> bool {
    let is_kind = kinds().iter().any(|kinds| old.path.strip_prefix(kinds.path.as_slice()).is_some_and(|below| below.len() == 1));
    is_empty(&old.value) || new.path.starts_with(&old.path) || (is_kind && !old.value.is_table())
}

fn is_empty(value: &Value) -> bool {
    value.as_table().is_some_and(Table::is_empty)
}

fn unused(old: &Setting, new: &Setting) -> Error {
    let problem = format!("`{}` stands in the file and is not used with `{}`", old.said, new.said);
    Error::invalid(problem, "take it out of the file, or leave that setting out")
}

/// The keys that say which of several kinds a table is.
pub(super) const TAGS: [&str; 3] = ["name", "rule", "kind"];

/// Lays `over` over `base`, key by key. Where `over` chooses another kind than `base` has, nothing of `base` remains; what is not said of that kind, or of a section that
/// `base` does not have, is what the list of settings says.
pub(super) fn lay(base: &mut Table, over: &Table) {
    lay_at(&mut Vec::new(), base, over);
    let defaults: Vec<(&[String], &Value)> = inner_defaults(base).collect();
    for (path, value) in defaults {
        let Some((key, above)) = path.split_last() else { continue };
        if let Some(section) = section_mut(base, over, above) {
            section.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

fn lay_at(path: &mut Vec<String>, base: &mut Table, over: &Table) {
    for (key, value) in over {
        path.push(key.clone());
        match (base.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) if is_same_kind(path, below, above) => lay_at(path, below, above),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
        path.pop();
    }
}

/// Kinds are told apart by a tag, or by the one key that holds all the rest: `{ broyden = { memory = 20 } }`.
fn is_same_kind(path: &[String], below: &Table, above: &Table) -> bool {
    let differs = |tag: &&str| matches!((below.get(*tag), above.get(*tag)), (Some(a), Some(b)) if a != b);
    let has_other_key = kinds().iter().any(|kinds| kinds.path == path) && below.keys().ne(above.keys());
    !TAGS.iter().any(differs) && !has_other_key
}

/// The section at a path, where anything is said of it.
fn section_mut<'a>(base: &'a mut Table, over: &Table, path: &[String]) -> Option<&'a mut Table> {
    path.iter().try_fold(over, |table, key| table.get(key)?.as_table())?;
    path.iter().try_fold(base, |table, key| table.get_mut(key)?.as_table_mut())
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

/// Writes names out: `model = "mlp"` means `model = { name = "mlp" }`, `solver = "broyden"` means `solver = { broyden = {} }`.
pub(super) fn expand(table: &mut Table) {
    for kinds in kinds() {
        let with_settings = |name: String| match kinds.nameable.contains(&name) {
            true => Value::Table(Table::from_iter([(name, Value::Table(Table::new()))])),
            // Other words are left for the reader to refuse.
            false => Value::String(name),
        };
        expand_at(table, &kinds.path, &with_settings);
    }
    let named = |tag: &'static str| move |name: String| Value::Table(Table::from_iter([(tag.to_owned(), Value::String(name))]));
    expand_at(table, &["data"], &named("source"));
    expand_at(table, &["attack"], &named("kind"));
    for section in tagged() {
        expand_at(table, &section.path, &named(&section.tag));
    }
}

/// Writes out the name at a path, if one stands there.
fn expand_at(table: &mut Table, path: &[impl AsRef<str>], written_out: &dyn Fn(String) -> Value) {
    let Some((key, rest)) = path.split_first() else { return };
    match table.get_mut(key.as_ref()) {
        Some(value @ Value::String(_)) if rest.is_empty() => {
            if let Value::String(name) = std::mem::replace(value, Value::Boolean(false)) {
                *value = written_out(name);
            }
        }
        Some(Value::Table(below)) => expand_at(below, rest, written_out),
        _ => {}
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

    fn layer(settings: &[&str]) -> Result<Table> {
        let overrides: Vec<Override> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
        SettingsLayer::of(&overrides).map(|layer| layer.table())
    }

    fn over(file: &str, settings: &[&str]) -> Result<Table> {
        let overrides: Vec<Override> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
        let mut earlier = SettingsLayer::of_file(file.parse().expect("TOML"));
        SettingsLayer::of(&overrides)?.over(&mut earlier)?;
        Ok(earlier.table())
    }

    fn table(text: &str) -> Table {
        text.parse().expect("TOML")
    }

    #[test]
    fn the_order_of_settings_means_nothing() {
        let settings =
            ["method.rho=5", "method=fedeq", "model.equilibrium.solver=broyden", "model.equilibrium.solver.broyden.memory=7"];
        let expected = table("method = { name = 'fedeq', rho = 5 }\nmodel.equilibrium.solver.broyden.memory = 7");
        assert_eq!(layer(&settings).expect("sound"), expected);
        let reversed: Vec<&str> = settings.iter().rev().copied().collect();
        assert_eq!(layer(&reversed).expect("sound"), expected);
    }

    #[test]
    fn of_a_key_given_twice_the_last_value_counts() {
        assert_eq!(layer(&["seed=1", "seed=2"]).expect("sound"), table("seed = 2"));
        assert_eq!(
            layer(&["data.unseen={ count = 2 }", "data.unseen={ fraction = 0.1 }"]).expect("sound"),
            table("data.unseen.fraction = 0.1")
        );
    }

    #[test]
    fn what_contradicts_is_refused_in_any_order() {
        for [one, other] in [
            ["training.warm_start=off", "training.warm_start.by-sample.capacity=5"],
            ["model.equilibrium.solver=broyden", "model.equilibrium.solver.anderson.memory=3"],
            ["data=digits", "data.source=cifar10"],
            ["data.unseen.count=2", "data.unseen.fraction=0.1"],
        ] {
            assert!(layer(&[one, other]).is_err() && layer(&[other, one]).is_err(), "{one} {other}");
        }
    }

    #[test]
    fn a_command_changes_values_of_a_file() {
        let file = "seed = 1\ndata.unseen.count = 3\ntraining.warm_start = 'by-sample'\nmethod = { name = 'fedeq', rho = 5 }";
        let laid = over(file, &["seed=2", "data.unseen.fraction=0.1", "training.warm_start=off", "method.rho=7"]).expect("sound");
        let expected = "seed = 2\ndata.unseen.fraction = 0.1\ntraining.warm_start = 'off'\nmethod = { name = 'fedeq', rho = 7 }";
        assert_eq!(laid, table(expected));
    }

    #[test]
    fn a_setting_of_a_file_is_kept_or_refused_but_never_dropped_in_silence() {
        let file = "method = { name = 'fedeq', rho = 5 }\ntraining.warm_start.by-sample.capacity = 9";
        assert_eq!(over(file, &["method=fedrep"]).expect("sound")["method"], Value::Table(table("name = 'fedrep'\nrho = 5")));
        let error = over(file, &["training.warm_start=off"]).expect_err("it would be lost").to_string();
        assert!(error.contains("`training.warm_start.by-sample.capacity` stands in the file"), "{error}");
        let whole = over(file, &["method={ name = 'fedrep' }"]).expect("the section is replaced");
        assert_eq!(whole["method"], Value::Table(table("name = 'fedrep'")));
    }

    fn laid(base: &str, over: &str) -> Table {
        let mut base: Table = base.parse().expect("TOML");
        lay(&mut base, &over.parse().expect("TOML"));
        base
    }

    #[test]
    fn the_same_kind_is_completed_and_another_kind_replaced() {
        let base =
            "model.equilibrium.solver = { anderson = { memory = 5, delay = 7 } }\npartition = { rule = 'iid', clients = 3 }";
        let same = laid(base, "model.equilibrium.solver = { anderson = { memory = 2 } }\npartition = { clients = 4 }");
        let other = laid(base, "model.equilibrium.solver = { broyden = { memory = 9 } }\npartition = { rule = 'natural' }");
        let expected =
            "model.equilibrium.solver = { anderson = { memory = 2, delay = 7 } }\npartition = { rule = 'iid', clients = 4 }";
        assert_eq!(same, expected.parse().expect("TOML"));
        let expected = "model.equilibrium.solver = { broyden = { memory = 9 } }\npartition = { rule = 'natural' }";
        assert_eq!(other, expected.parse().expect("TOML"));
    }

    #[test]
    fn a_section_of_one_key_is_completed_as_well() {
        assert_eq!(
            laid("data.split.test = 0.2", "data.split.validation = 0.1"),
            table("data.split = { test = 0.2, validation = 0.1 }")
        );
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
