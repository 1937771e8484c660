//! SIGTERM and SIGINT: the first asks for an orderly stop, the second ends the process at once.

use std::sync::mpsc;

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

/// What a shell shows for a process that a signal ended.
const KILLED_BY: i32 = 128;

/// Listens on `runtime`; the receiver gets the first signal's name.
pub(super) fn listen(runtime: &Handle) -> std::io::Result<mpsc::Receiver<&'static str>> {
    let (sender, receiver) = mpsc::channel();
    let _entered = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    runtime.spawn(async move {
        let mut asked = false;
        loop {
            let (name, number) = tokio::select! {
                Some(()) = terminate.recv() => ("SIGTERM", 15),
                Some(()) = interrupt.recv() => ("SIGINT", 2),
            };
            if asked {
                tracing::warn!(signal = name, "asked twice: ending at once");
                std::process::exit(KILLED_BY + number);
            }
            asked = true;
            let _ = sender.send(name);
        }
    });
    Ok(receiver)
}
