//! The readers, proved on files made here: what they yield, what they refuse and how, and that no bytes make them panic.
mod arrays;
mod catalog;
mod cifar;
mod digits;
mod femnist;
mod fuzz;
mod images;
mod shakespeare;
mod sound;
mod synthetic;
mod table;
mod text;

use fedeq_data::{Error, Result};
use std::fmt::Debug;
use std::path::Path;

/// A path that exists only in error messages.
fn nowhere() -> &'static Path {
    Path::new("made/up.file")
}

/// Proves that something was refused in words that hold each of `parts`, and with a remedy.
fn assert_refused<T: Debug>(result: Result<T>, parts: &[&str]) {
    let error: Error = result.expect_err("should have been refused");
    for part in parts {
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    }
    assert!(!error.hint().is_empty());
}
