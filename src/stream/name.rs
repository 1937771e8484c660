//! Which names a durable stream may have: its name is also the name of its directory.

/// The longest name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 128;

/// Files of the journal and the registry, which lie beside the directories of the streams.
const RESERVED: [&str; 7] = [
    "journal.db",
    "journal.db-wal",
    "journal.db-shm",
    "journal.lock",
    "registry.db",
    "registry.db-wal",
    "registry.db-shm",
];

/// Why a name cannot be that of a durable stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The unnamed stream.
    #[error("a durable stream needs a name, because its directory is called by it; give it one or set durable = false")]
    Empty,
    /// Longer than [`MAX_NAME_BYTES`].
    #[error("the stream name {name:?} has {bytes} bytes; a durable stream's name has at most {MAX_NAME_BYTES}")]
    TooLong {
        /// The name.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// A leading dot, which would hide the directory or leave it.
    #[error("the stream name {name:?} starts with a dot; the directory of a durable stream must not")]
    LeadingDot {
        /// The name.
        name: String,
    },
    /// The name of a file that the broker keeps in the same directory.
    #[error("the stream name {name:?} is taken by a file of the broker; call the stream something else")]
    Reserved {
        /// The name.
        name: String,
    },
    /// A character that a directory name or a URI in the metadata cannot carry.
    #[error("the stream name {name:?} contains {character:?}, which the name of a durable stream must not")]
    Character {
        /// The name.
        name: String,
        /// The first character that is refused.
        character: char,
    },
}

/// Checks that a durable stream may be called `name`: 1 to 128 bytes of UTF-8, no leading dot, no `/`, `%`,
/// `"` and no control characters.
///
/// # Errors
/// The first rule that `name` breaks.
pub fn check_durable_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong { name: name.to_owned(), bytes: name.len() });
    }
    if name.starts_with('.') {
        return Err(NameError::LeadingDot { name: name.to_owned() });
    }
    if RESERVED.contains(&name) {
        return Err(NameError::Reserved { name: name.to_owned() });
    }
    match name.chars().find(|character| matches!(character, '/' | '%' | '"') || character.is_control()) {
        Some(character) => Err(NameError::Character { name: name.to_owned(), character }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_can_be_directories_pass_and_others_say_why_not() {
        for good in ["trades", "a b", "é", "x.y", "-", "_", &"n".repeat(128)] {
            assert_eq!(check_durable_name(good), Ok(()), "{good}");
        }
        assert_eq!(check_durable_name(""), Err(NameError::Empty));
        assert!(matches!(check_durable_name(&"é".repeat(65)), Err(NameError::TooLong { bytes: 130, .. })));
        for dotted in [".", "..", ".hidden"] {
            assert!(matches!(check_durable_name(dotted), Err(NameError::LeadingDot { .. })), "{dotted}");
        }
        assert!(matches!(check_durable_name("journal.db"), Err(NameError::Reserved { .. })));
        for (bad, refused) in
            [("a/b", '/'), ("a%b", '%'), ("a\"b", '"'), ("a\0b", '\0'), ("a\nb", '\n'), ("a\u{85}", '\u{85}')]
        {
            assert_eq!(check_durable_name(bad), Err(NameError::Character { name: bad.to_owned(), character: refused }));
        }
    }
}
