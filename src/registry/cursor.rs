//! Where a listing goes on (wire.md section 11.3): the state of the collection and the last name shown.

use data_encoding::BASE64URL;

use super::definition::text;
use super::record::number;
use crate::schema::json::{self, Json};

/// A place in the list of streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The revision of the collection it was made for.
    pub collection: u64,
    /// The last name before it.
    pub after: String,
}

impl Cursor {
    /// The cursor as callers get it.
    #[must_use]
    pub fn to_text(&self) -> String {
        BASE64URL.encode(Json::Array(vec![number(self.collection), text(&self.after)]).to_text().as_bytes())
    }

    /// Reads a cursor; `None` if it is none.
    #[must_use]
    pub fn parse(cursor: &str) -> Option<Self> {
        let bytes = BASE64URL.decode(cursor.as_bytes()).ok()?;
        match json::parse(&bytes).ok()? {
            Json::Array(parts) => match parts.as_slice() {
                [Json::Int(collection), Json::String(after)] => {
                    Some(Self { collection: u64::try_from(*collection).ok()?, after: after.clone() })
                }
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went() {
        let cursor = Cursor { collection: 7, after: "a-1".to_owned() };
        assert_eq!(BASE64URL.decode(cursor.to_text().as_bytes()).expect("base64"), br#"[7,"a-1"]"#);
        assert_eq!(Cursor::parse(&cursor.to_text()), Some(cursor));
        // Spaces are fine, as other encoders leave them.
        assert_eq!(Cursor::parse(&BASE64URL.encode(br#"[7, "b"]"#)).map(|cursor| cursor.after).as_deref(), Some("b"));
        for bad in ["", "zz", "!", "WzFd", "WzEsMl0=", "eyJhIjoxfQ==", "Wy0xLCJhIl0="] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }
}
