//! Pages of other sites: a browser sends their calls with the credentials it has for us, and says where they came from.

use super::head::RequestHead;

/// Whether a request may come from where it says. Only browsers say so, and they do not lie about it.
#[must_use]
pub fn is_allowed(head: &RequestHead<'_>, allowed: &[String]) -> bool {
    let Some(origin) = head.origin else { return true };
    if allowed.iter().any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin)) {
        return true;
    }
    let rest = origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://"));
    matches!((rest, head.host), (Some(rest), Some(host)) if !rest.is_empty() && rest.eq_ignore_ascii_case(host))
}

/// Whether a request that came over loopback really is this host's own: no proxy sent it on, and no page of another
/// site, whatever name that site gives to this host.
#[must_use]
pub fn is_local(head: &RequestHead<'_>) -> bool {
    let names_us = |authority: &[u8]| {
        let host = match authority.iter().rposition(|byte| *byte == b':') {
            Some(at) if !authority.ends_with(b"]") => &authority[..at],
            _ => authority,
        };
        host.eq_ignore_ascii_case(b"localhost") || matches!(host, b"127.0.0.1" | b"[::1]")
    };
    head.peer.is_some_and(|peer| peer.to_canonical().is_loopback())
        && head.forwarded_for.is_none()
        && head.host.is_some_and(names_us)
        && is_allowed(head, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head<'a>(origin: &'a str, host: &'a str) -> RequestHead<'a> {
        let fields = [("origin", origin.as_bytes()), ("host", host.as_bytes())];
        RequestHead::new("GET", b"/", fields.into_iter().filter(|(_, value)| !value.is_empty()), None)
    }

    #[test]
    fn pages_of_ours_and_of_the_list_may_call() {
        let list = ["https://app.example".to_owned()];
        for (origin, host, allowed) in [
            ("", "h:1", true),
            ("http://h:1", "h:1", true),
            ("https://H:1", "h:1", true),
            ("https://app.example", "h:1", true),
            ("https://APP.example", "h:1", true),
            ("https://app.example.evil", "h:1", false),
            ("https://app.example:8443", "h:1", false),
            ("http://app.example", "h:1", false),
            ("http://h", "h:1", false),
            ("null", "h:1", false),
            ("file://", "", false),
            ("http://h:1", "", false),
            ("http://", "h:1", false),
        ] {
            assert_eq!(is_allowed(&head(origin, host), &list), allowed, "{origin} {host}");
        }
    }

    #[test]
    fn this_host_is_known_by_its_own_names_only() {
        for (origin, host, peer, local) in [
            ("", "localhost:8765", "127.0.0.1", true),
            ("", "[::1]:8765", "::1", true),
            ("", "127.0.0.1", "::ffff:127.0.0.1", true),
            ("http://localhost:8765", "localhost:8765", "127.0.0.1", true),
            ("http://evil.example", "localhost:8765", "127.0.0.1", false),
            ("http://rebound.example", "rebound.example", "127.0.0.1", false),
            ("", "rebound.example", "127.0.0.1", false),
            ("", "localhost.evil", "127.0.0.1", false),
            ("", "", "127.0.0.1", false),
            ("", "localhost", "10.0.0.1", false),
        ] {
            let mut head = head(origin, host);
            head.peer = peer.parse().ok();
            assert_eq!(is_local(&head), local, "{origin} {host} {peer}");
            head.forwarded_for = Some(b"10.0.0.1");
            assert!(!is_local(&head));
        }
    }
}
