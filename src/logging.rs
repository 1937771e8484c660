//! Structured logs on standard error: text for a person at a terminal, one JSON object a line for everybody else.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The variable that overrides the level, with `tracing_subscriber::EnvFilter` directives.
pub const FILTER_VARIABLE: &str = "STREAMCAST_LOG";

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogForm {
    /// Text if standard error is a terminal, else JSON.
    #[default]
    Auto,
    /// Text with colours where the terminal has them.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The variable does not hold directives.
    #[error("{FILTER_VARIABLE} is not a list of log directives: {0}; write for example info or streamcast_uring=debug")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Somebody set up logging before.
    #[error("logging is set up already")]
    Twice,
}

/// Sets up logging for the process: `level` (error, warn, info, debug, trace) unless [`FILTER_VARIABLE`] says otherwise.
///
/// # Errors
/// If the variable makes no sense, or logging was set up before.
pub fn init(level: &str, form: LogForm) -> Result<(), LoggingError> {
    let directives = std::env::var(FILTER_VARIABLE).ok().filter(|text| !text.is_empty());
    let filter = EnvFilter::try_new(directives.as_deref().unwrap_or(level))?;
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = match form {
        LogForm::Auto => !terminal,
        LogForm::Text => false,
        LogForm::Json => true,
    };
    if json {
        builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
    } else {
        builder.with_ansi(terminal).with_target(false).try_init()
    }
    .map_err(|_| LoggingError::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_set_up_is_an_error_and_not_a_panic() {
        // Whichever test of the process comes first, the second call here finds logging set up.
        let _ = init("warn", LogForm::Json);
        assert!(matches!(init("warn", LogForm::Text), Err(LoggingError::Twice)));
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        if std::env::var_os(FILTER_VARIABLE).is_none() {
            assert!(matches!(init("trades=loud", LogForm::Auto), Err(LoggingError::Filter(_))));
        }
    }
}
