//! A toy server that speaks enough of the protocol: it numbers rows, keeps them, fans them out, and can misbehave.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::Value;
use streamcast_perf::net::mask;

/// What the toy does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The row with this offset reaches nobody.
    Lose(u64),
    /// After this row everybody is closed with 4429.
    DropAfter(u64),
    /// Every frame is refused.
    Refuse,
}

#[derive(Default)]
struct State {
    rows: Vec<Vec<u8>>,
    subscribers: Vec<TcpStream>,
}

/// Starts a toy on a free port; it lives as long as the test process.
pub fn start(fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::new(Mutex::new(State::default()));
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                // A broken connection ends its thread and nothing else.
                let _ = serve(socket, &state, fault);
            });
        }
    });
    address
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(mut socket: TcpStream, state: &Mutex<State>, fault: Fault) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    socket.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")?;
    if target.contains("publish") {
        return publisher(socket, state, fault);
    }
    let mut state = lock(state);
    let end = state.rows.len() + 1;
    let replay = if target.contains("offset=") { format!("[1,{end}]") } else { "null".to_owned() };
    let greeting = format!("{{\"streamcast\":4,\"end_offset\":{end},\"replay\":{replay}}}");
    let mut out = frame(0x81, greeting.as_bytes());
    if target.contains("offset=") {
        state.rows.iter().for_each(|row| out.extend(row));
    }
    socket.write_all(&out)?;
    state.subscribers.push(socket);
    Ok(())
}

fn publisher(mut socket: TcpStream, state: &Mutex<State>, fault: Fault) -> io::Result<()> {
    socket.write_all(&frame(0x81, b"{\"streamcast\":4,\"end_offset\":1,\"publisher\":{\"last_seq\":41}}"))?;
    loop {
        let payload = receive(&mut socket)?;
        if fault == Fault::Refuse {
            socket.write_all(&frame(0x81, b"{\"error\":\"rejected\",\"detail\":\"toy\"}"))?;
            continue;
        }
        let rows = match serde_json::from_slice(&payload)? {
            Value::Array(rows) => rows,
            row => vec![row],
        };
        let mut state = lock(state);
        let mut offsets = Vec::new();
        for row in rows {
            let offset = state.rows.len() as u64 + 1;
            offsets.push(offset.to_string());
            let row = frame(0x81, format!("[{offset},1,{row}]").as_bytes());
            state.rows.push(row.clone());
            if fault == Fault::Lose(offset) {
                continue;
            }
            state.subscribers.retain_mut(|subscriber| subscriber.write_all(&row).is_ok());
            if fault == Fault::DropAfter(offset) {
                let close = frame(0x88, b"\x11\x4d{\"error\":\"too_slow\"}");
                state.subscribers.drain(..).for_each(|mut subscriber| {
                    let _ = subscriber.write_all(&close);
                });
            }
        }
        drop(state);
        socket.write_all(&frame(0x81, format!("{{\"ok\":[{}]}}", offsets.join(",")).as_bytes()))?;
    }
}

/// One masked frame's payload.
fn receive(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = [0; 2];
    socket.read_exact(&mut head)?;
    let length = match head[1] & 0x7f {
        126 => {
            let mut wide = [0; 2];
            socket.read_exact(&mut wide)?;
            usize::from(u16::from_be_bytes(wide))
        }
        127 => return Err(io::Error::other("the toy takes no long frames")),
        short => usize::from(short),
    };
    let mut key = [0; 4];
    socket.read_exact(&mut key)?;
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload)?;
    mask::apply(&mut payload, key);
    Ok(payload)
}

fn frame(head: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![head];
    if payload.len() < 126 {
        out.push(payload.len() as u8);
    } else {
        out.push(126);
        out.extend((payload.len() as u16).to_be_bytes());
    }
    out.extend(payload);
    out
}
