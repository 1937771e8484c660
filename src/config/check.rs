//! Loading a configuration and checking what only shows when file and command line are put together.

use std::path::Path;

use serde_json::Value;

use super::error::ConfigError;
use super::model::Config;
use super::{file, schema};

/// A commented configuration file with every key, as `--print-config` writes it.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Reads a JSON file with a schema. Duplicate keys are refused: one of them would silently be lost.
///
/// # Errors
/// When it cannot be read, or is not JSON; with line and column.
pub fn load_schema(path: &Path) -> Result<Value, ConfigError> {
    schema::parse_json_file(path, &file::read_text(path)?)
}

impl Config {
    /// Reads a configuration file. Paths in it count from its directory.
    ///
    /// # Errors
    /// The first thing wrong with the file, with its line and column.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        file::load(path)
    }

    /// Checks the finished configuration, after options of the command line took the place of values of the file.
    ///
    /// # Errors
    /// An address other than loopback with neither a policy nor `insecure`, half of what TLS needs, or a data root that is no directory.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut addresses = std::iter::once(self.listen).chain(self.control_listen);
        let open = addresses.find(|address| !address.ip().is_loopback());
        if let Some(open) = open.filter(|_| !self.insecure && !self.auth.any()) {
            return Err(ConfigError::whole(format!(
                "not listening on {open}: whoever reaches it could read and write every stream, because nobody is asked \
                 for a password; give a --policy, listen on 127.0.0.1, or accept that with --insecure (`insecure = true` \
                 in the file)"
            )));
        }
        if self.tls.cert.is_some() != self.tls.key.is_some()
            || (self.tls.client_ca.is_some() && self.tls.cert.is_none())
        {
            return Err(ConfigError::whole("TLS needs a certificate and its key: give both --tls-cert and --tls-key"));
        }
        match std::fs::metadata(&self.root) {
            Ok(found) if !found.is_dir() => {
                let message = "the data root is no directory; name another with --root (`root` in the file)";
                Err(ConfigError::file(&self.root, message))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                Err(ConfigError::file(&self.root, "the data root lies below something that is no directory"))
            }
            _ => Ok(()),
        }
    }
}
