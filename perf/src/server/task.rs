//! Commands on a data root that nobody serves, such as a bulk load: run to their end and measured.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::script::{Command as Described, PeerError};
use crate::{affinity, clock};

/// Where a peer's commands work: `data` in `root`, with the streams in `streams.json` beside it.
#[derive(Debug, Clone, Copy)]
pub struct Task<'t> {
    /// Directory of peer scripts, and the name of one.
    pub scripts: &'t Path,
    pub name: &'t str,
    /// The directory of the server, or of the commands alone.
    pub root: &'t Path,
    pub cores: &'t [usize],
    /// How long a command may take, in seconds.
    pub patience_s: f64,
}

/// What a command took.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskUsage {
    /// What ran, for reports.
    pub version: String,
    /// From exec to exit, or what the command itself says its work took.
    pub seconds: f64,
    /// User and system time, in nanoseconds.
    pub cpu_ns: u64,
    /// The most that it had in memory at once, in bytes; the largest of its processes.
    pub peak_bytes: u64,
}

/// Why a command was not measured.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("cannot use {0}: {1}")]
    Root(PathBuf, io::Error),
    #[error("cannot start {0}: {1}")]
    Start(String, io::Error),
    #[error("{name} failed ({status}); it ended with: {log}")]
    Failed { name: String, status: String, log: String },
    #[error("{0} took over {1} s")]
    Slow(String, f64),
}

/// A directory with an empty `data` in it that is removed at the end.
#[derive(Debug)]
pub struct TaskRoot(PathBuf);

impl TaskRoot {
    /// Empties `root` and puts the declaration of the streams there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn empty(root: PathBuf, streams: &Value) -> Result<Self, TaskError> {
        let made =
            super::process::empty_root(&root).and_then(|_| fs::write(root.join("streams.json"), streams.to_string()));
        match made {
            Ok(()) => Ok(Self(root)),
            Err(error) => Err(TaskError::Root(root, error)),
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TaskRoot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a command may print as its last line, when not all of its time counts.
#[derive(Deserialize)]
struct Told {
    seconds: f64,
}

impl Task<'_> {
    /// Runs the peer's command `verb`, with further options for its script.
    ///
    /// # Errors
    /// When the peer has no such command, or it fails or takes too long.
    pub fn run(&self, verb: &str, options: &[(&str, &Path)]) -> Result<TaskUsage, TaskError> {
        let fail = |error| TaskError::Root(self.root.to_owned(), error);
        let data = self.root.join("data").canonicalize().map_err(fail)?;
        let described = Described::of(self.scripts, self.name, verb, &data, &self.root.join("streams.json"), options)?;
        let (out, log) = (self.root.join("task.out"), self.root.join("task.log"));
        let Some((program, arguments)) = described.argv.split_first() else {
            return Err(TaskError::Start(self.name.to_owned(), io::Error::other("an empty command")));
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(&described.env).stdin(Stdio::null());
        command.stdout(File::create(&out).map_err(fail)?).stderr(File::create(&log).map_err(fail)?);
        affinity::pin_child(&mut command, self.cores);
        let started_ns = clock::now_ns();
        let child = command.spawn().map_err(|error| TaskError::Start(program.clone(), error))?;
        let pid = libc::pid_t::try_from(child.id()).map_err(|_| fail(io::Error::other("no process id")))?;
        let (status, usage) = wait(pid, started_ns + clock::seconds_ns(self.patience_s))
            .map_err(fail)?
            .ok_or_else(|| TaskError::Slow(format!("{} {verb}", self.name), self.patience_s))?;
        let seconds = (clock::now_ns() - started_ns) as f64 / 1e9;
        if status != 0 {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let log = text.trim().lines().rev().take(5).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>();
            let name = format!("{} {verb}", self.name);
            return Err(TaskError::Failed { name, status: format!("wait status {status}"), log: log.join(" | ") });
        }
        let printed = fs::read_to_string(&out).unwrap_or_default();
        let told = printed.lines().last().and_then(|line| serde_json::from_str::<Told>(line).ok());
        let time_ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Ok(TaskUsage {
            version: described.version,
            seconds: told.map_or(seconds, |told| told.seconds),
            cpu_ns: time_ns(usage.ru_utime) + time_ns(usage.ru_stime),
            peak_bytes: usage.ru_maxrss as u64 * 1024,
        })
    }
}

/// Waits for a child and reaps it; kills it at `until_ns`, then there is no answer.
fn wait(pid: libc::pid_t, until_ns: u64) -> io::Result<Option<(i32, libc::rusage)>> {
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let (mut status, mut late) = (0, false);
    loop {
        let flags = if late { 0 } else { libc::WNOHANG };
        // SAFETY: both places are valid for the call; the child was not waited for by anybody else.
        match unsafe { libc::wait4(pid, &raw mut status, flags, &raw mut usage) } {
            0 => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => return Ok((!late).then_some((status, usage))),
        }
        if clock::now_ns() > until_ns {
            // SAFETY: the child has not been waited for, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            late = true;
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn task(script: &str, patience_s: f64) -> Result<TaskUsage, TaskError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peer");
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let root = TaskRoot::empty(folder.path().join("root"), &Value::Null).unwrap();
        let (scripts, name) = (folder.path(), "peer");
        Task { scripts, name, root: root.path(), cores: &[0], patience_s }.run("work", &[("source", Path::new("x"))])
    }

    fn describing(command: &str) -> String {
        format!(r#"printf %s '{{"version":"v","argv":["sh","-c","{command}"]}}'"#)
    }

    #[test]
    fn a_command_is_measured() {
        let usage = task(&describing("sleep 0.05"), 10.0).unwrap();
        assert!(usage.seconds >= 0.05 && usage.peak_bytes > 100_000 && usage.version == "v", "{usage:?}");
        let told = task(&describing(r#"echo {\\\"seconds\\\":7.5}"#), 10.0).unwrap();
        assert!((told.seconds - 7.5).abs() < 1e-9, "{told:?}");
    }

    #[test]
    fn failures_are_told() {
        let told = |script: &str| task(script, 0.2).unwrap_err().to_string();
        assert!(told(&describing("echo no luck >&2; exit 3")).contains("no luck"));
        assert!(told(&describing("sleep 30")).contains("took over 0.2 s"));
        assert_eq!(told("echo it has no tables >&2; exit 69"), "it has no tables");
    }
}
