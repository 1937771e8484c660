//! How a command ends: one table of exit codes for all of them, and errors on standard error.

use std::fmt::Display;
use std::process::ExitCode;

use crate::client::ClientError;
use crate::config::ConfigError;

/// How a command ended. `--help` of every command repeats this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: everything was done.
    Done,
    /// 1: the command ran and something in it failed: rows were refused, a check failed, the broker stopped badly.
    Failed,
    /// 2: the command line or the configuration is wrong; nothing was done.
    Usage,
    /// 3: the broker cannot be reached, refused, or was given up.
    Broker,
    /// 4: a local file failed: the input, the output, the cursor, the data root.
    File,
    /// 130: ended by a signal before the end of the input.
    Interrupted,
}

/// The table as `--help` shows it.
pub const EXIT_CODES: &str = "Exit codes: 0 done; 1 ran and something failed (rows refused, a check failed); 2 wrong \
                              command line or configuration; 3 broker unreachable or refusing; 4 a local file failed; \
                              130 interrupted.";

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Broker => 3,
            Self::File => 4,
            Self::Interrupted => 130,
        }
    }

    /// Tells the error and ends with this code.
    #[must_use]
    pub fn because(self, error: impl Display) -> Self {
        eprintln!("error: {error}");
        self
    }

    /// Tells why a configuration is refused, with the place.
    #[must_use]
    pub fn config(error: &ConfigError) -> Self {
        eprintln!("error: {error}");
        if let Some(excerpt) = error.excerpt() {
            eprintln!("{excerpt}");
        }
        Self::Usage
    }

    /// Tells why a client gave up.
    #[must_use]
    pub fn client(error: &ClientError) -> Self {
        match error {
            ClientError::Address { .. } => Self::Usage.because(error),
            _ => Self::Broker.because(error),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
