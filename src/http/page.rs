//! The console page: one self-contained document, embedded in the binary.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, Response, StatusCode};

use super::errors::{json, typed};

/// The page's skeleton, with a place for each of the two below and for the nonce that admits them.
const SKELETON: &str = include_str!("page/console.html");
const STYLE: &str = include_str!("page/console.css");
/// The script, in the order its parts need each other.
const SCRIPT: &str = concat!(
    include_str!("page/format.js"),
    include_str!("page/session.js"),
    include_str!("page/socket.js"),
    include_str!("page/chart.js"),
    include_str!("page/tables.js"),
    include_str!("page/tail.js"),
    include_str!("page/connect.js"),
    include_str!("page/rows.js"),
    include_str!("page/publish.js"),
    include_str!("page/browse.js"),
    include_str!("page/lake.js"),
    include_str!("page/control.js"),
    include_str!("page/access.js"),
    include_str!("page/main.js"),
);

/// The page. Its policy admits this one style, this one script and WebSockets to where it came from, nothing else.
/// `managed` says whether streams can be declared at run time.
pub fn console(managed: bool) -> Response<Body> {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let Ok(policy) = HeaderValue::from_str(&policy) else {
        return json(StatusCode::INTERNAL_SERVER_ERROR, r#"{"detail":"Internal Server Error"}"#);
    };
    let mut response = typed(StatusCode::OK, "text/html; charset=utf-8", document(&nonce, managed));
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    response
}

fn document(nonce: &str, managed: bool) -> String {
    SKELETON
        .replace("{{managed}}", if managed { "yes" } else { "no" })
        .replace("{{nonce}}", nonce)
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replacen("{{style}}", STYLE, 1)
        .replacen("{{script}}", SCRIPT, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_asks_for_nothing_from_elsewhere() {
        let page = document("abc", true);
        for left in ["{{managed}}", "{{style}}", "{{script}}", "{{nonce}}", "{{version}}"] {
            assert!(!page.contains(left), "{left} was not filled in");
        }
        for outside in ["http://", "https://", "//cdn", "@import", "url(http"] {
            let found = page.replace("http://www.w3.org/2000/svg", "").replace("http://${", "");
            assert!(!found.contains(outside), "the page mentions {outside}");
        }
        assert_eq!(page.matches("nonce=\"abc\"").count(), 2);
        assert_eq!(page.matches("</script>").count(), 1, "the script must not hold its own end tag");
    }

    #[test]
    fn the_policy_admits_only_what_carries_the_nonce_of_this_answer() {
        let (one, two) = (console(true), console(false));
        let policy =
            |response: &Response<Body>| response.headers()[CONTENT_SECURITY_POLICY].to_str().expect("ascii").to_owned();
        assert!(policy(&one).starts_with("default-src 'none'; script-src 'nonce-"));
        assert!(!policy(&one).contains("unsafe"));
        assert_ne!(policy(&one), policy(&two));
    }
}
