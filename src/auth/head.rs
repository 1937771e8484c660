//! The parts of a request that say who asks.

use std::net::IpAddr;

/// A request as the gate sees it. It borrows what was sent; nothing in it has been checked.
#[derive(Clone, Copy, Default)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a str,
    /// The target as sent: path and query, still percent-encoded.
    pub target: &'a [u8],
    /// The field `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// The field `Origin`: where a browser's page came from.
    pub origin: Option<&'a [u8]>,
    /// The field `Host`.
    pub host: Option<&'a [u8]>,
    /// The last of the fields `X-Forwarded-For`.
    pub forwarded_for: Option<&'a [u8]>,
    /// Whether a field that must be there once at most is there twice.
    pub ambiguous: bool,
    /// Where the request came from, if that is known.
    pub peer: Option<IpAddr>,
}

impl<'a> RequestHead<'a> {
    /// A request with its fields in the order sent.
    #[must_use]
    pub fn new(
        method: &'a str,
        target: &'a [u8],
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
        peer: Option<IpAddr>,
    ) -> Self {
        let mut head = Self { method, target, peer, ..Self::default() };
        for (name, value) in fields {
            let value = value.trim_ascii();
            let slot = match name.len() {
                13 if name.eq_ignore_ascii_case("authorization") => &mut head.authorization,
                6 if name.eq_ignore_ascii_case("origin") => &mut head.origin,
                4 if name.eq_ignore_ascii_case("host") => &mut head.host,
                15 if name.eq_ignore_ascii_case("x-forwarded-for") => {
                    head.forwarded_for = Some(value);
                    continue;
                }
                _ => continue,
            };
            head.ambiguous |= slot.replace(value).is_some();
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_any_case_and_doubles_noticed() {
        let fields =
            [("AUTHORIZATION", &b" Basic eA== "[..]), ("Host", b"h"), ("X-Forwarded-For", b"1"), ("other", b"")];
        let head = RequestHead::new("GET", b"/r", fields.into_iter(), None);
        assert_eq!(
            (head.authorization, head.host, head.forwarded_for),
            (Some(&b"Basic eA=="[..]), Some(&b"h"[..]), Some(&b"1"[..]))
        );
        assert!(!head.ambiguous && head.origin.is_none());
        let twice = fields.into_iter().chain([("authorization", &b"Basic eQ=="[..])]);
        assert!(RequestHead::new("GET", b"/r", twice, None).ambiguous);
        let forwarded = [("x-forwarded-for", &b"1"[..]), ("x-forwarded-for", b"2")];
        assert_eq!(RequestHead::new("GET", b"/", forwarded.into_iter(), None).forwarded_for, Some(&b"2"[..]));
    }
}
