//! A connection's keys in the form in which the kernel takes them (`linux/tls.h`).

use std::mem::size_of;
use std::sync::atomic::{Ordering, compiler_fence};

use libc::{
    TLS_1_2_VERSION, TLS_1_3_VERSION, TLS_CIPHER_AES_GCM_128, TLS_CIPHER_AES_GCM_256, TLS_CIPHER_CHACHA20_POLY1305,
    tls12_crypto_info_aes_gcm_128 as Aes128, tls12_crypto_info_aes_gcm_256 as Aes256,
    tls12_crypto_info_chacha20_poly1305 as ChaCha,
};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

/// The longest of the structures.
const MAX_BYTES: usize = size_of::<Aes256>();

/// The bytes of nonces that are the same for all records of TLS 1.2 with AES.
const SALT_BYTES: usize = 4;

/// Keys, initial vector and record number of one direction. Overwritten when it goes.
pub(super) struct CryptoInfo {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl CryptoInfo {
    /// The structure for what comes with record `sequence`; `None` if the kernel has no such cipher or version.
    pub fn new(version: ProtocolVersion, sequence: u64, secrets: &ConnectionTrafficSecrets) -> Option<Self> {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (TLS_CIPHER_AES_GCM_128, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (TLS_CIPHER_AES_GCM_256, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (TLS_CIPHER_CHACHA20_POLY1305, key, iv),
            _ => return None,
        };
        Self::of(version, cipher, sequence, key.as_ref(), iv.as_ref())
    }

    /// The same from its parts.
    ///
    /// With TLS 1.2 and AES a record says its nonce, which the kernel counts up from the vector. rustls has used the vector
    /// with the number of the record on top for the records before: the highest bit keeps the nonces apart. A nonce that is
    /// used twice gives the key away.
    pub fn of(version: ProtocolVersion, cipher: u16, sequence: u64, key: &[u8], iv: &[u8]) -> Option<Self> {
        let number = match version {
            ProtocolVersion::TLSv1_2 => TLS_1_2_VERSION,
            ProtocolVersion::TLSv1_3 => TLS_1_3_VERSION,
            _ => return None,
        };
        let mut info = Self { bytes: [0; MAX_BYTES], length: 0 };
        info.push(&number.to_ne_bytes());
        info.push(&cipher.to_ne_bytes());
        if cipher == TLS_CIPHER_CHACHA20_POLY1305 {
            info.push(iv);
            info.push(key);
        } else {
            let (salt, counted) = iv.split_at_checked(SALT_BYTES)?;
            let begin = info.length;
            info.push(counted);
            if number == TLS_1_2_VERSION {
                info.bytes[begin] ^= 0x80;
            }
            info.push(key);
            info.push(salt);
        }
        info.push(&sequence.to_be_bytes());
        (info.length == length_of(cipher)).then_some(info)
    }

    /// What `setsockopt` is given.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self.length += bytes.len();
    }
}

impl Drop for CryptoInfo {
    fn drop(&mut self) {
        for byte in &mut self.bytes {
            // SAFETY: a reference can be written to.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        compiler_fence(Ordering::SeqCst);
    }
}

fn length_of(cipher: u16) -> usize {
    match cipher {
        TLS_CIPHER_AES_GCM_128 => size_of::<Aes128>(),
        TLS_CIPHER_AES_GCM_256 => size_of::<Aes256>(),
        _ => size_of::<ChaCha>(),
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::cipher::{AeadKey, Iv};

    use super::*;

    const IV: [u8; 12] = [1, 2, 3, 4, 0x15, 6, 7, 8, 9, 10, 11, 12];

    fn read<T>(info: &CryptoInfo) -> T {
        assert_eq!(info.as_bytes().len(), size_of::<T>());
        // SAFETY: the structures are made of integers, and this one is as long.
        unsafe { std::ptr::read_unaligned(info.as_bytes().as_ptr().cast()) }
    }

    #[test]
    fn aes_is_laid_out_as_the_kernel_reads_it() {
        let info = CryptoInfo::of(ProtocolVersion::TLSv1_3, TLS_CIPHER_AES_GCM_128, 0x0102, &[7; 16], &IV).unwrap();
        let found: Aes128 = read(&info);
        assert_eq!((found.info.version, found.info.cipher_type), (0x0304, 51));
        assert_eq!((found.iv, found.salt), ([0x15, 6, 7, 8, 9, 10, 11, 12], [1, 2, 3, 4]));
        assert_eq!((found.key, found.rec_seq), ([7; 16], [0, 0, 0, 0, 0, 0, 1, 2]));
        let secrets = ConnectionTrafficSecrets::Aes256Gcm { key: AeadKey::from([7; 32]), iv: Iv::new(IV) };
        let found: Aes256 = read(&CryptoInfo::new(ProtocolVersion::TLSv1_3, u64::MAX, &secrets).unwrap());
        assert_eq!((found.info.version, found.info.cipher_type), (0x0304, 52));
        assert_eq!((found.iv, found.salt), ([0x15, 6, 7, 8, 9, 10, 11, 12], [1, 2, 3, 4]));
        assert_eq!((found.key, found.rec_seq), ([7; 32], [0xff; 8]));
    }

    #[test]
    fn nonces_of_tls_12_are_none_that_were_used() {
        let info = CryptoInfo::of(ProtocolVersion::TLSv1_2, TLS_CIPHER_AES_GCM_128, 3, &[7; 16], &IV).unwrap();
        let found: Aes128 = read(&info);
        assert_eq!((found.info.version, found.salt), (0x0303, [1, 2, 3, 4]));
        let begin = u64::from_be_bytes(found.iv);
        let vector = u64::from_be_bytes(IV[4..].try_into().unwrap());
        let used: Vec<u64> = (0..1_000).map(|sequence| vector ^ sequence).collect();
        assert!((0..1_000).all(|count| !used.contains(&begin.wrapping_add(count))));
    }

    #[test]
    fn chacha_is_laid_out_as_the_kernel_reads_it() {
        let secrets = ConnectionTrafficSecrets::Chacha20Poly1305 { key: AeadKey::from([7; 32]), iv: Iv::new(IV) };
        for version in [ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3] {
            let found: ChaCha = read(&CryptoInfo::new(version, 1, &secrets).unwrap());
            assert_eq!(found.info.cipher_type, 54);
            assert_eq!((found.iv, found.key, found.rec_seq), (IV, [7; 32], [0, 0, 0, 0, 0, 0, 0, 1]));
        }
    }

    #[test]
    fn what_the_kernel_does_not_know_is_not_laid_out() {
        for (version, cipher, key, iv) in [
            (ProtocolVersion::TLSv1_1, TLS_CIPHER_AES_GCM_128, 16, 12),
            (ProtocolVersion::TLSv1_3, TLS_CIPHER_AES_GCM_128, 32, 12),
            (ProtocolVersion::TLSv1_3, TLS_CIPHER_AES_GCM_256, 16, 12),
            (ProtocolVersion::TLSv1_3, TLS_CIPHER_AES_GCM_256, 32, 2),
            (ProtocolVersion::TLSv1_3, TLS_CIPHER_CHACHA20_POLY1305, 32, 8),
            (ProtocolVersion::TLSv1_3, TLS_CIPHER_AES_GCM_256, 320, 12),
        ] {
            assert!(CryptoInfo::of(version, cipher, 0, &vec![7; key], &IV[..iv]).is_none(), "{cipher} {key} {iv}");
        }
    }
}
