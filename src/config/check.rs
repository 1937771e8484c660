//! Loading a configuration and checking what only shows when file and command line are put together.

use std::path::Path;

use super::error::ConfigError;
use super::file;
use super::model::Config;

/// A commented configuration file with every key, as `--print-config` writes it.
pub const EXAMPLE: &str = include_str!("example.toml");

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
    /// An address other than loopback without `insecure`, or a data root that is no directory.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.listen.ip().is_loopback() && !self.insecure {
            return Err(ConfigError::whole(format!(
                "not listening on {}: whoever reaches it could read and write every stream, because nobody is asked \
                 for a password; listen on 127.0.0.1, or accept that with --insecure (`insecure = true` in the file)",
                self.listen
            )));
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

/// A list of cores such as `0-3,6` or `all`, checked for its form only.
///
/// # Errors
/// The message for somebody who wrote something else.
pub fn parse_core_list(text: &str) -> Result<String, String> {
    let text = text.trim();
    if file::is_core_list(text) {
        return Ok(text.to_owned());
    }
    Err("this is no list of cores; write numbers and ranges such as 0-3,6, or all".to_owned())
}
