//! `fedeq dashboard`.
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use clap::Args;

use super::browser::TokenPage;
use super::failure::{Failure, Outcome};
use super::output::{print, tell};
use crate::program;
use fedeq_dashboard::{Address, Dashboard, Shutdown, Token, require_folder};

/// Shows runs in the browser while they train: curves, clients, solver health; pauses, resumes and stops them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq dashboard --open                     the runs below `runs`, in your browser
  fedeq dashboard sweeps/methods             the runs of a sweep
  fedeq dashboard runs --port 9000           where the usual port is taken
  fedeq dashboard runs --bind 0.0.0.0        for other machines

It prints an address with an access token, which opens it; the browser keeps the token in a cookie. Other users of this machine have no access without it. Give a token of
your own in FEDEQ_DASHBOARD_TOKEN: others can see the arguments of your programs.
It reads run folders and nothing else, so it shows finished runs and those of other processes too; links in them are not followed. Ctrl-C ends it; runs continue.
Nothing is encrypted: over a network you do not trust, use `ssh -L 7333:localhost:7333 MACHINE` instead of `--bind`.")]
pub(super) struct Arguments {
    /// The folder below which runs are looked for [default: runs]
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The port; 0 takes any that is free
    #[arg(long, value_name = "N", default_value_t = 7333)]
    port: u16,
    /// The address to listen at
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    bind: IpAddr,
    /// The access token [default: a random one, which is printed]
    #[arg(long, value_name = "T", env = "FEDEQ_DASHBOARD_TOKEN", hide_env_values = true, conflicts_with = "no_token")]
    token: Option<Token>,
    /// Ask for no access token: all users of this machine may watch, pause, stop and resume
    #[arg(long)]
    no_token: bool,
    /// Open it in the browser
    #[arg(long)]
    open: bool,
}

/// Where `fedeq run` puts its runs.
const USUAL: &str = "runs";

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let folder = arguments.folder()?;
    let listener = arguments.listener()?;
    let token = arguments.token()?;
    let address = Address(listener.local_addr().map_err(Failure::output)?);
    tell(&format!("runs below `{}`, until you press Ctrl-C:", folder.display()));
    // Whoever gave a token knows it already, and may not want it in a terminal.
    print(&format!("{}\n", address.url(token.as_ref().filter(|_| arguments.token.is_none()))))?;
    let _token_page = arguments.open.then(|| TokenPage::open(&address.url(token.as_ref())));
    let program = program::words().map_err(Failure::io(Path::new("fedeq"), "find it"))?;
    let dashboard = Dashboard { folder, token, program, patience: Dashboard::PATIENCE };
    dashboard.serve(listener, &ended_by_ctrl_c()).map_err(Failure::during_work)
}

impl Arguments {
    /// A folder that somebody named must be there; the usual one comes with the first run.
    fn folder(&self) -> Outcome<PathBuf> {
        let Some(folder) = &self.folder else { return Ok(USUAL.into()) };
        require_folder(folder).map_err(Failure::refused)?;
        Ok(folder.clone())
    }

    fn listener(&self) -> Outcome<TcpListener> {
        let address = SocketAddr::new(self.bind, self.port);
        let hint = "choose another with `--port`, or let `--port 0` find one; `--bind` takes addresses of this machine";
        TcpListener::bind(address).map_err(|error| Failure::request(format!("cannot listen at `{address}`: {error}"), hint))
    }

    fn token(&self) -> Outcome<Option<Token>> {
        if self.no_token && !self.bind.is_loopback() {
            let problem = format!("`--no-token` at `{}` would let anyone on the network stop your runs", self.bind);
            return Err(Failure::request(problem, "leave one of `--no-token` and `--bind` out"));
        }
        match &self.token {
            _ if self.no_token => Ok(None),
            Some(given) => Ok(Some(given.clone())),
            None => Token::random().map(Some).map_err(Failure::output),
        }
    }
}

fn ended_by_ctrl_c() -> Shutdown {
    let shutdown = Shutdown::default();
    let ours = shutdown.clone();
    // Without a handler Ctrl-C ends the process at once, which does no harm either.
    let _ = ctrlc::set_handler(move || ours.now());
    shutdown
}
