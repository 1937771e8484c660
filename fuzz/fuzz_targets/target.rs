//! Request targets: any bytes parse or are refused, and what comes out keeps the limits of wire.md section 1.3.
#![no_main]

use libfuzzer_sys::fuzz_target;
use streamcast_uring_fuzz::wire::target::{MAX_PUBLISHER_BYTES, OffsetParam, parse};

fuzz_target!(|raw: &[u8]| match parse(raw) {
    Ok(target) => {
        assert!(!target.name.starts_with('/'));
        assert!(!target.publish || (target.offset.is_none() && target.filter.is_none()));
        if let Some(id) = &target.publisher {
            assert!(target.publish && (1..=MAX_PUBLISHER_BYTES).contains(&id.len()));
        }
        match &target.offset {
            Some(OffsetParam::At(offset)) => assert!(*offset >= 0),
            Some(OffsetParam::BeyondI64(digits)) => {
                assert!(!digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()));
                assert!(digits.parse::<i64>().is_err());
            }
            None => {}
        }
    }
    // That word would change the client's exception (wire.md section 9.3).
    Err(bad) => assert!(!bad.detail.contains("publisher")),
});
