//! Readers: from bytes to a [`Dataset`](crate::Dataset).
