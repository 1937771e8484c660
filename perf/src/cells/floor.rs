//! The kernel's floor: a process that does nothing but send prebuilt frames to sockets, measured like a server.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use socket2::SockRef;

use super::bench::{Bench, CellError, open_subscribers};
use super::window::observe;
use crate::clock;
use crate::results::Outcome;
use crate::scenario::{Floor, STREAM};
use crate::server::{Peer, Server};
use crate::wire::Kind;

/// What the sending process is started with.
#[derive(Debug, Clone, clap::Args)]
pub struct SenderArguments {
    #[arg(long)]
    pub port: u16,
    #[arg(long)]
    pub subscribers: usize,
    #[arg(long)]
    pub frames: u32,
    #[arg(long)]
    pub bytes: u32,
    #[arg(long)]
    pub rate: f64,
    #[arg(long)]
    pub congestion: Option<String>,
}

/// Measures the sender.
pub(super) fn measure(bench: &Bench<'_>, case: &Floor, peer: &str) -> Result<Outcome, CellError> {
    let program = std::env::current_exe().map_err(|error| CellError::Io("cannot find this program", error))?;
    let argv = |port: u16| {
        let mut argv = vec![program.display().to_string(), "floor-sender".to_owned()];
        for (key, value) in [
            ("--port", port.to_string()),
            ("--subscribers", case.subscribers.to_string()),
            ("--frames", case.frames_per_send.to_string()),
            ("--bytes", case.frame_bytes.to_string()),
            ("--rate", case.rate.to_string()),
        ] {
            argv.extend([key.to_owned(), value]);
        }
        if let Some(congestion) = &case.congestion {
            argv.extend(["--congestion".to_owned(), congestion.clone()]);
        }
        argv
    };
    let root = bench.options.data.join(format!("{}-floor", std::process::id()));
    let describe = |port| Peer {
        wire: Kind::Streamcast,
        version: "send()".into(),
        argv: argv(port),
        env: BTreeMap::new(),
        tls: None,
        table: None,
    };
    let server = Server::start_builtin("floor", &root, &bench.options.run.server_cores, STREAM, describe)?;
    let mut load = bench.load(&server)?;
    open_subscribers(&mut load, STREAM, case.subscribers, case.sample_every)?;
    let start = clock::now_ns() + clock::seconds_ns(bench.seconds(case.warm_s));
    let end = start + clock::seconds_ns(bench.seconds(case.measure_s));
    load.open_window(start..end);
    let observed = observe(&mut load, || server.usage(), (start, end), |load| load.drops().0 > 0)?;
    load.run_until(end + clock::seconds_ns(0.5), |_| false)?;

    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    let group = &load.groups[0];
    let frames = group.messages_in_window;
    outcome.set("deliveries_per_s", frames as f64 / observed.seconds);
    outcome.set("cpu_us_per_frame", observed.cpu_ns_per(frames) / 1e3);
    outcome.set("cpu_ns_per_frame", observed.cpu_ns_per(frames));
    outcome.set("cpu_us_per_send", observed.cpu_ns_per(frames) * f64::from(case.frames_per_send) / 1e3);
    outcome.set("cores_us_per_frame", observed.cores_ns_per(frames) / 1e3);
    outcome.set("server_busy_pct", observed.server_busy() * 100.0);
    outcome.set("generator_busy_pct", observed.generator_busy * 100.0);
    outcome.set("frames_per_read", frames as f64 / group.reads_in_window as f64);
    let mut distribution = group.latency.distribution("latency");
    distribution.max_us = group.max_us();
    outcome.set_distribution("", distribution);
    super::bench::note_problems(&load, &mut outcome.problems);
    Ok(outcome)
}

/// The sending process: takes the subscribers in, then sends every round to each of them, for ever.
///
/// # Errors
/// When a socket breaks, as at the end of a measurement.
pub fn run_sender(arguments: &SenderArguments) -> io::Result<()> {
    crate::affinity::exact_timers();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port))?;
    if let Some(congestion) = &arguments.congestion {
        // Connections inherit it.
        SockRef::from(&listener).set_tcp_congestion(congestion.as_bytes())?;
    }
    let mut sockets: Vec<TcpStream> = Vec::new();
    while sockets.len() < arguments.subscribers {
        let mut socket = listener.accept()?.0;
        if take_in(&mut socket).is_ok() {
            sockets.push(socket);
        }
        if sockets.len() == arguments.subscribers {
            // A probe comes and goes before the subscribers do.
            sockets.retain(is_open);
        }
    }
    let mut schedule = crate::schedule::Schedule::new(clock::now_ns() + 50_000_000, arguments.rate)
        .ok_or_else(|| io::Error::other("the rate must be from 0.001 to 1e9"))?;
    let mut round = Vec::new();
    let mut offset = 1;
    while let Some(due) = schedule.next_due_ns() {
        clock::sleep_until(due);
        schedule.take_due(u64::MAX);
        round.clear();
        for _ in 0..arguments.frames {
            push_frame(&mut round, arguments.bytes as usize, offset, due);
            offset += 1;
        }
        for socket in &mut sockets {
            socket.write_all(&round)?;
        }
    }
    Ok(())
}

/// Answers an upgrade and greets.
fn take_in(socket: &mut TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        match socket.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&chunk[..count]),
        }
    }
    let greeting = br#"{"streamcast":4,"stream":"trades","end_offset":1,"replay":null}"#;
    let mut answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n".to_vec();
    answer.extend([0x81, greeting.len() as u8]);
    answer.extend(greeting);
    socket.write_all(&answer)
}

fn is_open(socket: &TcpStream) -> bool {
    let nothing_yet = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    let open = socket.set_nonblocking(true).is_ok()
        && match socket.peek(&mut [0]) {
            Ok(count) => count > 0,
            Err(error) => nothing_yet(&error),
        };
    open && socket.set_nonblocking(false).is_ok()
}

/// Appends a row frame of `bytes` in all.
fn push_frame(out: &mut Vec<u8>, bytes: usize, offset: u64, stamp_ns: u64) {
    let start = out.len();
    // Two sizes have no header of their own; the long one serves them, and the reader does not mind.
    if bytes <= 127 {
        out.extend([0x81, bytes.saturating_sub(2) as u8]);
    } else {
        out.extend([0x81, 126]);
        out.extend((bytes.saturating_sub(4) as u16).to_be_bytes());
    }
    let _ = write!(out, "[{offset},1,{{\"event_ts\":{stamp_ns},\"pad\":\"");
    let end = start + bytes - 3;
    if out.len() < end {
        out.resize(end, b'x');
    }
    out.extend(b"\"}]");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::websocket;

    #[test]
    fn frames_have_the_size_asked_for() {
        for bytes in [64usize, 120, 127, 128, 129, 130, 300] {
            let mut out = Vec::new();
            push_frame(&mut out, bytes, 12_345, 1_234_567_890_123);
            let frame = websocket::first(&out).unwrap().unwrap();
            assert_eq!((out.len(), frame.size), (bytes, bytes));
            let row: serde_json::Value = serde_json::from_slice(frame.payload).unwrap();
            assert_eq!(row[0], 12_345);
        }
    }
}
