//! Why the registry cannot be opened or written.

use std::path::PathBuf;

/// Why the registry cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// SQLite refused.
    #[error("cannot {action} of the registry {}: {source}", .path.display())]
    Sql {
        /// What was being done.
        action: &'static str,
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is something else, or was written by a later program.
    #[error("{} is not a registry that this program can read: {what}", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The registry belongs to another broker.
    #[error(
        "the registry {} belongs to the broker {recorded:?}, and this one is called {configured:?}; set broker_id to the former, or move the registry away",
        .path.display()
    )]
    OtherBroker {
        /// The database.
        path: PathBuf,
        /// The name in it.
        recorded: String,
        /// The name in the configuration.
        configured: String,
    },
    /// A row makes no sense.
    #[error("the registry {} is damaged: {what}; restore it from a backup", .path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// Which row and why.
        what: String,
    },
    /// A stream is in the configuration file and in the registry.
    #[error("stream {name:?} is declared in the configuration and in the registry; rename it in the configuration")]
    Twice {
        /// The name.
        name: String,
    },
    /// The thread for operations did not start.
    #[error("the registry's thread cannot start: {0}; raise the limit on processes (`ulimit -u`)")]
    Thread(std::io::Error),
}
