//! SIGTERM and SIGINT: the first asks for an orderly stop, the second ends the process at once. SIGHUP is passed on.

use std::sync::mpsc;

/// What a shell shows for a process that a signal ended.
const KILLED_BY: i32 = 128;

/// The name of the signal that asks for files to be read again.
pub(super) const RELOAD: &str = "SIGHUP";

/// Takes the three signals from here on; the receiver gets the name of each SIGHUP and of the first of the others. Must be called before other threads
/// start, because they inherit that the signals are this one's to take.
pub(super) fn listen() -> std::io::Result<mpsc::Receiver<&'static str>> {
    // SAFETY: the set is initialised by sigemptyset before it is used; no pointer outlives its call.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGHUP);
        match libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
            0 => set,
            error => return Err(std::io::Error::from_raw_os_error(error)),
        }
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut asked = false;
        loop {
            let mut number = 0;
            // SAFETY: the set is initialised and `number` is valid for the call.
            if unsafe { libc::sigwait(&set, &mut number) } != 0 {
                continue;
            }
            if number == libc::SIGHUP {
                let _ = sender.send(RELOAD);
                continue;
            }
            let name = if number == libc::SIGINT { "SIGINT" } else { "SIGTERM" };
            if asked {
                tracing::warn!(signal = name, "asked twice: ending at once");
                std::process::exit(KILLED_BY + number);
            }
            asked = true;
            let _ = sender.send(name);
        }
    })?;
    Ok(receiver)
}
