//! Randomness that no client knows.
//!
//! All nodes know the seed of the experiment. Noise that came from it could be subtracted, and a cohort that was drawn by it would be known. So both come from a
//! secret that the server draws when it first needs one, and keeps: a round that is repeated after a crash has the same noise, and two noisy sums of the same updates never exist.
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use fedeq_core::{Error, Result};
use fedeq_data::Seed;

/// Its name in the folder of the app. Whoever can read it can subtract the noise.
const SECRET: &str = "noise.secret";

/// The secret of a folder; drawn from the system's randomness the first time.
pub(super) fn secret_of(folder: &Path) -> Result<Seed> {
    let path = folder.join(SECRET);
    match fs::read(&path) {
        Ok(bytes) => {
            let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| Error::damaged(&path, "it does not have 32 bytes"))?;
            Ok(Seed::from_secret(bytes))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).map_err(|error| {
                Error::invalid(format!("the system gives no randomness: {error}"), "noise cannot be drawn without it")
            })?;
            write_private(&path, &bytes)?;
            Ok(Seed::from_secret(bytes))
        }
        Err(error) => Err(Error::io(&path, "read it")(error)),
    }
}

/// A new file that only its owner can read.
fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let write = || {
        let mut file = options.open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(Error::io(path, "write it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_secret_and_another_one_has_another() {
        let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
        let [one, other] = folders.each_ref().map(|folder| secret_of(folder.path()).expect("drawn"));
        assert_ne!(one, other);
        assert_eq!(secret_of(folders[0].path()).expect("read"), one);
        let path = folders[0].path().join(SECRET);
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).expect("there").permissions()) & 0o77, 0);
        fs::write(&path, b"short").expect("written");
        assert!(secret_of(folders[0].path()).expect_err("damaged").to_string().contains("32 bytes"));
    }
}
