//! What the commands for the life of a stream share: the data root they work on, and how they end.

use std::path::PathBuf;
use std::time::Duration;

use super::common::{LogArgs, start_logging};
use super::exit::Exit;
use crate::broker::open_root;
use crate::config::{Config, Log, LogLevel};
use crate::journal::{JOURNAL_FILE, JournalError};
use crate::lake::life::{LifeError, Root};

/// The configuration that is read when none is named.
pub const DEFAULT_FILE: &str = "streamcast.toml";

/// The data root of a broker that does not run.
#[derive(Debug, clap::Args)]
pub struct RootArgs {
    /// Data root of a broker that does not run
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub root: PathBuf,
    /// Configuration file: its [s3] says how buckets are reached, [lake] and [stream.lake] how rows move, `published`
    /// where tables of a new stream are [default: streamcast.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

impl RootArgs {
    /// Opens the data root, which has to be there.
    pub fn open(&self) -> Result<Root, Exit> {
        if !self.root.join(JOURNAL_FILE).exists() {
            return Err(Exit::File.because(format_args!("there is no journal in {}", self.root.display())));
        }
        self.open_or_make()
    }

    fn chosen(&self) -> Result<Config, Exit> {
        let usual = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
        match self.config.clone().or_else(usual) {
            Some(path) => Config::load(&path).map_err(|error| Exit::config(&error)),
            None => Ok(Config::default()),
        }
    }

    /// Opens the data root, or makes one.
    pub fn open_or_make(&self) -> Result<Root, Exit> {
        let mut log = Log { level: LogLevel::Warn, json: Some(false) };
        self.log.clone().apply(&mut log);
        start_logging(log).map_err(|error| Exit::Usage.because(error))?;
        open_root(&self.root, &self.chosen()?).map_err(|error| failed(&error))
    }
}

/// Tells why a step was not made, with the code that fits.
pub fn failed(error: &LifeError) -> Exit {
    let exit = match error {
        LifeError::NoStream { .. } | LifeError::Short { .. } | LifeError::Moving { .. } => Exit::Failed,
        LifeError::Retired { .. }
        | LifeError::NotRetired { .. }
        | LifeError::RetiredThere { .. }
        | LifeError::Schema { .. }
        | LifeError::SortBy { .. }
        | LifeError::TypeChange { .. }
        | LifeError::Exists { .. }
        | LifeError::Replica { .. }
        | LifeError::Journal(JournalError::Name(_) | JournalError::Differs { .. }) => Exit::Usage,
        _ => Exit::File,
    };
    exit.because(error)
}

/// How long something is kept; `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept(pub Option<Duration>);

/// A time span such as `30d`, `12h`, `90s` or `1.5h`, or `none`.
///
/// # Errors
/// The message for somebody who wrote something else.
pub fn span_or_none(text: &str) -> Result<Kept, String> {
    const UNITS: [(&str, f64); 7] =
        [("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0), ("w", 604_800.0)];
    if text == "none" {
        return Ok(Kept(None));
    }
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim()).map(|(_, seconds)| *seconds);
    match number.parse::<f64>().ok().zip(unit).map(|(number, unit)| number * unit) {
        Some(seconds) if (1e-6..=1e10).contains(&seconds) => Ok(Kept(Some(Duration::from_secs_f64(seconds)))),
        _ => Err("write a span above zero with its unit, such as 30d, 12h, 45m or 90s, or none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_unit() {
        for (text, seconds) in
            [("30d", 2_592_000.0), ("12h", 43_200.0), ("0.5s", 0.5), ("500ms", 0.5), ("2w", 1_209_600.0)]
        {
            assert_eq!(span_or_none(text), Ok(Kept(Some(Duration::from_secs_f64(seconds)))), "{text}");
        }
        assert_eq!(span_or_none("none"), Ok(Kept(None)));
        for text in ["", "30", "d", "-1s", "0s", "1y", "1e3s", "99999999w", "1.2.3s"] {
            assert!(span_or_none(text).is_err(), "{text}");
        }
    }
}
