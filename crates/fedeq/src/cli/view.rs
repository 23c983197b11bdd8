//! By which of their clients' models methods are compared.
use clap::{Args, ValueEnum};
use fedeq_core::View;
pub(super) use fedeq_report::comparison::VIEWS;

/// By which of their clients' models methods are compared.
#[derive(Args, Debug)]
pub(super) struct ViewArgs {
    /// By which of their clients' models all methods are compared, the same for all of them [default: local]
    #[arg(long, value_enum)]
    view: Option<ViewArgument>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ViewArgument {
    /// A client's own model after its last training
    Local,
    /// The server's model with the client's own head
    Shared,
}

impl ViewArgs {
    /// What was asked for, if anything was.
    pub(super) fn view(&self) -> Option<View> {
        self.view.map(|view| match view {
            ViewArgument::Local => View::Local,
            ViewArgument::Shared => View::Shared,
        })
    }
}
