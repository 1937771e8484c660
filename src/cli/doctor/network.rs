//! The network: listeners on one port, and the kernel's queues and buffers.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::host::Host;
use super::report::Finding;

pub fn check(host: &Host) -> Vec<Finding> {
    vec![reuse_port(), backlog(host), send_buffers(host)]
}

/// Every shard listens on the same port.
fn reuse_port() -> Finding {
    let listen = |port: u16| -> std::io::Result<(Socket, u16)> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_port(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
        socket.listen(1)?;
        let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
        Ok((socket, port))
    };
    let both = listen(0).and_then(|(first, port)| listen(port).map(|second| (first, second)));
    match both {
        Ok(_) => Finding::ok("listeners", "several on one port (SO_REUSEPORT)"),
        Err(error) => Finding::fail(
            "listeners",
            format!("two on one port are refused: {error}"),
            "allow TCP sockets on 127.0.0.1 with SO_REUSEPORT in this container or sandbox",
        ),
    }
}

fn backlog(host: &Host) -> Finding {
    let read = |name: &str| host.sysctl(name).and_then(|text| text.parse::<u64>().ok());
    let (queue, half_open) = (read("net.core.somaxconn"), read("net.ipv4.tcp_max_syn_backlog"));
    let found = format!("{} connections wait to be accepted, {} half open", known(queue), known(half_open));
    if queue.is_some_and(|queue| queue < 4_096) || half_open.is_some_and(|half_open| half_open < 1_024) {
        let fix = "install deploy/90-streamcast-uring.conf, or: sysctl -w net.core.somaxconn=8192 net.ipv4.tcp_max_syn_backlog=16384";
        return Finding::warn("accept queue", found, fix);
    }
    Finding::ok("accept queue", found)
}

fn send_buffers(host: &Host) -> Finding {
    const NAME: &str = "send buffers";
    let Some(found) = host.sysctl("net.ipv4.tcp_wmem") else { return Finding::ok(NAME, "unknown") };
    let most = found.split_whitespace().nth(2).and_then(|most| most.parse::<u64>().ok()).unwrap_or(0);
    let shown = format!("tcp_wmem {}", found.split_whitespace().collect::<Vec<_>>().join(" "));
    if most < 1 << 20 {
        let fix = "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304', so that a burst fits a slow peer's buffer";
        return Finding::warn(NAME, shown, fix);
    }
    Finding::ok(NAME, shown)
}

fn known(value: Option<u64>) -> String {
    value.map_or_else(|| "an unknown number of".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::host::made_up;
    use super::super::report::Level;
    use super::*;

    #[test]
    fn queues_and_buffers_are_judged() {
        for (queue, half_open, buffers, levels) in [
            ("4096", "2048", "4096\t16384\t4194304\n", (Level::Ok, Level::Ok)),
            ("128", "2048", "4096 16384 65536", (Level::Warn, Level::Warn)),
            ("65535", "128", "", (Level::Warn, Level::Warn)),
        ] {
            let (_kept, host) = made_up(&[
                ("proc/sys/net/core/somaxconn", queue),
                ("proc/sys/net/ipv4/tcp_max_syn_backlog", half_open),
                ("proc/sys/net/ipv4/tcp_wmem", buffers),
            ]);
            assert_eq!((backlog(&host).level, send_buffers(&host).level), levels, "{queue}");
        }
        let (_kept, host) = made_up(&[]);
        assert_eq!((backlog(&host).level, send_buffers(&host).level), (Level::Ok, Level::Ok));
    }

    #[test]
    fn this_machine_shares_ports() {
        assert_eq!(reuse_port().level, Level::Ok);
    }
}
