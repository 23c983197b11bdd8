//! A web page that follows runs while they train.
//!
//! It reads run folders and nothing else, so it shows runs of any process, finished ones, and those on another machine's disk; a run
//! notices it only by the order somebody leaves in its folder. All asynchronous code of the house is in this crate.
//!
//! # Layout
//! - this file: the settings, and serving them
//! - `address`, `guard`: who may watch, and who may act
//! - `connection`: how many connections there may be, and for how long they may be idle
//! - `run_index`: the runs there are; what is known of each is in `fedeq-viewer`, and so is the page
//! - `start`: resuming a run in a process of its own
//! - `route`, `events`, `answer`, `refusal`: requests and answers
//! - `page`: the page as it is sent, and the page that asks for a token
mod address;
mod answer;
mod connection;
mod events;
mod guard;
mod page;
mod refusal;
mod route;
mod run_index;
mod start;

use std::ffi::OsString;
use std::future::Future;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fedeq_core::{Error, Result};
use tokio::sync::Notify;

pub use address::{Address, Token};
use connection::{Clock, Seats};
use guard::Guard;
use run_index::RunIndex;

/// What is served, and to whom.
#[derive(Clone, Debug)]
pub struct Dashboard {
    /// The folder below which runs are looked for; it may itself be a run.
    pub folder: PathBuf,
    /// The access token, if one is asked for.
    pub token: Option<Token>,
    /// The program that resumes runs, and words that come before all others, where it needs some.
    pub program: Vec<OsString>,
    /// How long a connection may say nothing, or listen to nothing.
    pub patience: Duration,
}

/// Ends a dashboard from another thread.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(Arc<Notify>);

impl Shutdown {
    /// Ends it now, or as soon as it begins.
    pub fn now(&self) {
        self.0.notify_one();
    }

    fn asked(&self) -> impl Future<Output = ()> + '_ {
        self.0.notified()
    }
}

impl Dashboard {
    /// The patience of a dashboard that nobody has said otherwise to.
    pub const PATIENCE: Duration = connection::PATIENCE;

    /// Answers requests until it is shut down.
    pub fn serve(self, listener: TcpListener, shutdown: &Shutdown) -> Result<()> {
        let folder = self.folder.clone();
        let failed = Error::io(&folder, "serve it");
        let work = async {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let seats = Seats::new(tokio::net::TcpListener::from_std(listener)?, self.patience);
            let index = Arc::new(RunIndex::new(self.folder, self.program, self.patience));
            read_ahead(&index);
            let router = route::router(index, Guard::new(address, self.token));
            let service = router.into_make_service_with_connect_info::<Clock>();
            let serving = std::pin::pin!(axum::serve(seats, service).into_future());
            // Pages keep their connections open, so there is no waiting for them.
            futures_util::future::select(serving, std::pin::pin!(shutdown.asked())).await;
            Ok(())
        };
        runtime().and_then(|runtime| runtime.block_on(work)).map_err(failed)
    }
}

/// Reads the runs before somebody asks for them: until a browser has opened, most of that is done. Nobody waits for this thread, also at the end.
fn read_ahead(index: &Arc<RunIndex>) {
    let index = Arc::clone(index);
    std::thread::spawn(move || index.read_ahead());
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    // One thread answers; whatever reads files does so beside it.
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Refuses a folder that cannot be looked into.
pub fn require_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let problem = format!("`{}` is not a folder", folder.display());
    Err(Error::invalid(problem, "give a folder that holds runs, such as `runs`, or make some with `fedeq run`"))
}
