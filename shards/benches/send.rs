//! How to hand the same bytes to many sockets: one `send()` each, the executor's stream writes, or a batch of
//! SEND entries on a ring of one's own. Prints CPU time (user and system) of the sending thread a send.
//!
//! `cargo bench -p streamcast-shards --bench send [-- SOCKETS ROUNDS]`. The readers run on another core where
//! there is one. The finding is in docs/architecture.md.

use std::net::TcpStream;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_lite::AsyncWriteExt;
use glommio::{LocalExecutorBuilder, Placement};
use sockets::{begin, cpu_ns, drain, pairs};
use streamcast_shards::Sender;

#[path = "common/sockets.rs"]
mod sockets;

const PAYLOADS: [(&str, usize); 4] = [("1 frame", 120), ("8 frames", 960), ("35 frames", 4200), ("100 frames", 12_000)];

fn plain(writers: &[TcpStream], bytes: &[u8]) {
    for writer in writers {
        // SAFETY: the slice is valid for the call.
        while unsafe {
            libc::send(writer.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        } < 0
        {
            std::thread::yield_now();
        }
    }
}

fn batched(sender: &mut Sender, writers: &[TcpStream], bytes: &[u8]) {
    for batch in writers.chunks(256) {
        for (index, writer) in batch.iter().enumerate() {
            // SAFETY: `bytes` outlives the submission below.
            unsafe { sender.push(writer.as_raw_fd(), bytes, index as u64) };
        }
        sender.submit(|_, _| {}).expect("a submission");
    }
}

fn executor_writes(writers: Vec<TcpStream>, rounds: usize, core: usize) -> [u64; PAYLOADS.len()] {
    let executor = LocalExecutorBuilder::new(Placement::Fixed(core)).io_memory(64 << 10).make().expect("an executor");
    executor.run(async move {
        let mut streams: Vec<glommio::net::TcpStream> = writers
            .into_iter()
            .map(|writer| {
                // SAFETY: the descriptor was just given up by its only owner.
                unsafe { std::os::fd::FromRawFd::from_raw_fd(writer.into_raw_fd()) }
            })
            .collect();
        let mut results = [0; PAYLOADS.len()];
        for (result, (_, length)) in results.iter_mut().zip(PAYLOADS) {
            let bytes = vec![b'x'; length];
            let before = cpu_ns();
            for _ in 0..rounds {
                for stream in &mut streams {
                    stream.write_all(&bytes).await.expect("a write");
                }
            }
            *result = cpu_ns() - before;
        }
        results
    })
}

fn main() {
    let (sockets, rounds, sending, reading) = begin(200);
    let stop = Arc::new(AtomicBool::new(false));
    println!("{:<12} {:>10} {:>10} {:>10}", "payload", "send()", "executor", "batched");
    let mut columns = Vec::new();
    for way in 0..3 {
        let (writers, readers) = pairs(sockets);
        let (stop_readers, core) = (Arc::clone(&stop), reading);
        let thread = std::thread::spawn(move || drain(readers, core, &stop_readers));
        let results = match way {
            1 => executor_writes(writers, rounds, sending),
            _ => {
                let mut sender = Sender::new().expect("a ring");
                PAYLOADS.map(|(_, length)| {
                    let bytes = vec![b'x'; length];
                    let before = cpu_ns();
                    for _ in 0..rounds {
                        if way == 0 { plain(&writers, &bytes) } else { batched(&mut sender, &writers, &bytes) }
                    }
                    cpu_ns() - before
                })
            }
        };
        columns.push(results);
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("the readers");
        stop.store(false, Ordering::Relaxed);
    }
    for (row, (name, _)) in PAYLOADS.iter().enumerate() {
        let cell = |way: usize| columns[way][row] / (sockets * rounds) as u64;
        println!("{name:<12} {:>10} {:>10} {:>10}", cell(0), cell(1), cell(2));
    }
}
