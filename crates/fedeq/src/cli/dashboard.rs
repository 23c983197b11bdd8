//! `fedeq dashboard`.
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::{print, tell};
use crate::dashboard::{Address, Dashboard, Shutdown, Token, require_folder};

/// Shows runs in the browser while they train: curves, clients, solver health; pauses, resumes and stops them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq dashboard --open                     the runs below `runs`, in your browser
  fedeq dashboard sweeps/methods             the runs of a sweep
  fedeq dashboard runs --port 9000           where the usual port is taken
  fedeq dashboard runs --bind 0.0.0.0        for other machines: prints an address with a token, which opens it

It reads run folders and nothing else, so it shows finished runs and those of other processes too. Ctrl-C ends it; runs go on.
Nothing is encrypted: over a network you do not trust, use `ssh -L 7333:localhost:7333 MACHINE` instead of `--bind`.")]
pub(super) struct Arguments {
    /// The folder below which runs are looked for [default: runs]
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The port; 0 takes any that is free
    #[arg(long, value_name = "N", default_value_t = 7333)]
    port: u16,
    /// The address to listen at; beyond this machine's own, a token is asked of everybody
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    bind: IpAddr,
    /// What everybody must know who wants to look [default: none on this machine, elsewhere one that is made up and printed]
    #[arg(long, value_name = "T", env = "FEDEQ_DASHBOARD_TOKEN", hide_env_values = true)]
    token: Option<Token>,
    /// Open it in the browser
    #[arg(long)]
    open: bool,
}

/// Where `fedeq run` puts its runs.
const USUAL: &str = "runs";

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let folder = arguments.folder()?;
    let listener = arguments.listener()?;
    let token = arguments.token().map_err(Failure::output)?;
    let address = Address(listener.local_addr().map_err(Failure::output)?);
    tell(&format!("runs below `{}`, until you press Ctrl-C:", folder.display()));
    // Whoever gave a token knows it already, and may not want it in a terminal.
    print(&format!("{}\n", address.url(token.as_ref().filter(|_| arguments.token.is_none()))))?;
    if arguments.open {
        open(&address.url(token.as_ref()));
    }
    let program = std::env::current_exe().map_err(Failure::io(Path::new("fedeq"), "find it"))?;
    Dashboard { folder, token, program }.serve(listener, &ended_by_ctrl_c()).map_err(Failure::during_work)
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

    fn token(&self) -> std::io::Result<Option<Token>> {
        match &self.token {
            None if !self.bind.is_loopback() => Token::random().map(Some),
            given => Ok(given.clone()),
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

/// Asks the system to open an address; where it cannot, the address stands in the terminal.
fn open(url: &str) {
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let quiet = Command::new(program).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if quiet.is_err() {
        tell(&format!("no browser can be opened from here (`{program}` does not start): open the address yourself"));
    }
}
