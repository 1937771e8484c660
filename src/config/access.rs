//! Who is let in and how: the tables `[auth]` and `[tls]`.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::error::ConfigError;
use super::file::path_in;
use super::table::{At, Table};

/// Where the policy is; without either everybody is let in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Auth {
    /// The policy file.
    pub policy: Option<PathBuf>,
    /// The file of keys that the command `keys` writes.
    pub keys: Option<PathBuf>,
}

impl Auth {
    /// Whether callers have to show who they are.
    #[must_use]
    pub fn any(&self) -> bool {
        self.policy.is_some() || self.keys.is_some()
    }
}

/// Certificates; without `cert` connections are in clear.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// The chain of certificates, PEM, the server's own first.
    pub cert: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Certificates of those who sign certificates of clients, PEM. With them a client must show one.
    pub client_ca: Option<PathBuf>,
    /// Whether the kernel may make the records of readers.
    pub kernel: KernelUse,
}

/// Whether the kernel makes records of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelUse {
    /// Where it can.
    Auto,
    /// Never: shards make them.
    #[default]
    Off,
}

/// Reads both tables.
pub(super) fn read(top: &mut Table<'_>, directory: &Path) -> Result<(Auth, Tls), ConfigError> {
    let mut auth = Auth::default();
    if let Some(mut table) = table(top, "auth", "[auth]")? {
        auth.policy = path(&mut table, "policy", directory)?;
        auth.keys = path(&mut table, "keys", directory)?;
        table.finish()?;
        if !auth.any() {
            return Err(table.error("[auth] names no file; give `policy`, `keys` or both"));
        }
    }
    let mut tls = Tls::default();
    if let Some(mut table) = table(top, "tls", "[tls]")? {
        tls.cert = path(&mut table, "cert", directory)?;
        tls.key = path(&mut table, "key", directory)?;
        tls.client_ca = path(&mut table, "client_ca", directory)?;
        if let Some(entry) = table.take("kernel") {
            tls.kernel = match entry.get_ref() {
                DeValue::String(text) if text == "auto" => KernelUse::Auto,
                DeValue::String(text) if text == "off" => KernelUse::Off,
                _ => return Err(table.mismatch("kernel", "\"auto\" or \"off\"", &entry)),
            };
        }
        table.finish()?;
        if tls.cert.is_none() || tls.key.is_none() {
            return Err(table.error("[tls] needs both `cert` and `key`"));
        }
    }
    Ok((auth, tls))
}

fn table<'s>(top: &mut Table<'s>, key: &'static str, what: &'static str) -> Result<Option<Table<'s>>, ConfigError> {
    let Some(entry) = top.take(key) else { return Ok(None) };
    if !matches!(entry.get_ref(), DeValue::Table(_)) {
        return Err(top.mismatch(key, "a table of files", &entry));
    }
    let (span, source) = (entry.span(), top.source);
    match entry.into_inner() {
        DeValue::Table(entries) => Ok(Some(Table::new(source, what, span, entries))),
        _ => Ok(None),
    }
}

fn path(table: &mut Table<'_>, key: &'static str, directory: &Path) -> Result<Option<PathBuf>, ConfigError> {
    let Some(At { value, span }) = table.text(key)? else { return Ok(None) };
    path_in(directory, &value).map(Some).map_err(|message| table.source.error(span, message))
}
