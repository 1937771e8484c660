//! What the benches of sending have in common: pairs of sockets, readers, the clock of a thread.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use streamcast_shards::cores;

/// CPU time of the calling thread, user and system, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Connected pairs: those to write to, without delay, and those to read from, which never wait.
pub fn pairs(count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let address = listener.local_addr().expect("an address");
    (0..count)
        .map(|_| {
            let reader = TcpStream::connect(address).expect("a connection");
            let (writer, _) = listener.accept().expect("its other end");
            writer.set_nodelay(true).expect("an option");
            reader.set_nonblocking(true).expect("a mode");
            (writer, reader)
        })
        .unzip()
}

/// Reads everything until told to stop.
pub fn drain(mut readers: Vec<TcpStream>, core: usize, stop: &AtomicBool) {
    cores::pin_current_thread(core);
    let mut buffer = vec![0; 256 * 1024];
    while !stop.load(Ordering::Relaxed) {
        for reader in &mut readers {
            let _ = reader.read(&mut buffer);
        }
    }
}

/// Reads the arguments `[SOCKETS [ROUNDS]]`, pins the calling thread as the sending one and prints what is measured. Returns
/// sockets, rounds, the core of the sending thread, and that of the readers, which is another one where there is one.
pub fn begin(default_rounds: usize) -> (usize, usize, usize, usize) {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (sockets, rounds) =
        (numbers.first().copied().unwrap_or(200), numbers.get(1).copied().unwrap_or(default_rounds));
    let allowed = cores::allowed_cores();
    let (sending, reading) = (allowed[0], *allowed.last().expect("a core"));
    cores::pin_current_thread(sending);
    println!(
        "{sockets} sockets, {rounds} rounds, sender on core {sending}, readers on core {reading}; ns of CPU a send"
    );
    (sockets, rounds, sending, reading)
}
