use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

use super::*;

const SUITES: [CipherSuite; 6] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// As if the kernel had agreed to everything.
fn hopeful() -> KernelTls {
    let versions = [ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2];
    let known = versions.into_iter().flat_map(|version| CIPHERS.map(|(cipher, _)| (version, cipher))).collect();
    KernelTls { known, failed: AtomicBool::new(false) }
}

struct Pair {
    client: (ClientConnection, TcpStream),
    server: (Box<ServerConnection>, TcpStream),
}

/// A connection over a socket whose handshake is over, and over which something was said both ways.
fn connected(suite: CipherSuite) -> Pair {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    let provider = Arc::new(provider);
    let version =
        if provider.cipher_suites[0].tls13().is_some() { &rustls::version::TLS13 } else { &rustls::version::TLS12 };
    let cert = CertificateDer::from_pem_slice(include_bytes!("testdata/cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("testdata/key.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone()).unwrap();
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[version]).unwrap();
    let mut server = builder.with_no_client_auth().with_single_cert(vec![cert], key).unwrap();
    server.enable_secret_extraction = true;
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let client = builder.with_root_certificates(roots).with_no_client_auth();
    let mut server = Box::new(ServerConnection::new(Arc::new(server)).unwrap());
    let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut theirs = listener.accept().unwrap().0;
    for socket in [&ours, &theirs] {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    let other = std::thread::spawn(move || {
        while server.is_handshaking() {
            server.complete_io(&mut theirs).unwrap();
        }
        let mut asked = [0; 3];
        rustls::Stream::new(&mut *server, &mut theirs).read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"GET");
        rustls::Stream::new(&mut *server, &mut theirs).write_all(b"101").unwrap();
        while server.wants_write() {
            server.complete_io(&mut theirs).unwrap();
        }
        (server, theirs)
    });
    let mut stream = rustls::Stream::new(&mut client, &mut ours);
    stream.write_all(b"GET").unwrap();
    let mut answered = [0; 3];
    stream.read_exact(&mut answered).unwrap();
    Pair { client: (client, ours), server: other.join().unwrap() }
}

/// What is sent to a socket in pieces, here and there.
fn said() -> Vec<u8> {
    (0..100_000u32).map(|number| (number % 251) as u8).collect()
}

/// On a kernel with TLS this sends through the kernel, in every version and with every cipher; on one without it is the way
/// back to the shard that is shown.
#[test]
fn who_makes_records_makes_the_same() {
    let probed = KernelTls::probe();
    let kernel = hopeful();
    for suite in SUITES {
        let Pair { client: (mut client, mut ours), server: (keys, mut socket) } = connected(suite);
        let version = keys.protocol_version().unwrap();
        let encryption = kernel.take_over(&socket, Handshaken { keys, at_edge: true }).unwrap();
        match (&probed, encryption) {
            (Ok(probed), Encryption::Kernel { blocks }) => {
                let found = cipher(suite).unwrap();
                assert!(probed.known.contains(&(version, found)));
                let endless = found == TLS_CIPHER_CHACHA20_POLY1305;
                assert!(if endless { blocks == u64::MAX } else { blocks > AES_BLOCKS / 2 && blocks < AES_BLOCKS });
                let sender = std::thread::spawn(move || {
                    socket.write_all(&said()).unwrap();
                    let mut heard = vec![0; said().len()];
                    socket.read_exact(&mut heard).unwrap();
                    assert_eq!(heard, said());
                });
                let mut stream = rustls::Stream::new(&mut client, &mut ours);
                let mut heard = vec![0; said().len()];
                stream.read_exact(&mut heard).unwrap();
                assert_eq!(heard, said());
                stream.write_all(&said()).unwrap();
                stream.flush().unwrap();
                sender.join().unwrap();
            }
            (Err(KernelTlsError::Missing), Encryption::Shard(mut record)) => {
                let mut sealed = Vec::new();
                record.seal(&said(), &mut sealed).unwrap();
                let sender = std::thread::spawn(move || socket.write_all(&sealed).unwrap());
                let mut heard = vec![0; said().len()];
                rustls::Stream::new(&mut client, &mut ours).read_exact(&mut heard).unwrap();
                assert_eq!(heard, said());
                sender.join().unwrap();
            }
            (probed, _) => {
                panic!("{suite:?}: {}", probed.as_ref().map_or_else(ToString::to_string, ToString::to_string))
            }
        }
    }
}

#[test]
fn keys_stay_with_the_shard_where_the_kernel_would_lose_something() {
    let suite = CipherSuite::TLS13_AES_128_GCM_SHA256;
    let unknown = KernelTls { known: Vec::new(), ..hopeful() };
    let failed = KernelTls { failed: AtomicBool::new(true), ..hopeful() };
    let says_more = |keys: &mut ServerConnection| keys.writer().write_all(b"more").unwrap();
    for (kernel, at_edge, more) in
        [(&hopeful(), false, false), (&hopeful(), true, true), (&unknown, true, false), (&failed, true, false)]
    {
        let Pair { server: (mut keys, socket), .. } = connected(suite);
        if more {
            says_more(&mut keys);
        }
        let encryption = kernel.take_over(&socket, Handshaken { keys, at_edge }).unwrap();
        assert!(matches!(encryption, Encryption::Shard(_)), "{at_edge} {more}");
    }
}

#[test]
fn what_is_known_is_told_in_words() {
    let known = hopeful().to_string();
    assert!(
        known.starts_with("TLS 1.3 AES-128-GCM, TLS 1.3 AES-256-GCM, ") && known.ends_with("TLS 1.2 ChaCha20-Poly1305")
    );
}
