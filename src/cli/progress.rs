//! How far a publisher has come: one line on a terminal that is written over, and a summary at the end.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::client::Refused;

/// How often the line is written.
const REFRESH: Duration = Duration::from_millis(200);
/// Refused rows that are told one by one.
const MAX_TOLD: u64 = 20;

/// Counts of a run and the line that shows them.
pub struct Progress {
    quiet: bool,
    terminal: bool,
    started: Instant,
    shown: Option<Instant>,
    line_open: bool,
    /// Whether there was a connection.
    pub connected: bool,
    /// Rows stored in this run.
    pub stored: u64,
    /// Rows of those that the broker had already.
    pub dup: u64,
    /// Rows the broker had before this run or before a reconnect.
    pub known: u64,
    /// Rows refused.
    pub refused: u64,
    /// Rows that were sent again without knowing whether they had been stored.
    pub unsure: u64,
}

impl Progress {
    /// Starts counting. `quiet` tells errors and refused rows only.
    pub fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self {
            quiet,
            terminal,
            started: Instant::now(),
            shown: None,
            line_open: false,
            connected: false,
            stored: 0,
            dup: 0,
            known: 0,
            refused: 0,
            unsure: 0,
        }
    }

    /// Shows the counts, on a terminal and not too often.
    pub fn refresh(&mut self) {
        if self.quiet || !self.terminal || self.shown.is_some_and(|shown| shown.elapsed() < REFRESH) {
            return;
        }
        self.shown = Some(Instant::now());
        self.line_open = true;
        eprint!("\r\x1b[K{}", self.counts());
        // A terminal that is gone is no reason to stop.
        let _ = std::io::stderr().flush();
    }

    /// Tells something on a line of its own.
    pub fn note(&mut self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Tells about a refused row, unless there were many.
    pub fn refuse(&mut self, refused: &Refused) {
        self.refused += 1;
        if self.refused <= MAX_TOLD {
            self.say(&format!("line {}: refused: {}", refused.line.number, refused.detail));
        } else if self.refused == MAX_TOLD + 1 {
            self.say("more rows are refused; they are only counted from here on");
        }
    }

    /// Tells the counts one last time, unless nothing was begun.
    pub fn finish(&mut self) {
        if !self.quiet && self.connected {
            let counts = self.counts();
            self.say(&counts);
        }
    }

    fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.line_open) {
            eprint!("\r\x1b[K");
        }
        eprintln!("{text}");
    }

    fn counts(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = self.stored as f64 / seconds.max(1e-3);
        let mut text = format!("{} rows stored in {seconds:.1} s, {rate:.0} rows/s", self.stored);
        for (count, what) in [
            (self.known, "known before"),
            (self.dup, "of them stored before"),
            (self.refused, "refused"),
            (self.unsure, "sent again, perhaps stored twice"),
        ] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text
    }
}
