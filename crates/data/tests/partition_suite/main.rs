//! What every partition promises, checked on synthetic labels.
mod config;
mod dirichlet;
mod hold_out;
mod labels;
mod natural;
mod own;
mod promises;
mod refusals;
mod split;
mod support;
mod tally;
