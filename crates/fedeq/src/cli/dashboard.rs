//! `fedeq dashboard`: runs in the browser, which it can open.
use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use fedeq_dashboard::{Address, Dashboard, Shutdown, Token, require_folder};

use super::failure::{Failure, Outcome};
use super::output::{print, tell};
use crate::program;

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
pub(super) struct DashboardCommand {
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

pub(super) fn run(arguments: &DashboardCommand) -> Outcome<()> {
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

impl DashboardCommand {
    /// A folder that was named must exist; the usual one comes with the first run.
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

/// A page that leads to an address, readable by its owner alone; it is gone when this is dropped.
///
/// An address with a token is not handed to the browser directly: every user of a machine can see the arguments of all programs.
pub(super) struct TokenPage(Option<PathBuf>);

impl TokenPage {
    /// Asks the system to open an address; where it cannot, the address stands in the terminal.
    pub(super) fn open(url: &str) -> Self {
        let program = match env::consts::OS {
            "macos" => "open",
            "windows" => "explorer",
            _ => "xdg-open",
        };
        let page = match write(url) {
            Ok(page) => page,
            Err(error) => {
                tell(&format!("no browser can be opened from here ({error}): open the address yourself"));
                return Self(None);
            }
        };
        let mut command = Command::new(program);
        command.arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.spawn().is_err() {
            tell(&format!("no browser can be opened from here (`{program}` does not start): open the address yourself"));
        }
        Self(Some(page))
    }
}

impl Drop for TokenPage {
    fn drop(&mut self) {
        let _ = self.0.take().map(fs::remove_file);
    }
}

/// Writes the page where only its owner looks, as far as the system has such a place.
fn write(url: &str) -> io::Result<PathBuf> {
    let folder = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    let folder = folder.unwrap_or_else(env::temp_dir);
    let page = folder.join(format!("fedeq-dashboard-{}.html", Token::random()?.reveal()));
    create(&page)?.write_all(text(url).as_bytes())?;
    Ok(page)
}

/// Makes a file for its owner alone; one that already exists is not touched.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Addresses are made of characters that mean themselves here.
fn text(url: &str) -> String {
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n<title>fedeq dashboard</title>\n<a href=\"{url}\">fedeq dashboard</a>\n"
    )
}
