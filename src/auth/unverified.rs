//! What a JSON Web Token says before anybody has checked it: how it is signed, and by whom.

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;
use serde_json::Value;

/// The head of a token.
#[derive(Debug, PartialEq, Deserialize)]
pub struct Header {
    /// The algorithm of the signature.
    pub alg: String,
    /// The key's name.
    pub kid: Option<String>,
    /// What whoever reads the token has to know about; nothing of it is known here.
    pub crit: Option<Value>,
}

/// The head of a token and the issuer that it names; `None` if it is no token of three parts.
#[must_use]
pub fn read(token: &str) -> Option<(Header, String)> {
    let mut parts = token.split('.');
    let (header, claims, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
    let header = serde_json::from_slice(&BASE64URL_NOPAD.decode(header.as_bytes()).ok()?).ok()?;
    let claims: Value = serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).ok()?).ok()?;
    Some((header, claims.get("iss")?.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_three_parts_of_which_two_are_json() {
        let part = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let (header, claims) = (part(r#"{"alg":"ES256","kid":"k"}"#), part(r#"{"iss":"them"}"#));
        let (read_header, issuer) = read(&format!("{header}.{claims}.x")).expect("a token");
        assert_eq!(
            (read_header.alg.as_str(), read_header.kid.as_deref(), issuer.as_str()),
            ("ES256", Some("k"), "them")
        );
        for token in [
            String::new(),
            format!("{header}.{claims}"),
            format!("{header}.{claims}.x.y"),
            format!("{claims}.{claims}.x"),
            format!("{header}.{header}.x"),
            format!("{header}=.{claims}.x"),
            format!("{header}.{}.x", part(r#"{"iss":1}"#)),
        ] {
            assert!(read(&token).is_none(), "{token}");
        }
    }
}
