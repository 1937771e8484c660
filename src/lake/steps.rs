//! Marks between the steps of what must survive a crash, so that tests can crash there.
//!
//! The marks do nothing unless the process is started with one of two variables, which are for tests and described
//! in docs/storage.md: `STREAMCAST_STEPS=print` names each mark on standard error as it is passed, and
//! `STREAMCAST_STEPS=17` ends the process at the seventeenth with SIGKILL, which nothing in it can notice.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The environment variable.
const VARIABLE: &str = "STREAMCAST_STEPS";

enum Plan {
    Nothing,
    Print,
    KillAt(u64),
}

/// Passes a mark: what `name` says is done and lasts, and what comes next has not begun.
pub fn step(name: &str) {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let plan = PLAN.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(text) if text == "print" => Plan::Print,
        Ok(text) => text.parse().map_or(Plan::Nothing, Plan::KillAt),
        Err(_) => Plan::Nothing,
    });
    match plan {
        Plan::Nothing => {}
        Plan::Print => eprintln!("step {}: {name}", PASSED.fetch_add(1, Relaxed) + 1),
        Plan::KillAt(number) => {
            if PASSED.fetch_add(1, Relaxed) + 1 == *number {
                // SAFETY: raising a signal touches no memory of this process.
                unsafe { libc::raise(libc::SIGKILL) };
            }
        }
    }
}
