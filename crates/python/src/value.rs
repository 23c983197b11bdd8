//! Values of Python as values of settings.
use fedeq_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::path::PathBuf;
use toml::{Table, Value};

/// A value; `key` is where it is to stand.
pub(crate) fn value_of(key: &str, given: &Bound<'_, PyAny>) -> Result<Value> {
    if let Ok(table) = given.cast::<PyDict>() {
        return table_of(key, table).map(Value::Table);
    }
    if let Some(items) = items_of(given) {
        return items.iter().map(|item| value_of(key, item)).collect::<Result<Vec<Value>>>().map(Value::Array);
    }
    scalar_of(given).ok_or_else(|| unusable(key, given))
}

/// A dictionary whose keys are words.
pub(crate) fn table_of(key: &str, given: &Bound<'_, PyDict>) -> Result<Table> {
    let mut table = Table::new();
    for (name, value) in given.iter() {
        let Ok(name) = name.extract::<String>() else {
            return Err(Error::invalid(format!("`{key}` has a key that is no text: {}", shown(&name)), "write keys as text"));
        };
        let path = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        table.insert(name, value_of(&path, &value)?);
    }
    Ok(table)
}

fn items_of<'py>(given: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = given.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    given.cast::<PyTuple>().ok().map(|tuple| tuple.iter().collect())
}

/// Truth values, whole numbers and others also as numpy has them.
fn scalar_of(given: &Bound<'_, PyAny>) -> Option<Value> {
    if let Ok(truth) = given.extract::<bool>() {
        return Some(Value::Boolean(truth));
    }
    if let Ok(text) = given.extract::<String>() {
        return Some(Value::String(text));
    }
    if let Ok(path) = given.extract::<PathBuf>() {
        return path.into_os_string().into_string().ok().map(Value::String);
    }
    if given.hasattr("__index__").unwrap_or(false) {
        // One that is too large must not become a rounded one.
        return given.extract::<i64>().ok().map(Value::Integer);
    }
    if given.hasattr("__float__").unwrap_or(false) {
        return given.extract::<f64>().ok().map(Value::Float);
    }
    None
}

fn unusable(key: &str, given: &Bound<'_, PyAny>) -> Error {
    if given.is_none() {
        return Error::invalid(format!("`{key}` is `None`"), "leave it out");
    }
    let problem = format!("`{key}` cannot be {}", shown(given));
    Error::invalid(problem, "give a number below 2^63, a text, a truth value, a path, a list or a dictionary of these")
}

/// A value and its type, in a few letters.
pub(crate) fn shown(given: &Bound<'_, PyAny>) -> String {
    const LONGEST: usize = 60;
    let text = given.repr().map_or_else(|_| "something".into(), |text| text.to_string());
    let short: String = text.chars().take(LONGEST).collect();
    let dots = if short.len() < text.len() { ".." } else { "" };
    let kind = given.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
    format!("`{short}{dots}` of the type `{kind}`")
}
