//! What a caller shows: a name and a password, a key, a token, or a ticket.

use data_encoding::BASE64;
use sha2::{Digest, Sha256};

use super::head::RequestHead;
use super::keys;

/// The longest `Authorization` field that is looked at, in bytes.
const MAX_FIELD_BYTES: usize = 16 * 1024;
/// The longest password, in bytes: hashing takes time for each of them.
const MAX_PASSWORD_BYTES: usize = 1024;
/// The longest token, in bytes.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// What a caller shows. It holds secrets and has no text form.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A name and a password (RFC 7617).
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A key of ours; from `Bearer`, or as a password for clients that only know `Basic`.
    Key(String),
    /// A token of somebody else (RFC 7519).
    Token(String),
    /// A ticket of ours, from the query.
    Ticket(String),
}

/// What is in a request.
#[derive(PartialEq, Eq)]
pub enum Shown {
    /// Nothing.
    Nothing,
    /// Something that is no credential at all.
    Malformed,
    /// This.
    Credential(Credential),
}

/// Finds out what a request shows. The field goes before a ticket: browsers send both.
pub fn shown(head: &RequestHead<'_>) -> Shown {
    if head.ambiguous {
        return Shown::Malformed;
    }
    match head.authorization {
        Some(field) => parse(field).map_or(Shown::Malformed, Shown::Credential),
        None => match ticket(head.target) {
            Some(ticket) => Shown::Credential(Credential::Ticket(ticket)),
            None => Shown::Nothing,
        },
    }
}

fn parse(field: &[u8]) -> Option<Credential> {
    if field.len() > MAX_FIELD_BYTES {
        return None;
    }
    let field = std::str::from_utf8(field).ok()?;
    let (scheme, rest) = field.split_once(' ')?;
    let value = rest.trim_start_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        return match value {
            "" => None,
            _ if value.len() > MAX_TOKEN_BYTES || !value.bytes().all(plain) => None,
            _ if keys::is_key(value) => Some(Credential::Key(value.to_owned())),
            _ => Some(Credential::Token(value.to_owned())),
        };
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(value.as_bytes()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    if password.len() > MAX_PASSWORD_BYTES || user.chars().chain(password.chars()).any(char::is_control) {
        return None;
    }
    if keys::is_key(password) {
        return Some(Credential::Key(password.to_owned()));
    }
    Some(Credential::Password { user: user.to_owned(), password: password.to_owned() })
}

/// The key of the query that carries a ticket.
const TICKET: &[u8] = b"ticket";

/// The ticket in a target, if exactly one is there.
fn ticket(target: &[u8]) -> Option<String> {
    let query = target.splitn(2, |byte| *byte == b'?').nth(1)?;
    let mut found = query.split(|byte| *byte == b'&').filter_map(|segment| value_of_ticket(segment));
    let ticket = found.next()?;
    let sound = ticket.len() <= 128 && ticket.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    (sound && found.next().is_none()).then(|| String::from_utf8_lossy(ticket).into_owned())
}

fn value_of_ticket(segment: &[u8]) -> Option<&[u8]> {
    segment.strip_prefix(TICKET)?.strip_prefix(b"=")
}

/// A target without its tickets: what the rest of the program gets to see.
#[must_use]
pub fn without_ticket(target: &[u8]) -> Vec<u8> {
    let mut parts = target.splitn(2, |byte| *byte == b'?');
    let path = parts.next().unwrap_or_default();
    let Some(query) = parts.next() else { return target.to_vec() };
    let kept: Vec<&[u8]> =
        query.split(|byte| *byte == b'&').filter(|segment| value_of_ticket(segment).is_none()).collect();
    if kept.is_empty() { path.to_vec() } else { [path, &kept.join(&b'&')].join(&b'?') }
}

/// Names a credential where the credential itself should not be kept; useless without the process's own `salt`.
pub type Fingerprint = [u8; 32];

impl Credential {
    /// Its fingerprint.
    #[must_use]
    pub fn fingerprint(&self, salt: &[u8; 32]) -> Fingerprint {
        let (kind, first, second) = match self {
            Self::Password { user, password } => (0u8, user.as_str(), password.as_str()),
            Self::Key(key) => (1, key.as_str(), ""),
            Self::Token(token) => (2, token.as_str(), ""),
            Self::Ticket(ticket) => (3, ticket.as_str(), ""),
        };
        let mut hash = Sha256::new();
        hash.update(salt);
        hash.update([kind]);
        hash.update((first.len() as u64).to_le_bytes());
        hash.update(first);
        hash.update(second);
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(field: &str, target: &str) -> Shown {
        let fields = [("authorization", field.as_bytes())];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        shown(&RequestHead::new("GET", target.as_bytes(), fields, None))
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", BASE64.encode(text.as_bytes()))
    }

    #[test]
    fn passwords_tokens_keys_and_tickets_are_told_apart() {
        let password = |user: &str, password: &str| {
            Shown::Credential(Credential::Password { user: user.to_owned(), password: password.to_owned() })
        };
        let key = format!("{}abcd_{}", keys::PREFIX, "x".repeat(43));
        assert!(of(&basic("u:p:q"), "/") == password("u", "p:q"));
        assert!(of(&basic("é:ü"), "/") == password("é", "ü"));
        assert!(of("bAsIc  dTpw", "/") == password("u", "p"));
        assert!(of(&basic(&format!("any:{key}")), "/") == Shown::Credential(Credential::Key(key.clone())));
        assert!(of(&format!("Bearer {key}"), "/") == Shown::Credential(Credential::Key(key.clone())));
        assert!(of("bearer a.b.c", "/") == Shown::Credential(Credential::Token("a.b.c".to_owned())));
        assert!(of("", "/r?publish&ticket=abc") == Shown::Credential(Credential::Ticket("abc".to_owned())));
        assert!(of(&basic("u:p"), "/r?ticket=abc") == password("u", "p"));
        assert!(of("", "/r") == Shown::Nothing && of("", "/r?tickets=1") == Shown::Nothing);
    }

    #[test]
    fn what_is_no_credential_is_not_taken_for_nothing() {
        for field in ["Basic", "Basic !", "Basic dTpw=", "Basic dQ==", "Digest x", "Bearer ", "Bearer a b", "x"] {
            assert!(of(field, "/") == Shown::Malformed, "{field}");
        }
        let long = "p".repeat(MAX_PASSWORD_BYTES + 1);
        for field in
            [basic(&format!("u:{long}")), basic("u:\np"), format!("Bearer {}", "t".repeat(MAX_TOKEN_BYTES + 1))]
        {
            assert!(of(&field, "/") == Shown::Malformed);
        }
    }

    #[test]
    fn a_target_loses_its_tickets_and_nothing_else() {
        for (target, left) in [
            ("/r", "/r"),
            ("/r?", "/r?"),
            ("/r?ticket=a", "/r"),
            ("/r?offset=1&ticket=a&where=%7B%7D", "/r?offset=1&where=%7B%7D"),
            ("/r?ticket=a&ticket=b&x?ticket=c", "/r?x?ticket=c"),
            ("/ticket=a", "/ticket=a"),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_ticket(target.as_bytes())), left, "{target}");
        }
        assert!(of("", "/r?ticket=a&ticket=b") == Shown::Nothing);
    }

    #[test]
    fn fingerprints_tell_credentials_apart() {
        let password =
            |user: &str, password: &str| Credential::Password { user: user.to_owned(), password: password.to_owned() };
        let salt = [7; 32];
        let some = [
            password("ab", "c"),
            password("a", "bc"),
            password("abc", ""),
            Credential::Key("abc".to_owned()),
            Credential::Token("abc".to_owned()),
        ];
        for (at, one) in some.iter().enumerate() {
            for other in &some[at + 1..] {
                assert_ne!(one.fingerprint(&salt), other.fingerprint(&salt));
            }
            assert_eq!(one.fingerprint(&salt), one.clone().fingerprint(&salt));
            assert_ne!(one.fingerprint(&salt), one.fingerprint(&[8; 32]));
        }
    }
}
