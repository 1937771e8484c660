//! Keys of ours: random, shown once, kept as hashes in a file that the `keys` command writes.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use argon2::password_hash::rand_core::{OsRng, RngCore};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::AuthError;
use super::file::{GrantsText, read};

/// How every key begins, so that people and scanners recognise one that has leaked.
pub const PREFIX: &str = "sck_";

/// Digits of a key's id.
const ID_DIGITS: usize = 12;
/// Random bytes of a key's secret part.
const SECRET_BYTES: usize = 32;

/// A key as it is kept: it cannot be turned back into the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Names the key; it is part of it and no secret.
    pub id: String,
    /// The principal that whoever shows it is.
    pub name: String,
    /// SHA-256 of the whole key, in hexadecimal digits.
    pub sha256: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds since 1970 from which it is no longer accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Its grants. Without any it has those of the policy's principal of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantsText>,
}

/// The file of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// In the order they were added.
    pub keys: Vec<Key>,
}

/// Whether a text has the form of a key.
#[must_use]
pub fn is_key(text: &str) -> bool {
    id_of(text).is_some()
}

/// The id in a key.
#[must_use]
pub fn id_of(key: &str) -> Option<&str> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    (!id.is_empty() && id.len() <= 32 && digits(id) && digits(secret)).then_some(id)
}

impl Key {
    /// A new key: what is kept of it, and the key itself, which is to be shown once.
    #[must_use]
    pub fn generate(name: &str, lifetime: Option<Duration>, grants: Option<GrantsText>) -> (Self, String) {
        let mut id = [0; ID_DIGITS / 2];
        OsRng.fill_bytes(&mut id);
        let id = HEXLOWER.encode(&id);
        let mut secret = [0; SECRET_BYTES];
        OsRng.fill_bytes(&mut secret);
        let key = format!("{PREFIX}{id}_{}", BASE64URL_NOPAD.encode(&secret));
        let created = unix_s(SystemTime::now());
        let expires = lifetime.map(|lifetime| created.saturating_add(lifetime.as_secs()));
        (Self { id, name: name.to_owned(), sha256: hash(&key), created, expires, grants }, key)
    }

    /// Whether this is `key`, in constant time, and not expired.
    #[must_use]
    pub fn matches(&self, key: &str, now: SystemTime) -> bool {
        let same: bool = self.sha256.as_bytes().ct_eq(hash(key).as_bytes()).into();
        same && self.expires.is_none_or(|expires| unix_s(now) < expires)
    }

    /// When it expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.expires.and_then(|expires| UNIX_EPOCH.checked_add(Duration::from_secs(expires)))
    }
}

fn hash(key: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(key.as_bytes()))
}

/// Seconds since 1970.
#[must_use]
pub fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl KeyFile {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn load(path: &Path) -> Result<Self, AuthError> {
        let text = read(path)?;
        let file: Self = serde_json::from_str(&text).map_err(|error| AuthError::content(path, error.to_string()))?;
        for (place, key) in file.keys.iter().enumerate() {
            if file.keys[..place].iter().any(|other| other.id == key.id) {
                return Err(AuthError::content(path, format!("the key {} is there twice; revoke it", key.id)));
            }
            if key.sha256.len() != 64 || HEXLOWER.decode(key.sha256.as_bytes()).is_err() {
                return Err(AuthError::content(path, format!("the hash of key {} is not a SHA-256", key.id)));
            }
        }
        Ok(file)
    }

    /// Reads the file, or starts one that is not there yet.
    ///
    /// # Errors
    /// As [`KeyFile::load`].
    pub fn load_or_new(path: &Path) -> Result<Self, AuthError> {
        if path.exists() { Self::load(path) } else { Ok(Self::default()) }
    }

    /// Writes the file so that a reader sees the old or the new one, readable by its owner only.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), AuthError> {
        let failed = |error| AuthError::file(path, error);
        let mut text =
            serde_json::to_string_pretty(self).map_err(|error| AuthError::content(path, error.to_string()))?;
        text.push('\n');
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = std::path::PathBuf::from(temporary);
        let mode = std::fs::metadata(path).map_or(0o600, |found| found.permissions().mode() & 0o777);
        let written = (|| {
            let mut file =
                std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, path)?;
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            std::fs::File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
        })();
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        written.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_recognised_and_nothing_else_is() {
        let now = SystemTime::now();
        let (kept, key) = Key::generate("etl", None, None);
        assert_eq!(id_of(&key), Some(kept.id.as_str()));
        assert!(kept.matches(&key, now));
        let (_, other) = Key::generate("etl", None, None);
        assert!(!kept.matches(&other, now) && !kept.matches(&key[..key.len() - 1], now) && !kept.matches("", now));
        assert!(!serde_json::to_string(&kept).unwrap().contains(key.rsplit('_').next().unwrap()));
        for text in ["", "sck_", "sck_a", "sk_a_b", "sck__b", "sck_a b_c"] {
            assert!(!is_key(text), "{text}");
        }
    }

    #[test]
    fn an_expired_key_is_not_accepted() {
        let (kept, key) = Key::generate("etl", Some(Duration::from_secs(60)), None);
        let created = UNIX_EPOCH + Duration::from_secs(kept.created);
        assert!(kept.matches(&key, created + Duration::from_secs(59)));
        assert!(!kept.matches(&key, created + Duration::from_secs(60)));
    }

    #[test]
    fn the_file_survives_being_written_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        assert_eq!(KeyFile::load_or_new(&path).unwrap(), KeyFile::default());
        let file = KeyFile { keys: vec![Key::generate("a", None, None).0, Key::generate("b", None, None).0] };
        file.save(&path).unwrap();
        assert_eq!(KeyFile::load(&path).unwrap(), file);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let twice = KeyFile { keys: vec![file.keys[0].clone(), file.keys[0].clone()] };
        twice.save(&path).unwrap();
        assert!(KeyFile::load(&path).unwrap_err().to_string().contains("twice"));
        std::fs::write(&path, "{").unwrap();
        assert!(KeyFile::load(&path).is_err());
    }
}
