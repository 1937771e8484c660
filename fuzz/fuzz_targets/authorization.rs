//! The first line is a target, each that follows a field, `name: value`. Whatever is shown is bounded, a target without
//! its ticket shows none, and what a token says of itself is read or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use streamcast_uring_fuzz::auth::credential::{Credential, Shown, shown, without_ticket};
use streamcast_uring_fuzz::auth::head::RequestHead;
use streamcast_uring_fuzz::auth::unverified;

fuzz_target!(|data: &[u8]| {
    let mut lines = data.split(|byte| *byte == b'\n');
    let target = lines.next().unwrap_or_default();
    let fields = lines.filter_map(|line| {
        let end = line.iter().position(|byte| *byte == b':')?;
        Some((std::str::from_utf8(&line[..end]).ok()?, &line[end + 1..]))
    });
    let head = RequestHead::new("GET", target, fields, None);
    match shown(&head) {
        Shown::Credential(Credential::Password { user, password }) => {
            assert!(password.len() <= 1_024 && !user.contains(char::is_control) && !user.contains(':'));
        }
        Shown::Credential(Credential::Token(token)) => {
            assert!(token.len() <= 8 << 10 && token.is_ascii());
            let _ = unverified::read(&token);
        }
        Shown::Credential(Credential::Key(_) | Credential::Ticket(_)) | Shown::Nothing | Shown::Malformed => {}
    }
    let plain = without_ticket(target);
    let bare = RequestHead::new("GET", &plain, std::iter::empty(), None);
    assert!(shown(&bare) == Shown::Nothing, "a ticket is left in the target");
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = unverified::read(text);
    }
});
