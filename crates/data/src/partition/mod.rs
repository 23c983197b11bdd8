//! Who holds what: pure functions from labels and a seed to the samples of each client.
