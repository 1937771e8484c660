//! Where a stream's metadata documents are, as URIs for the greeting.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::files::Places;

/// The URIs of the plain copy and of the version hint of stream `name` below the absolute path `root`: what
/// the greeting calls `metadata` and `metadata_hint` (wire.md section 2.1).
#[must_use]
pub fn uris(root: &Path, name: &str) -> (String, String) {
    let places = Places::new(root, name);
    (file_uri(&places.plain), file_uri(&places.hint))
}

/// `path` as a `file://` URI; every byte but unreserved characters and slashes is percent-encoded.
fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => write!(uri, "%{byte:02X}").unwrap_or_default(),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_absolute_and_percent_encoded() {
        let (metadata, hint) = uris(Path::new("/srv/data"), "trades");
        assert_eq!(metadata, "file:///srv/data/trades/trades.metadata.json");
        assert_eq!(hint, "file:///srv/data/trades/trades.metadata/version-hint.text");
        let (metadata, _) = uris(Path::new("/srv/a b"), "é#?");
        assert_eq!(metadata, "file:///srv/a%20b/%C3%A9%23%3F/%C3%A9%23%3F.metadata.json");
    }
}
