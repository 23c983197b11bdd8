//! Where text, JSON and pictures go.
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::failure::{Failure, Outcome};
use fedeq_report::draw::DataPicture;
use fedeq_run::number::count;

/// Writes to stdout.
pub(super) fn print(text: &str) -> Outcome<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::output)
}

/// Writes to stdout for other programs.
pub(super) fn print_json(value: &impl Serialize) -> Outcome<()> {
    let json = serde_json::to_string_pretty(value).map_err(io::Error::from).map_err(Failure::output)?;
    print(&(json + "\n"))
}

/// Tells the person something beside the data itself.
pub(super) fn tell(text: &str) {
    // Nothing is lost that the person asked for if stderr is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether and where a command draws.
#[derive(Args, Clone, Debug)]
pub(super) struct PictureArguments {
    /// Where to draw [default: a file named after the data set, in this folder]
    #[arg(long, value_name = "FILE.png", value_parser = png_path)]
    out: Option<PathBuf>,
    /// Draw nothing
    #[arg(long, conflicts_with = "out")]
    no_picture: bool,
}

impl PictureArguments {
    /// Whether the person named a file, and so must get it.
    pub(super) fn is_asked_for(&self) -> bool {
        self.out.is_some()
    }

    /// The file to draw to: the one named, else one that says what `of` is; none if it was declined or only a program reads.
    pub(super) fn path(&self, of: &str, kind: &str, json: bool) -> Option<PathBuf> {
        let usual = || {
            let name = Path::new(of).file_stem().unwrap_or_else(|| OsStr::new("data")).to_string_lossy();
            PathBuf::from(format!("{name}-{kind}.png"))
        };
        self.out.clone().or_else(|| (!self.no_picture && !json).then(usual))
    }
}

/// Accepts only names of PNG files, before any work is done.
fn png_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_png = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    if is_png { Ok(path) } else { Err("pictures are written as PNG: name a file that ends in `.png`".into()) }
}

/// Writes a picture and says so.
pub(super) fn save(picture: DataPicture, path: &Path) -> Outcome<()> {
    let [width, height] = picture.size();
    let bytes = picture.png().map_err(Failure::io(path, "draw it"))?;
    fs::write(path, bytes).map_err(Failure::io(path, "write it"))?;
    tell(&format!("wrote `{}` ({} x {} pixels)", path.display(), count(width as usize), count(height as usize)));
    Ok(())
}
