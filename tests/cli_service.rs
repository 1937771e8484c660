//! The broker as a service manager starts it: with a socket that is there already, and told of how it stands.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// As systemd does: the socket is descriptor 3, and the process that it is for is named by its id.
const AS_SYSTEMD: &str = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask_whether_ready(to: &TcpListener) -> TcpStream {
    let mut client = TcpStream::connect(to.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET /readyz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    client
}

#[test]
fn a_socket_that_is_passed_is_served_and_the_manager_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let told = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    told.set_read_timeout(Some(PATIENCE)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Before there is a broker: whoever comes early waits in the socket's queue.
    let mut early = ask_whether_ready(&listener);

    let mut command = Command::new("sh");
    command.args(["-c", AS_SYSTEMD, env!("CARGO_BIN_EXE_streamcast-uring"), "serve", "--cores", "0", "--log", "error"]);
    // The address is the socket's: this one would be refused.
    command.args(["--listen", "127.0.0.1:1", "--root"]).arg(directory.path().join("data"));
    command.current_dir(directory.path()).env("NOTIFY_SOCKET", directory.path().join("notify"));
    command.stdin(Stdio::from(OwnedFd::from(listener.try_clone().unwrap()))).stdout(Stdio::null());
    let mut broker = Ended(command.spawn().unwrap());

    let state = || {
        let mut bytes = [0; 256];
        let count = told.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    };
    assert_eq!(state(), "READY=1");
    for client in [&mut early, &mut ask_whether_ready(&listener)] {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    // SAFETY: the child has not been waited for, so the id is still its own.
    unsafe { libc::kill(broker.0.id() as libc::pid_t, libc::SIGTERM) };
    assert_eq!(state(), "STOPPING=1");
    assert!(broker.0.wait().unwrap().success());
    // The manager still holds the socket: nobody is refused until the next broker.
    ask_whether_ready(&listener);
}
