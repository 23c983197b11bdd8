//! The node's key: its identity, and how it signs its calls.
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use base64::prelude::{BASE64_STANDARD, Engine};
use fedeq_core::SigningSecret;
use p256::ecdsa::signature::Signer;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::elliptic_curve::Generate;
use p256::pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey, LineEnding};

use crate::{Error, Result};

const ALGORITHM: &str = "ecdsa-sha2-nistp256";
const CURVE: &str = "nistp256";

/// A P-256 key pair. The public key identifies the node; the private key never leaves this value and its file.
pub struct Key {
    private: SigningKey,
    public_pem: String,
}

impl Key {
    /// The key in a file, which is created, readable by its owner alone, if it does not exist.
    pub fn open_or_create(path: &Path) -> Result<Self> {
        if path.exists() { Self::open(path) } else { Self::create(path) }
    }

    /// The key in a file: PEM, PKCS#8.
    pub fn open(path: &Path) -> Result<Self> {
        require_secret(path)?;
        let pem = fs::read_to_string(path).map_err(Error::file(path, "read it"))?;
        let private = SigningKey::from_pkcs8_pem(&pem);
        let private = private.map_err(|_| Error::damaged(path, "it is not a P-256 key in PEM format (PKCS#8)"))?;
        Self::of(private).ok_or_else(|| Error::damaged(path, "its public key cannot be encoded"))
    }

    fn create(path: &Path) -> Result<Self> {
        let private = SigningKey::generate();
        let pem = private.to_pkcs8_pem(LineEnding::LF).map_err(|_| Error::damaged(path, "a new key cannot be encoded"))?;
        write_secret(path, pem.as_bytes()).map_err(Error::file(path, "write it"))?;
        Self::open(path)
    }

    fn of(private: SigningKey) -> Option<Self> {
        let public_pem = private.verifying_key().to_public_key_pem(LineEnding::LF).ok()?;
        Some(Self { private, public_pem })
    }

    /// The public key as Flower expects it: PEM, SubjectPublicKeyInfo.
    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// The public key as one line, as `flwr supernode register` and OpenSSH expect it.
    pub fn public_line(&self) -> String {
        let point = self.private.verifying_key().to_sec1_point(false);
        let parts = [ALGORITHM.as_bytes(), CURVE.as_bytes(), point.as_bytes()];
        let bytes: Vec<u8> = parts.iter().flat_map(|part| [&(part.len() as u32).to_be_bytes()[..], part].concat()).collect();
        format!("{ALGORITHM} {}", BASE64_STANDARD.encode(bytes))
    }

    /// The headers that prove at a given time that a call comes from the holder of this key.
    pub fn headers(&self, now: SystemTime) -> [(&'static str, String); 3] {
        let time = iso(now);
        let signature: DerSignature = self.private.sign(time.as_bytes());
        [
            ("flwr-public-key", BASE64_STANDARD.encode(&self.public_pem)),
            ("flwr-signature", BASE64_STANDARD.encode(signature.as_bytes())),
            ("flwr-timestamp", time),
        ]
    }
}

/// The key in a file by which other clients know this one, which is not the one that a SuperLink knows; created if it does not exist.
pub(crate) fn open_or_create_signing(path: &Path) -> Result<SigningSecret> {
    if !path.exists() {
        let secret = SigningSecret::random().map_err(|error| Error::damaged(path, error.to_string()))?;
        write_secret(path, format!("{}\n", *secret.to_hex()).as_bytes()).map_err(Error::file(path, "write it"))?;
    }
    require_secret(path)?;
    let text = fs::read_to_string(path).map_err(Error::file(path, "read it"))?;
    SigningSecret::from_hex(text.trim()).ok_or_else(|| Error::damaged(path, "it is not a key of 64 hexadecimal digits"))
}

/// Refuses a file that others can read.
#[cfg(unix)]
fn require_secret(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_err(Error::file(path, "read it"))?.permissions();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777;
    let problem = || format!("other users can read this private key (mode `{mode:o}`); make it private with `chmod 600`");
    if mode & 0o077 == 0 { Ok(()) } else { Err(Error::damaged(path, problem())) }
}

/// On other systems the permissions of the folder decide.
#[cfg(not(unix))]
fn require_secret(_path: &Path) -> Result<()> {
    Ok(())
}

/// Writes a file that only its owner can read, whole or not at all.
fn write_secret(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let partial = path.with_extension("partial");
    // A file left by an earlier try may be readable by others, and would stay so.
    if partial.exists() {
        fs::remove_file(&partial)?;
    }
    let mut options = fs::OpenOptions::new();
    options.create_new(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(partial, path)?;
    // A key that was registered must survive a power cut. Not every system can sync a folder.
    if let Some(folder) = path.parent().and_then(|folder| fs::File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// A time as ISO 8601 in UTC, to the microsecond.
fn iso(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00")
}

/// Year, month and day, from the number of days since 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use p256::ecdsa::signature::Verifier;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_python_writes_them() {
        // python3 -c 'import datetime as d; print(d.datetime.fromtimestamp(1709164801.25, d.timezone.utc).isoformat())'
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_164_801_250);
        assert_eq!(iso(now), "2024-02-29T00:00:01.250000+00:00");
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }

    #[test]
    fn a_key_is_created_once_and_its_signatures_verify() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        let key = Key::open_or_create(&path).expect("a new key");
        let again = Key::open_or_create(&path).expect("the same key");
        assert_eq!(key.public_pem(), again.public_pem());
        let [_, (_, signature), (_, time)] = key.headers(SystemTime::now());
        let signature = DerSignature::from_bytes(&BASE64_STANDARD.decode(signature).expect("base64")).expect("DER");
        assert!(again.private.verifying_key().verify(time.as_bytes(), &signature).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_a_key() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        Key::open_or_create(&path).expect("a new key");
        assert_eq!(fs::metadata(&path).expect("it exists").permissions().mode() & 0o777, 0o600);
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        Key::open_or_create(&path).expect("a new key");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
        assert!(Key::open(&path).err().expect("readable by others").to_string().contains("chmod 600"));
    }

    #[test]
    fn a_key_to_sign_with_is_created_once_and_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("signing.key");
        let key = open_or_create_signing(&path).expect("a new key");
        assert_eq!(key.public_key(), open_or_create_signing(&path).expect("the same key").public_key());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).expect("it exists").permissions().mode() & 0o777, 0o600);
        }
        write_secret(&path, b"nonsense").expect("written");
        assert!(open_or_create_signing(&path).err().expect("not a key").to_string().contains("signing.key"));
    }

    #[test]
    fn a_public_key_is_written_as_openssh_writes_it() {
        // from cryptography.hazmat.primitives.asymmetric import ec
        // key = ec.derive_private_key(int.from_bytes(bytes([1] * 32)), ec.SECP256R1()).public_key()
        // key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        let private = SigningKey::from_slice(&[1; 32]).expect("a number below the order");
        let key = Key::of(private).expect("a key");
        let coded = "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBG/wO5SSQc4drdQ1GeaWDgqFtBppoFwygQOqK84VlMoWPE91OlW/AdxT9sCwx+7ni0DG/30lqW4igrmJzvccFEo=";
        assert_eq!(key.public_line(), format!("ecdsa-sha2-nistp256 {coded}"));
    }

    #[test]
    fn a_file_that_is_not_a_key_is_named_in_the_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        write_secret(&path, b"nonsense").expect("written");
        assert!(Key::open(&path).err().expect("not a key").to_string().contains("key.pem"));
    }
}
