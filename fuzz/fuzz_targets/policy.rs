//! Policy files: any text is refused or is a policy, whose grants are patterns that read back as they are written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use streamcast_uring_fuzz::auth::file::PolicyFile;
use streamcast_uring_fuzz::auth::grants::Pattern;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(policy) = PolicyFile::parse(text) else { return };
    for principal in &policy.principals {
        assert!(principal.grants.grants().is_ok(), "a policy with grants that are none was taken");
    }
    for word in text.split('"') {
        let pattern = Pattern::parse(word);
        assert_eq!(Pattern::parse(&pattern.text()).text(), pattern.text());
    }
});
