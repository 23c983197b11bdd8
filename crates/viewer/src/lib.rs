//! What runs show, and the page that shows it.
//!
//! There is one page. The dashboard serves it and sends it news; a report is the same page with its data inside, in one file that needs nothing else.
//! Both read run folders by the types of this crate, so that a number is the same wherever it stands.
//!
//! # Layout
//! - [`RunView`]: what is known of a run folder, read once and added to while the run continues; `run_info`: its settings, dates and colour
//! - [`Curves`]: its journals as columns of numbers, `columns` and `thinned`: of any length with a bounded number of points
//! - [`news`]: what is sent of a run to somebody who has been told some of it
//! - [`clients`] and [`client_views`]: its clients; [`client_confusion`]: what their models confuse
//! - [`method_colour`]: one colour a method everywhere; [`orders`]: by what its lines are shaded
//! - [`page`]: the page itself, kept in `assets`
mod client;
mod columns;
mod confusion;
mod curves;
mod evaluation_line;
pub mod news;
mod order;
pub mod page;
mod palette;
mod run_info;
mod run_view;
mod thinned;

pub use client::{ClientList, ClientRow, ClientView, ClientViews, client_views, clients};
pub use columns::ColumnSlice;
pub use confusion::{ClientConfusion, Confusion, client_confusion};
pub use curves::Curves;
pub use evaluation_line::QualityPoint;
pub use order::{LineSettings, orders};
pub use palette::{MethodColour, method_colour};
pub use run_info::RunInfo;
pub use run_view::{RunRow, RunView};
