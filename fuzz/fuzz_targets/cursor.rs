//! Cursors and ids of entries: a text that is read is the one that is written, for one kind and one stream only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use streamcast_uring_fuzz::batches::token::Tokens;

fuzz_target!(|data: &[u8]| {
    let ids = ["5c4f6b1e-7d0a-4f8e-9a51-0d2f3c6b7a90", "881ea035-f858-49f3-a2f9-ebcf5445a445"];
    let [ours, theirs] = ids.map(Tokens::new);
    if let Ok(text) = std::str::from_utf8(data) {
        if let Some(offset) = ours.read_cursor(text) {
            assert_eq!(ours.cursor(offset), text);
        }
        if let Some(offset) = ours.read_entry(text) {
            assert_eq!(ours.entry(offset), text);
        }
    }
    // Offsets begin at 1.
    let Some(offset) = data.first_chunk().map(|bytes| (i64::from_le_bytes(*bytes) & i64::MAX).max(1)) else { return };
    let (cursor, entry) = (ours.cursor(offset), ours.entry(offset));
    assert_eq!((ours.read_cursor(&cursor), ours.read_entry(&entry)), (Some(offset), Some(offset)));
    assert_eq!((ours.read_entry(&cursor), ours.read_cursor(&entry)), (None, None));
    assert_eq!((theirs.read_cursor(&cursor), theirs.read_entry(&entry)), (None, None));
    // One that was changed anywhere is none, or is the same.
    if let (Some(at), Some(with)) = (data.get(8), data.get(9)) {
        let mut changed = cursor.clone().into_bytes();
        let at = usize::from(*at) % changed.len();
        changed[at] = with & 0x7F;
        if let Ok(changed) = String::from_utf8(changed) {
            assert_eq!(ours.read_cursor(&changed).is_some(), changed == cursor, "{changed}");
        }
    }
});
