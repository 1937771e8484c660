//! Asks the kernel for io_uring before an executor does, because the executor's answer to a "no" is `exit(1)`.

use std::io;

/// Why the shards cannot start here.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// `kernel.io_uring_disabled` or a seccomp filter forbids it.
    #[error(
        "io_uring is forbidden for this process; set the sysctl kernel.io_uring_disabled=0, or allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile"
    )]
    Forbidden,
    /// The kernel is too old or was built without it, or a seccomp filter says so: engines of containers answer like this.
    #[error(
        "io_uring is not there: Linux 5.19 or newer is needed, and in a container a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Missing,
    /// The memlock limit is too low.
    #[error("the memlock limit is too low for io_uring rings; raise it (`ulimit -l 65536`, systemd: LimitMEMLOCK=64M)")]
    Memlock,
    /// An operation the shards need is not there.
    #[error("this kernel's io_uring lacks {operation}; Linux 5.19 or newer is needed")]
    Lacks {
        /// The operation's name.
        operation: &'static str,
    },
    /// Anything else.
    #[error("io_uring cannot be set up: {0}")]
    Other(#[from] io::Error),
}

/// Sets up a small ring and asks it for the operations that the shards use.
pub fn probe_io_uring() -> Result<(), ProbeError> {
    let ring = io_uring::IoUring::new(8).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => ProbeError::Forbidden,
        Some(libc::ENOSYS) => ProbeError::Missing,
        Some(libc::ENOMEM) => ProbeError::Memlock,
        _ => ProbeError::Other(error),
    })?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        (io_uring::opcode::Send::CODE, "send"),
        (io_uring::opcode::Accept::CODE, "accept"),
        (io_uring::opcode::PollAdd::CODE, "poll"),
        (io_uring::opcode::Timeout::CODE, "timeout"),
        (io_uring::opcode::AsyncCancel::CODE, "cancel"),
    ];
    match needed.into_iter().find(|(code, _)| !probe.is_supported(*code)) {
        Some((_, operation)) => Err(ProbeError::Lacks { operation }),
        None => Ok(()),
    }
}
