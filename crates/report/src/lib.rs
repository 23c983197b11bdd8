//! Runs on paper: figures, reports, and the experiments that reproduce the paper's tables and figures.
//!
//! # Layout
//! - [`report`]: runs on a page to keep; [`comparison`]: finished ones in a table
//! - [`reproduce`]: the paper's tables and figures, and our own
//! - [`figure`]: curves, bars and heat maps as SVG and PNG
//! - [`draw`]: pictures of data; `drawing`: what figures and pictures are made of
//! - [`text_table`]: columns of text; `html`: text in pages
pub mod comparison;
pub mod draw;
mod drawing;
pub mod figure;
mod html;
pub mod report;
pub mod reproduce;
pub mod text_table;
