//! What it costs to send the same bytes to many encrypted connections: records made by rustls as a shard does it, and by the
//! kernel; beside clear text. Prints CPU time (user and system) of the sending thread a send.
//!
//! `cargo bench -p streamcast-shards --bench records [-- SOCKETS ROUNDS]`. AES-128-GCM; the readers throw away what they get, on
//! another core where there is one. Where the kernel has no TLS its column says so: `tests/ktls/vm` has one that has.
//! The finding is in docs/security.md.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use sockets::{begin, cpu_ns, drain, pairs};
use streamcast_shards::{BATCH_SENDS, Sender, Sent};

#[path = "common/sockets.rs"]
mod sockets;

const PAYLOADS: [(&str, usize); 5] =
    [("1 frame", 120), ("8 frames", 960), ("35 frames", 4_200), ("100 frames", 12_000), ("64 KiB", 65_536)];

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/tls/testdata");

/// The server's end of a connection that has made its handshake in memory.
fn handshaken(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> ServerConnection {
    let mut server = ServerConnection::new(Arc::clone(server)).expect("a server");
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a client");
    while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        client.write_tls(&mut up).expect("memory");
        if !up.is_empty() {
            server.read_tls(&mut up.as_slice()).expect("memory");
            server.process_new_packets().expect("a handshake");
        }
        while server.wants_write() {
            server.write_tls(&mut down).expect("memory");
        }
        let mut down = down.as_slice();
        while !down.is_empty() {
            client.read_tls(&mut down).expect("memory");
            client.process_new_packets().expect("a handshake");
        }
    }
    server.set_buffer_limit(None);
    server
}

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    let provider = Arc::new(provider);
    let cert = CertificateDer::from_pem_file(format!("{FILES}/cert.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(format!("{FILES}/key.pem")).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone()).expect("a root");
    let versions = &[&rustls::version::TLS13];
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
    let server = server.expect("a version").with_no_client_auth().with_single_cert(vec![cert], key).expect("a pair");
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
    let client = client.expect("a version").with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

/// Gives the kernel some keys for what is sent; the readers do not open it.
fn give_keys(socket: &TcpStream) -> io::Result<()> {
    // SAFETY: zeroes are valid: the structure is made of integers.
    let mut keys: libc::tls12_crypto_info_aes_gcm_128 = unsafe { std::mem::zeroed() };
    keys.info.version = libc::TLS_1_3_VERSION;
    keys.info.cipher_type = libc::TLS_CIPHER_AES_GCM_128;
    let length = size_of_val(&keys) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel reads as many bytes as it is told.
    let done = unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_ULP, c"tls".as_ptr().cast(), 3) == 0
            && libc::setsockopt(fd, libc::SOL_TLS, libc::TLS_TX, (&raw const keys).cast(), length) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends to all, and what a socket has not taken at once again.
fn send(sender: &mut Sender, batch: &[(&TcpStream, &[u8])]) {
    let mut taken = [0; BATCH_SENDS];
    loop {
        let mut more = false;
        for (index, (writer, bytes)) in
            batch.iter().enumerate().filter(|(index, (_, bytes))| taken[*index] < bytes.len())
        {
            more = true;
            // SAFETY: the bytes outlive the submission below.
            unsafe { sender.push(writer.as_raw_fd(), &bytes[taken[index]..], index as u64) };
        }
        if !more {
            return;
        }
        let mut full = false;
        let done = sender.submit(|index, sent| match sent {
            Sent::Bytes(bytes) => taken[index as usize] += bytes,
            Sent::Full => full = true,
            Sent::Failed(error) => panic!("{}", io::Error::from_raw_os_error(error)),
        });
        done.expect("a submission");
        if full {
            std::thread::yield_now();
        }
    }
}

fn as_they_are(sender: &mut Sender, writers: &[TcpStream], bytes: &[u8]) {
    for writers in writers.chunks(BATCH_SENDS) {
        let batch: Vec<_> = writers.iter().map(|writer| (writer, bytes)).collect();
        send(sender, &batch);
    }
}

fn sealed(
    sender: &mut Sender,
    writers: &[TcpStream],
    connections: &mut [ServerConnection],
    bytes: &[u8],
    batch_bytes: &mut Vec<u8>,
) {
    // As many as stay in the core's cache, as shards do it.
    let at_once = (192 * 1024 / bytes.len()).clamp(1, BATCH_SENDS);
    for (writers, connections) in writers.chunks(at_once).zip(connections.chunks_mut(at_once)) {
        batch_bytes.clear();
        let mut ends = vec![0];
        for connection in connections {
            connection.writer().write_all(bytes).expect("memory");
            while connection.wants_write() {
                connection.write_tls(batch_bytes).expect("memory");
            }
            ends.push(batch_bytes.len());
        }
        let parts = ends.windows(2).map(|ends| &batch_bytes[ends[0]..ends[1]]);
        let batch: Vec<_> = writers.iter().zip(parts).collect();
        send(sender, &batch);
    }
}

fn main() {
    let (sockets, rounds, _, reading) = begin(100);
    println!("{:<12} {:>10} {:>10} {:>10}", "payload", "clear", "shard", "kernel");
    let (server, client) = configs();
    let mut columns: [Option<Vec<u64>>; 3] = [None, None, None];
    for (way, column) in columns.iter_mut().enumerate() {
        let (writers, readers) = pairs(sockets);
        if way == 2
            && let Some(error) = writers.iter().find_map(|writer| give_keys(writer).err())
        {
            println!("no keys for the kernel: {error}");
            continue;
        }
        let mut connections: Vec<_> =
            writers.iter().take(if way == 1 { sockets } else { 0 }).map(|_| handshaken(&server, &client)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || drain(readers, reading, &told));
        let mut sender = Sender::new().expect("a ring");
        let mut batch_bytes = Vec::new();
        let results = PAYLOADS.map(|(_, length)| {
            let bytes = vec![b'x'; length];
            let mut before = cpu_ns();
            for round in 0..rounds + rounds / 10 {
                if round == rounds / 10 {
                    before = cpu_ns();
                }
                match way {
                    1 => sealed(&mut sender, &writers, &mut connections, &bytes, &mut batch_bytes),
                    _ => as_they_are(&mut sender, &writers, &bytes),
                }
            }
            (cpu_ns() - before) / (rounds * sockets).max(1) as u64
        });
        *column = Some(results.to_vec());
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("the readers");
    }
    for (index, (name, _)) in PAYLOADS.iter().enumerate() {
        let cell = |column: &Option<Vec<u64>>| {
            column.as_ref().map_or_else(|| "-".to_owned(), |found| found[index].to_string())
        };
        println!("{name:<12} {:>10} {:>10} {:>10}", cell(&columns[0]), cell(&columns[1]), cell(&columns[2]));
    }
}
