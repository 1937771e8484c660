//! SipHash-2-4 of two words: a short keyed function for check codes, fixed for ever because cursors live on.

/// A key of 128 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key(pub u64, pub u64);

/// The hash of the 16 bytes of `first` and `second`, little-endian.
pub(super) fn hash(key: Key, first: u64, second: u64) -> u64 {
    let mut state = [
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ];
    // The last word is the length in its highest byte, since nothing is left over.
    for word in [first, second, 16 << 56] {
        state[3] ^= word;
        round(&mut state);
        round(&mut state);
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_hash_of_the_paper() {
        // The vectors of the reference implementation: key and message count up from 0.
        let key = Key(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(hash(key, 0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908), 0x3f2a_cc7f_57c2_9bdb);
    }
}
