//! Opening an address in the browser.
use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::output::tell;
use fedeq_dashboard::Token;

/// A page that leads to an address, readable by its owner alone; it is gone when this is dropped.
///
/// An address with a token is not handed to the browser directly: everybody on a machine can see the arguments of everybody's programs.
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
