//! Names of a table's files. Every name is new, but for the hint; readers keep what they read by name.

use sha2::{Digest as _, Sha256};
use uuid::{Builder, Uuid};

/// The directory of a table's metadata.
pub(super) fn metadata_directory(location: &str) -> String {
    format!("{location}/metadata")
}

/// The file that names the current version.
pub(super) fn hint(location: &str) -> String {
    format!("{location}/metadata/version-hint.text")
}

/// A version of the metadata by its stem, which is what the hint holds.
pub(super) fn metadata(location: &str, stem: &str) -> String {
    format!("{location}/metadata/{stem}.metadata.json")
}

/// The stem in the file name or URI of a version.
pub(super) fn stem_of(uri: &str) -> Option<&str> {
    uri.rsplit('/').next()?.strip_suffix(".metadata.json").filter(|stem| is_stem(stem))
}

/// Whether a hint may hold it.
pub(super) fn is_stem(stem: &str) -> bool {
    !stem.is_empty() && stem.len() <= 200 && !stem.starts_with('.') && !stem.contains(['/', '\\', '\0', '\n'])
}

/// The number of a version: of `00012-<uuid>` 12, of `v12` 12; 0 if it has none.
pub(super) fn number(stem: &str) -> u64 {
    let digits = stem.strip_prefix('v').unwrap_or(stem);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// The stem of a table's first version.
pub(super) fn first_stem() -> String {
    format!("00000-{}", Uuid::new_v4())
}

/// The stem of the version after `stem`. It is the same for all who want to write that version, so the store lets one
/// of them have it, and who finds only the older one knows where to look for the newer.
pub(super) fn next_stem(table: Uuid, stem: &str) -> String {
    let next = number(stem) + 1;
    let digest =
        Sha256::new().chain_update(table.as_bytes()).chain_update(stem).chain_update(next.to_be_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    format!("{next:05}-{}", Builder::from_random_bytes(bytes).into_uuid())
}

/// A new manifest.
pub(super) fn manifest(location: &str, attempt: Uuid, number: usize) -> String {
    format!("{location}/metadata/{attempt}-m{number}.avro")
}

/// A new manifest list.
pub(super) fn manifest_list(location: &str, snapshot_id: i64, attempt: Uuid) -> String {
    format!("{location}/metadata/snap-{snapshot_id}-0-{attempt}.avro")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_version_has_one_name() {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let stem = "00009-11111111-1111-4111-8111-111111111111";
        let next = next_stem(one, stem);
        assert_eq!(next, next_stem(one, stem));
        assert!(next.starts_with("00010-"), "{next}");
        assert_eq!(next.len(), 42);
        assert_ne!(next, next_stem(two, stem));
        assert_ne!(next, next_stem(one, "00009-21111111-1111-4111-8111-111111111111"));
        assert!(next_stem(one, &next).starts_with("00011-"));
        assert!(next_stem(one, "99999-x").starts_with("100000-"));
    }

    #[test]
    fn stems_are_recognized() {
        assert_eq!(stem_of("s3://b/t/metadata/00003-x.metadata.json"), Some("00003-x"));
        assert_eq!(stem_of("00003-x.json"), None);
        assert_eq!((number("00003-x"), number("v7"), number("x")), (3, 7, 0));
        for stem in ["", "../x", "a\nb", ".x", &"x".repeat(201)] {
            assert!(!is_stem(stem), "{stem:?}");
        }
    }
}
