//! What a request is told apart by from another with the same key.

use sha2::{Digest as _, Sha256};

use super::body::{broken, members, read_key};
use super::scan::Scanner;
use crate::journal::{Keyed, Operation};

/// What is read of a body whether or not the rest of it fits the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signature {
    /// The idempotency key, with what the body is compared by.
    pub keyed: Keyed,
    /// Whether the answer to an insert lists every entry.
    pub return_entry_ids: bool,
}

impl Signature {
    /// The signature of a body; `None` if it has no key, or cannot be read.
    pub fn of(operation: Operation, body: &[u8]) -> Option<Self> {
        let (mut key, mut return_entry_ids) = (None, true);
        let read = members(body, &mut Scanner::new(body), |member, scanner| {
            if member == "idempotencyKey" {
                key = read_key(body, scanner)?;
            } else {
                let value = scanner.value().map_err(broken)?;
                if member == "returnEntryIds" {
                    return_entry_ids = &body[value.start..value.end] != b"false";
                }
            }
            Ok(())
        });
        read.ok()?;
        let keyed = Keyed { operation, key: key?, body_hash: Sha256::digest(body).into() };
        Some(Self { keyed, return_entry_ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_body_with_a_key_has_one() {
        let of = |body: &str| Signature::of(Operation::Insert, body.as_bytes());
        for body in ["", "{", "[]", "{}", r#"{"entries":[]}"#, r#"{"idempotencyKey":7}"#, r#"{"idempotencyKey":null}"#]
        {
            assert_eq!(of(body), None, "{body}");
        }
        let body = r#"{"entries":[{"no":"such column"}],"returnEntryIds":false,"idempotencyKey":"k"}"#;
        let found = of(body).expect("a key");
        assert_eq!((found.keyed.key.as_str(), found.return_entry_ids), ("k", false));
        let other = of(&body.replace("such", "other")).expect("a key");
        assert_ne!(found.keyed.body_hash, other.keyed.body_hash);
        assert!(of(r#"{"idempotencyKey":"k"}"#).expect("a key").return_entry_ids);
    }
}
