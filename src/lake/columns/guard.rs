//! Panics of a library that meets damaged bytes become errors.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`, and gives what it fails or panics with as text. What it was working on must not be used after a panic.
pub(super) fn guarded<T, E: Display>(work: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("it is damaged ({})", text.unwrap_or("no reason given")))
        }
    }
}
