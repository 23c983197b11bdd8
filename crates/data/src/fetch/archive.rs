//! A compressed archive at a publisher's address, and the files wanted from it.
use std::path::Path;

use super::fingerprint::Fingerprint;

/// A gzip-compressed tar archive at a publisher's address.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    /// Where it is downloaded from.
    pub address: String,
    /// What the archive itself must be.
    pub fingerprint: Fingerprint,
    /// The files wanted from it; whatever else it holds is left out.
    pub members: Vec<Member>,
}

/// A file inside an archive.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its path in the archive and in the data folder, with `/` between the parts.
    pub path: String,
    /// What it must be.
    pub fingerprint: Fingerprint,
}

impl Archive {
    /// Whether every member is in the data folder, intact.
    pub fn is_in(&self, data: &Path) -> bool {
        self.members.iter().all(|member| member.fingerprint.is_of(&data.join(&member.path)))
    }

    /// Bytes on disk once unpacked.
    pub fn unpacked_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.fingerprint.bytes).sum()
    }

    /// The last part of the address.
    pub(super) fn file_name(&self) -> &str {
        self.address.rsplit('/').next().unwrap_or(&self.address)
    }
}

impl Member {
    /// The last part of its path.
    pub(super) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}
