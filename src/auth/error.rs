//! Why a policy cannot be used.

use std::path::{Path, PathBuf};

/// What is wrong with a policy or its files; no message repeats a secret.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A file says something that is not understood.
    #[error("{path}: {detail}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What, and where.
        detail: String,
    },
    /// A thread did not start.
    #[error("the threads that check passwords do not start: {0}; raise the limit on processes (`ulimit -u`)")]
    Thread(std::io::Error),
}

impl AuthError {
    pub(super) fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    pub(super) fn content(path: &Path, detail: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), detail: detail.into() }
    }
}
