//! What streams of the batch API are called (docs/batches.md, "Streams").

/// The longest name.
pub const MAX_NAME_BYTES: usize = 128;

const PREFIX: &str = "str_";

/// Whether a stream may be created under this name: a letter or digit, then letters, digits, `_`, `.` and `-`, 128
/// characters at most, and nothing that looks like an id.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    (1..=MAX_NAME_BYTES).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
        && uuid_of(name).is_none()
}

/// The id of a stream, from its UUID.
#[must_use]
pub fn id_of(stream_id: &str) -> String {
    let mut id = String::with_capacity(36);
    id.push_str(PREFIX);
    id.extend(stream_id.chars().filter(|character| *character != '-'));
    id
}

/// The UUID of the stream with this id; `None` if it is no id.
#[must_use]
pub fn uuid_of(id: &str) -> Option<String> {
    let digits = id.strip_prefix(PREFIX)?;
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != 32 || !digits.bytes().all(lower) {
        return None;
    }
    uuid::Uuid::parse_str(digits).ok().map(|uuid| uuid.hyphenated().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_grammar_of_the_contract() {
        for good in ["a", "0", "Events.v1_x-y", &"n".repeat(128)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".a", "_a", "-a", "a b", "a/b", "é", "a%", &"n".repeat(129)] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(is_name("str_5") && !is_name("str_79c6ab497ea5482d8bb09eef7a4b4b14"));
    }

    #[test]
    fn an_id_is_the_uuid_without_dashes() {
        let uuid = "79c6ab49-7ea5-482d-8bb0-9eef7a4b4b14";
        let id = id_of(uuid);
        assert_eq!(id, "str_79c6ab497ea5482d8bb09eef7a4b4b14");
        assert_eq!(uuid_of(&id).as_deref(), Some(uuid));
        for bad in ["79c6ab497ea5482d8bb09eef7a4b4b14", "str_79c6", "str_79C6ab497ea5482d8bb09eef7a4b4b14"] {
            assert_eq!(uuid_of(bad), None, "{bad}");
        }
    }
}
