//! The record layer of a connection whose handshake is over.

use std::io::{self, Read, Write};

use rustls::ServerConnection;
use streamcast_shards::{Cipher, Encryption};

/// What a record says at most.
const RECORD_BYTES: usize = 16 * 1024;

/// A connection's keys, for the shard that has its socket.
pub struct Record(Box<ServerConnection>);

impl Record {
    /// Takes over after the handshake.
    #[must_use]
    pub fn new(mut connection: Box<ServerConnection>) -> Self {
        // What is sealed leaves at once into the shard's buffers, which have bounds of their own.
        connection.set_buffer_limit(None);
        Self(connection)
    }

    /// The same for a shard.
    #[must_use]
    pub fn encryption(connection: Box<ServerConnection>) -> Encryption {
        Encryption::Shard(Box::new(Self::new(connection)))
    }

    fn take_sealed(&mut self, sealed: &mut Vec<u8>) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(sealed)?;
        }
        Ok(())
    }
}

impl Cipher for Record {
    fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
        // A record at a time: rustls makes each in memory of its own, which is the same and in the cache that way.
        for piece in plain.chunks(RECORD_BYTES) {
            self.0.writer().write_all(piece)?;
            self.take_sealed(sealed)?;
        }
        Ok(())
    }

    fn open(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>, sealed: &mut Vec<u8>) -> io::Result<bool> {
        let mut closed = false;
        loop {
            if !bytes.is_empty() {
                self.0.read_tls(&mut bytes)?;
            }
            let state = self.0.process_new_packets();
            // An alert about what was wrong is on its way then.
            self.take_sealed(sealed)?;
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let ready = state.plaintext_bytes_to_read();
            if ready > 0 {
                let begin = plain.len();
                plain.resize(begin + ready, 0);
                self.0.reader().read_exact(&mut plain[begin..])?;
            }
            closed |= state.peer_has_closed();
            if bytes.is_empty() || closed {
                return Ok(closed);
            }
        }
    }

    fn finish(&mut self, sealed: &mut Vec<u8>) {
        self.0.send_close_notify();
        // Into memory: it cannot fail.
        let _ = self.take_sealed(sealed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

    use super::*;

    fn connected() -> (ClientConnection, Record) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let cert = CertificateDer::from_pem_slice(include_bytes!("testdata/cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("testdata/key.pem")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.clone()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert], key)
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut up).unwrap();
            }
            let mut up = up.as_slice();
            while !up.is_empty() {
                server.read_tls(&mut up).unwrap();
                server.process_new_packets().unwrap();
            }
            while server.wants_write() {
                server.write_tls(&mut down).unwrap();
            }
            feed(&mut client, &down);
        }
        (client, Record::new(Box::new(server)))
    }

    fn feed(client: &mut ClientConnection, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client.process_new_packets().unwrap();
        }
    }

    #[test]
    fn what_is_sealed_is_opened_however_it_is_cut() {
        let (mut client, mut record) = connected();
        let said: Vec<u8> = (0..200_000u32).map(|number| number as u8).collect();
        let mut sealed = Vec::new();
        record.seal(&said, &mut sealed).unwrap();
        let mut heard = Vec::new();
        for bytes in sealed.chunks(10_000) {
            feed(&mut client, bytes);
            let _ = client.reader().read_to_end(&mut heard);
        }
        assert_eq!(heard, said);
        let mut up = Vec::new();
        client.writer().write_all(&said[..50_000]).unwrap();
        client.write_tls(&mut up).unwrap();
        let (mut plain, mut answer) = (Vec::new(), Vec::new());
        for bytes in up.chunks(7_001) {
            assert!(!record.open(bytes, &mut plain, &mut answer).unwrap());
        }
        assert_eq!(plain, said[..50_000]);
    }

    #[test]
    fn the_end_is_told_and_rubbish_is_an_error() {
        let (mut client, mut record) = connected();
        client.send_close_notify();
        let mut up = Vec::new();
        client.write_tls(&mut up).unwrap();
        let (mut plain, mut sealed) = (Vec::new(), Vec::new());
        assert!(record.open(&up, &mut plain, &mut sealed).unwrap());
        record.finish(&mut sealed);
        feed(&mut client, &sealed);
        assert_eq!(client.reader().read(&mut [0; 8]).unwrap(), 0);
        let (_, mut record) = connected();
        assert!(
            record
                .open(
                    &[23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20],
                    &mut plain,
                    &mut sealed
                )
                .is_err()
        );
    }
}
