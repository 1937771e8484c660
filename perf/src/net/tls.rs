//! The client's side of TLS 1.3 for somebody who reads much: rustls makes the handshake, then records are opened where
//! they were received, so that reading costs the decryption and no copies.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore};

/// Bytes of a record's header, and of the tag behind what it encrypts.
const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;

/// Bytes of plain text in a record that is sent.
const RECORD_BYTES: usize = 16 * 1024;

/// Bytes that a record may have behind its header (RFC 8446 section 5.2).
const MAX_SEALED_BYTES: usize = RECORD_BYTES + 256;

/// Content types of RFC 8446 section 5.1.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// A handshake message that says nothing to us: a ticket for another connection.
const NEW_SESSION_TICKET: u8 = 4;

/// What went wrong under encryption.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("certificate {0}: {1}")]
    Certificate(String, String),
    #[error("tls: {0}")]
    Protocol(String),
}

fn protocol(what: impl Display) -> TlsError {
    TlsError::Protocol(what.to_string())
}

/// How connections of a load are encrypted: TLS 1.3 with AES-128-GCM, to a server that shows the certificate in a file.
///
/// # Errors
/// When there is no certificate in it.
pub fn client(certificate: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let wrong = |error: &dyn Display| TlsError::Certificate(certificate.display().to_string(), error.to_string());
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::from_pem_file(certificate).map_err(|error| wrong(&error))?;
    roots.add(found).map_err(|error| wrong(&error))?;
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(|error| wrong(&error))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.enable_secret_extraction = true;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// A connection in the hands of rustls.
///
/// # Errors
/// When the configuration cannot be used.
pub fn connection(config: &Arc<ClientConfig>) -> Result<ClientConnection, TlsError> {
    let name = ServerName::try_from("localhost").map_err(protocol)?;
    ClientConnection::new(Arc::clone(config), name).map_err(protocol)
}

/// A connection before its keys.
#[derive(Debug)]
pub struct Handshake(ClientConnection);

impl Handshake {
    /// Begins one.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn new(config: &Arc<ClientConfig>) -> Result<Self, TlsError> {
        connection(config).map(Self)
    }

    /// Takes what was received and appends to `send` what is to be said.
    ///
    /// # Errors
    /// When the server is not the one that was expected, or breaks the protocol.
    pub fn take(&mut self, mut received: &[u8], send: &mut Vec<u8>) -> Result<(), TlsError> {
        while !received.is_empty() {
            self.0.read_tls(&mut received).map_err(protocol)?;
            self.0.process_new_packets().map_err(protocol)?;
        }
        while self.0.wants_write() {
            self.0.write_tls(send).map_err(protocol)?;
        }
        Ok(())
    }

    /// Whether there are keys.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.0.is_handshaking()
    }

    /// The connection's keys, once [`Handshake::is_done`].
    ///
    /// # Errors
    /// When rustls does not give them away.
    pub fn finish(self) -> Result<Channel, TlsError> {
        let secrets = self.0.dangerous_extract_secrets().map_err(protocol)?;
        Ok(Channel { opening: Direction::new(secrets.rx)?, sealing: Direction::new(secrets.tx)?, cut: Vec::new() })
    }
}

/// The keys of one direction and the number of its next record.
struct Direction {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Direction {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, TlsError> {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            return Err(protocol("another cipher than was asked for"));
        };
        let key = UnboundKey::new(&AES_128_GCM, key.as_ref()).map_err(protocol)?;
        let iv = iv.as_ref().try_into().map_err(protocol)?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// RFC 8446 section 5.3.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// An encrypted connection.
pub struct Channel {
    opening: Direction,
    sealing: Direction,
    /// The start of a record that was cut off.
    cut: Vec<u8>,
}

impl Channel {
    /// What the last read left over: it belongs in front of what comes next.
    #[must_use]
    pub fn cut(&self) -> &[u8] {
        &self.cut
    }

    /// Opens the whole records of `bytes` ([`Channel::cut`] and what was received) in place; returns how many bytes of plain
    /// text are at its start now.
    ///
    /// # Errors
    /// When a record cannot be opened, or the server ends the connection or changes its keys.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<usize, TlsError> {
        let (mut at, mut plain) = (0, 0);
        while let Some(&[kind, _, _, high, low]) = bytes.get(at..).and_then(<[u8]>::first_chunk::<HEADER_BYTES>) {
            let (start, length) = (at + HEADER_BYTES, usize::from(u16::from_be_bytes([high, low])));
            if length > MAX_SEALED_BYTES {
                return Err(protocol("a record that is too long"));
            }
            let Some(record) = bytes.get_mut(at..start + length) else { break };
            at = start + length;
            match kind {
                CHANGE_CIPHER_SPEC => continue,
                DATA => {}
                other => return Err(protocol(format_args!("a record of type {other}"))),
            }
            let (header, sealed) = record.split_at_mut(HEADER_BYTES);
            let nonce = self.opening.nonce();
            let opened = self.opening.key.open_in_place(nonce, Aad::from(&*header), sealed);
            let opened = opened.map_err(|_| protocol("a record that cannot be opened"))?;
            // The type is behind the text, and zeros may be behind it.
            let Some(end) = opened.iter().rposition(|&byte| byte != 0) else {
                return Err(protocol("a record without a type"));
            };
            match (opened[end], opened[0]) {
                (DATA, _) => {
                    bytes.copy_within(start..start + end, plain);
                    plain += end;
                }
                (HANDSHAKE, NEW_SESSION_TICKET) => {}
                (ALERT, _) => return Err(protocol("the server ended the connection")),
                (other, _) => return Err(protocol(format_args!("a message of type {other} in the middle"))),
            }
        }
        self.cut.clear();
        self.cut.extend_from_slice(&bytes[at..]);
        Ok(plain)
    }

    /// Appends to `sealed` what says `plain`.
    ///
    /// # Errors
    /// When it cannot be sealed.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), TlsError> {
        for text in plain.chunks(RECORD_BYTES) {
            let length = (text.len() + 1 + TAG_BYTES) as u16;
            let [high, low] = length.to_be_bytes();
            let header = [DATA, 3, 3, high, low];
            sealed.extend_from_slice(&header);
            let start = sealed.len();
            sealed.extend_from_slice(text);
            sealed.push(DATA);
            let nonce = self.sealing.nonce();
            let tag = self.sealing.key.seal_in_place_separate_tag(nonce, Aad::from(header), &mut sealed[start..]);
            sealed.extend_from_slice(tag.map_err(protocol)?.as_ref());
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection};

    use super::*;

    const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/tls/testdata");

    /// A server of rustls and a client whose handshake is over.
    fn connected() -> (ServerConnection, Channel) {
        let config = client(Path::new(&format!("{FILES}/cert.pem"))).unwrap();
        let cert = CertificateDer::from_pem_file(format!("{FILES}/cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(format!("{FILES}/key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let server = builder.with_no_client_auth().with_single_cert(vec![cert], key).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        server.set_buffer_limit(None);
        let mut handshake = Handshake::new(&config).unwrap();
        let mut down = Vec::new();
        while !handshake.is_done() || server.is_handshaking() {
            let mut up = Vec::new();
            handshake.take(&std::mem::take(&mut down), &mut up).unwrap();
            feed(&mut server, &up);
            if !handshake.is_done() {
                while server.wants_write() {
                    server.write_tls(&mut down).unwrap();
                }
            }
        }
        // The server's tickets are still to come.
        assert!(server.wants_write());
        (server, handshake.finish().unwrap())
    }

    fn feed(server: &mut ServerConnection, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets().unwrap();
        }
    }

    fn open_in_pieces(channel: &mut Channel, bytes: &[u8], piece: usize) -> Result<Vec<u8>, TlsError> {
        let mut plain = Vec::new();
        for bytes in bytes.chunks(piece) {
            let mut joined = [channel.cut(), bytes].concat();
            let count = channel.open(&mut joined)?;
            plain.extend_from_slice(&joined[..count]);
        }
        Ok(plain)
    }

    #[test]
    fn what_a_server_seals_is_opened_however_it_is_cut() {
        for piece in [1, 7, 1000, 20_000, usize::MAX] {
            let (mut server, mut channel) = connected();
            let said: Vec<u8> = (0..70_000u32).map(|number| (number % 251) as u8).collect();
            server.writer().write_all(&said).unwrap();
            server.writer().write_all(b"end").unwrap();
            let mut sealed = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut sealed).unwrap();
            }
            assert_eq!(open_in_pieces(&mut channel, &sealed, piece).unwrap(), [&said[..], b"end"].concat());
        }
    }

    #[test]
    fn what_is_sealed_is_opened_by_a_server() {
        let (mut server, mut channel) = connected();
        let said = vec![b'x'; 3 * RECORD_BYTES + 5];
        let mut sealed = Vec::new();
        channel.seal(b"first", &mut sealed).unwrap();
        channel.seal(&said, &mut sealed).unwrap();
        let mut heard = Vec::new();
        for bytes in sealed.chunks(10_000) {
            feed(&mut server, bytes);
            // Ends with "nothing more yet".
            let _ = server.reader().read_to_end(&mut heard);
        }
        assert_eq!(heard, [b"first", &said[..]].concat());
    }

    #[test]
    fn what_was_changed_or_ended_is_an_error() {
        let (mut server, mut channel) = connected();
        server.send_close_notify();
        let mut sealed = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut sealed).unwrap();
        }
        let mut changed = sealed.clone();
        changed[9] ^= 1;
        let error = open_in_pieces(&mut channel, &changed, usize::MAX).unwrap_err();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
        let (mut server, mut channel) = connected();
        server.send_close_notify();
        sealed.clear();
        while server.wants_write() {
            server.write_tls(&mut sealed).unwrap();
        }
        let error = open_in_pieces(&mut channel, &sealed, usize::MAX).unwrap_err();
        assert!(error.to_string().contains("ended"), "{error}");
    }
}
