//! Records made by the kernel (kTLS): after the handshake it is given the keys, and a shard sends and reads plain bytes.

use std::io;
use std::mem::size_of_val;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{TLS_CIPHER_AES_GCM_128, TLS_CIPHER_AES_GCM_256, TLS_CIPHER_CHACHA20_POLY1305, TLS_RX, TLS_TX};
use rustls::{CipherSuite, ProtocolVersion, ServerConnection};
use streamcast_shards::Encryption;

use super::layout::CryptoInfo;
use super::record::Record;

/// Blocks of 16 bytes that one key may encrypt with AES-GCM, where records count one more: the 2^24.5 full records of
/// RFC 8446 section 5.5, rounded down. The kernel has no way to change keys before Linux 6.14, so the connection ends there.
const AES_BLOCKS: u64 = 1 << 34;
/// Blocks of a full record.
const RECORD_BLOCKS: u64 = 16 * 1024 / 16 + 1;

const CIPHERS: [(u16, usize); 3] =
    [(TLS_CIPHER_AES_GCM_128, 16), (TLS_CIPHER_AES_GCM_256, 32), (TLS_CIPHER_CHACHA20_POLY1305, 32)];

/// Why the kernel makes no records here.
#[derive(Debug, thiserror::Error)]
pub enum KernelTlsError {
    /// The module is not there, or cannot be loaded by this process.
    #[error("the kernel has no TLS here; load it with `modprobe tls`, if it was built with CONFIG_TLS")]
    Missing,
    /// It is there, and has none of the ciphers.
    #[error("the kernel's TLS has none of our ciphers; load them with `modprobe gcm` and `modprobe chacha20poly1305`")]
    NoCipher,
    /// The kernel cannot be asked.
    #[error("the kernel cannot be asked for TLS over 127.0.0.1: {0}")]
    Other(#[from] io::Error),
}

/// A connection whose handshake is over and that has become a WebSocket.
pub struct Handshaken {
    /// Its keys.
    pub keys: Box<ServerConnection>,
    /// Whether nothing was read of a record that has not come whole.
    pub at_edge: bool,
}

/// The kernel as the one that makes records.
pub struct KernelTls {
    known: Vec<(ProtocolVersion, u16)>,
    /// It refused what it had agreed to before.
    failed: AtomicBool,
}

impl KernelTls {
    /// Asks the kernel for every version and cipher, over connections to this process itself.
    ///
    /// # Errors
    /// When it has none.
    pub fn probe() -> Result<Self, KernelTlsError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut known = Vec::new();
        for version in [ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2] {
            for (cipher, key_bytes) in CIPHERS {
                let socket = TcpStream::connect(listener.local_addr()?)?;
                let _peer = listener.accept()?;
                if let Err(error) = begin(&socket) {
                    return Err(missing(error));
                }
                let Some(info) = CryptoInfo::of(version, cipher, 0, &[0; 32][..key_bytes], &[0; 12]) else { continue };
                if give(&socket, TLS_TX, &info).and_then(|()| give(&socket, TLS_RX, &info)).is_ok() {
                    known.push((version, cipher));
                }
            }
        }
        if known.is_empty() {
            Err(KernelTlsError::NoCipher)
        } else {
            Ok(Self { known, failed: AtomicBool::new(false) })
        }
    }

    /// Gives a connection's keys to the kernel; where that cannot be done the shard keeps them.
    ///
    /// # Errors
    /// When the kernel refuses what it has agreed to before, which costs the connection. Others stay with their shards then.
    pub fn take_over(&self, socket: &TcpStream, handshaken: Handshaken) -> io::Result<Encryption> {
        let Handshaken { keys, at_edge } = handshaken;
        let suite = keys.protocol_version().zip(keys.negotiated_cipher_suite().and_then(|suite| cipher(suite.suite())));
        let known = suite.filter(|suite| self.known.contains(suite));
        let Some((version, cipher)) = known.filter(|_| at_edge && !keys.wants_write() && !self.failed.load(Relaxed))
        else {
            return Ok(Record::encryption(keys));
        };
        if begin(socket).is_err() {
            return Ok(Record::encryption(keys));
        }
        // The keys are gone from here on: there is no way back.
        let given = keys.dangerous_extract_secrets().map_err(io::Error::other).and_then(|secrets| {
            let (sent, tx) = secrets.tx;
            let tx = CryptoInfo::new(version, sent, &tx).ok_or(io::ErrorKind::Unsupported)?;
            let rx = CryptoInfo::new(version, secrets.rx.0, &secrets.rx.1).ok_or(io::ErrorKind::Unsupported)?;
            give(socket, TLS_TX, &tx)?;
            give(socket, TLS_RX, &rx)?;
            Ok(sent)
        });
        match given {
            Ok(_) if cipher == TLS_CIPHER_CHACHA20_POLY1305 => Ok(Encryption::Kernel { blocks: u64::MAX }),
            Ok(sent) => {
                Ok(Encryption::Kernel { blocks: AES_BLOCKS.saturating_sub(sent.saturating_mul(RECORD_BLOCKS)) })
            }
            Err(error) => {
                self.failed.store(true, Relaxed);
                Err(error)
            }
        }
    }
}

impl std::fmt::Display for KernelTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (version, cipher)) in self.known.iter().enumerate() {
            let version = if *version == ProtocolVersion::TLSv1_2 { "TLS 1.2" } else { "TLS 1.3" };
            let cipher = match *cipher {
                TLS_CIPHER_AES_GCM_128 => "AES-128-GCM",
                TLS_CIPHER_AES_GCM_256 => "AES-256-GCM",
                _ => "ChaCha20-Poly1305",
            };
            write!(f, "{}{version} {cipher}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// The kernel's number of what a suite encrypts with.
fn cipher(suite: CipherSuite) -> Option<u16> {
    use CipherSuite as Suite;
    match suite {
        Suite::TLS13_AES_128_GCM_SHA256
        | Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Some(TLS_CIPHER_AES_GCM_128),
        Suite::TLS13_AES_256_GCM_SHA384
        | Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(TLS_CIPHER_AES_GCM_256),
        Suite::TLS13_CHACHA20_POLY1305_SHA256
        | Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(TLS_CIPHER_CHACHA20_POLY1305),
        _ => None,
    }
}

fn missing(error: io::Error) -> KernelTlsError {
    match error.raw_os_error() {
        // A sandbox may say that it does not know the option.
        Some(libc::ENOENT | libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EPERM) => KernelTlsError::Missing,
        _ => KernelTlsError::Other(error),
    }
}

/// Makes a connected socket one that can be given keys; without any it is what it was.
fn begin(socket: &TcpStream) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

fn give(socket: &TcpStream, direction: libc::c_int, info: &CryptoInfo) -> io::Result<()> {
    set(socket, libc::SOL_TLS, direction, info.as_bytes())
}

fn set(socket: &TcpStream, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
