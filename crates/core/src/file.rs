//! Files that are there whole or not at all.
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Writes, syncs and renames: after a power cut there is the old file or the new one, never a part.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let write = || {
        // What lies there is left over, or a link that another program has put there: neither is written to.
        fs::remove_file(partial).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        let mut file = File::create_new(partial)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(Error::io(partial, "write it"))?;
    fs::rename(partial, path).map_err(Error::io(path, "replace it"))?;
    // The rename itself lives in the folder; not every system lets a folder be synced.
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// The first 128 bits of the SHA-256 of some bytes, in hexadecimal.
pub fn fingerprint(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
