//! Batch ids, entry ids and cursors (docs/batches.md, "Positions").
//!
//! The log has given every item one offset, for ever, and all three are functions of it and of the stream's UUID: no
//! table has to be kept, and nothing that moves rows (sealing, compaction, eviction, purges) can change them.
//!
//! A **batch id** is a UUIDv7 of the batch's stamp and its first offset. Stamps never fall and offsets only grow within
//! a stream, so ids grow in commit order: the offset is the sequence that a burst or a clock stepping back counts on.
//! A **cursor** or **entry id** is 16 bytes: a check code and the offset, enciphered with it.

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest as _, Sha256};

use super::sip::{self, Key};

const CURSOR: &str = "cur_";
const ENTRY: &str = "ent_";

/// Characters of 16 bytes in base 64.
const CODE_CHARS: usize = 22;

/// Bits of a batch id that tell streams apart whose batches are otherwise alike.
const STREAM_BITS: u32 = 11;

/// Makes and reads the ids of one stream.
#[derive(Debug, Clone)]
pub struct Tokens {
    check: Key,
    cipher: Key,
    stream: u64,
}

impl Tokens {
    /// The ids of the stream with this UUID.
    #[must_use]
    pub fn new(stream_id: &str) -> Self {
        let digest = Sha256::new().chain_update(b"streamcast cursor 1\n").chain_update(stream_id).finalize();
        let word = |index: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&digest[index * 8..][..8]);
            u64::from_le_bytes(bytes)
        };
        let check = Key(word(0), word(1));
        Self { check, cipher: Key(word(2), word(3)), stream: sip::hash(check, 0, 0) & ((1 << STREAM_BITS) - 1) }
    }

    /// Appends the cursor of the boundary before the item with `offset` (or where it will be).
    pub fn push_cursor(&self, out: &mut Vec<u8>, offset: i64) {
        out.extend_from_slice(CURSOR.as_bytes());
        self.push_code(out, 1, offset);
    }

    /// Appends the id of the entry with `offset`.
    pub fn push_entry(&self, out: &mut Vec<u8>, offset: i64) {
        out.extend_from_slice(ENTRY.as_bytes());
        self.push_code(out, 2, offset);
    }

    /// The cursor of the boundary before the item with `offset`.
    #[must_use]
    pub fn cursor(&self, offset: i64) -> String {
        text(|out| self.push_cursor(out, offset))
    }

    /// The id of the entry with `offset`.
    #[must_use]
    pub fn entry(&self, offset: i64) -> String {
        text(|out| self.push_entry(out, offset))
    }

    /// The offset of the item after a cursor; `None` if it is not a cursor of this stream.
    #[must_use]
    pub fn read_cursor(&self, cursor: &str) -> Option<i64> {
        self.read_code(1, cursor.strip_prefix(CURSOR)?)
    }

    /// The offset of an entry; `None` if it is not the id of an entry of this stream.
    #[must_use]
    pub fn read_entry(&self, id: &str) -> Option<i64> {
        self.read_code(2, id.strip_prefix(ENTRY)?)
    }

    /// The id of the batch whose first item has `offset`, with the stamp of its commit.
    #[must_use]
    pub fn batch(&self, ts_us: i64, offset: i64) -> String {
        // 48 bits of milliseconds; then 74 bits that are free in a UUIDv7: 63 of the offset, 11 of the stream.
        let millis = (ts_us.max(0) as u64 / 1000) & ((1 << 48) - 1);
        let offset = offset.max(0) as u64;
        let high = millis << 16 | 7 << 12 | offset >> 51;
        let low = 0b10 << 62 | (offset & ((1 << 51) - 1)) << STREAM_BITS | self.stream;
        uuid::Uuid::from_u64_pair(high, low).hyphenated().to_string()
    }

    fn push_code(&self, out: &mut Vec<u8>, kind: u64, offset: i64) {
        let check = sip::hash(self.check, kind, offset as u64);
        let hidden = offset as u64 ^ sip::hash(self.cipher, kind, check);
        let mut code = [0; 16];
        code[..8].copy_from_slice(&check.to_le_bytes());
        code[8..].copy_from_slice(&hidden.to_le_bytes());
        let start = out.len();
        out.resize(start + CODE_CHARS, 0);
        BASE64URL_NOPAD.encode_mut(&code, &mut out[start..]);
    }

    fn read_code(&self, kind: u64, code: &str) -> Option<i64> {
        if code.len() != CODE_CHARS {
            return None;
        }
        let bytes = BASE64URL_NOPAD.decode(code.as_bytes()).ok()?;
        let check = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let hidden = u64::from_le_bytes(bytes.get(8..)?.try_into().ok()?);
        let offset = hidden ^ sip::hash(self.cipher, kind, check);
        let known = sip::hash(self.check, kind, offset) == check;
        i64::try_from(offset).ok().filter(|offset| known && *offset > 0)
    }
}

/// The text of ASCII bytes.
fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::with_capacity(32);
    push(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = "79c6ab49-7ea5-482d-8bb0-9eef7a4b4b14";

    #[test]
    fn they_are_what_they_were_in_the_first_version() {
        // Cursors are kept by their readers for ever: these texts must never change.
        let tokens = Tokens::new(STREAM);
        assert_eq!(tokens.cursor(1), "cur_g_JSyGtXhlp8bQc9LKUlQg");
        assert_eq!(tokens.entry(1), "ent_dt3xXoNCBdmCM-dGvXDokw");
        assert_eq!(tokens.batch(1_795_979_200_460_601, 1), "01a228b3-c7cc-7000-8000-000000000c6e");
    }

    #[test]
    fn what_is_not_ours_is_not_read() {
        let tokens = Tokens::new(STREAM);
        let other = Tokens::new("79c6ab49-7ea5-482d-8bb0-9eef7a4b4b15");
        let cursor = tokens.cursor(77);
        assert_eq!(tokens.read_cursor(&cursor), Some(77));
        assert_eq!(other.read_cursor(&cursor), None);
        assert_eq!(tokens.read_entry(&cursor), None);
        assert_eq!(tokens.read_cursor(&tokens.entry(77)), None);
        assert_eq!(tokens.read_cursor(&tokens.entry(77).replace("ent_", "cur_")), None);
        for bad in ["", "cur_", "cur_AAAAAAAAAAAAAAAAAAAAAA", "cur_é", &cursor[..25], &format!("{cursor}A"), "77"] {
            assert_eq!(tokens.read_cursor(bad), None, "{bad}");
        }
        for place in 4..cursor.len() {
            let mut changed = cursor.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            assert_eq!(tokens.read_cursor(&String::from_utf8(changed).expect("ascii")), None, "at {place}");
        }
    }

    proptest! {
        #[test]
        fn every_position_is_read_back(offset in 1..i64::MAX) {
            let tokens = Tokens::new(STREAM);
            prop_assert_eq!(tokens.cursor(offset).len(), 26);
            prop_assert_eq!(tokens.read_cursor(&tokens.cursor(offset)), Some(offset));
            prop_assert_eq!(tokens.read_entry(&tokens.entry(offset)), Some(offset));
        }

        #[test]
        fn batch_ids_grow_in_commit_order_whatever_the_clock_does(
            start in 0..i64::MAX / 2,
            history in prop::collection::vec((1_i64..100_000, -5_000_000_i64..5_000_000), 1..40),
        ) {
            let tokens = Tokens::new(STREAM);
            let (mut clock_us, mut stamp_us, mut offset) = (1_795_979_200_460_601_i64, i64::MIN, start + 1);
            let mut before = String::new();
            for (rows, step_us) in history {
                clock_us += step_us;
                // What the writer does: no stamp falls within a stream.
                stamp_us = stamp_us.max(clock_us);
                let id = tokens.batch(stamp_us, offset);
                prop_assert!(id > before, "{} after {}", id, before);
                let parsed = uuid::Uuid::parse_str(&id).expect("a uuid");
                prop_assert_eq!(parsed.get_version_num(), 7);
                prop_assert_eq!(parsed.get_variant(), uuid::Variant::RFC4122);
                prop_assert_eq!((parsed.as_u128() >> 80) as i64, stamp_us / 1000);
                before = id;
                offset += rows;
            }
        }
    }
}
