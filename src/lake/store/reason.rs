//! What went wrong at S3, told in a line that gives no secret away.

use std::error::Error as _;

use super::error::StoreError;

/// What was being done, which decides what a failure leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Read,
    List,
    Delete,
    /// May have taken effect although it failed.
    Write,
}

/// Translates an error of the S3 client. `secrets` are cut out wherever they occur.
pub(super) fn translate(error: &object_store::Error, attempt: Attempt, uri: &str, secrets: &[String]) -> StoreError {
    use object_store::Error;
    let uri = uri.to_owned();
    let full = full_text(error);
    let why = scrub(&brief(&full), secrets);
    match error {
        _ if full.contains("NoSuchBucket") => StoreError::NoBucket { uri },
        Error::NotFound { .. } => StoreError::NotFound { uri },
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreError::Denied { uri, why },
        Error::UnknownConfigurationKey { .. } | Error::NotImplemented { .. } | Error::NotSupported { .. } => {
            StoreError::Config { why }
        }
        Error::InvalidPath { .. } => StoreError::Uri { uri, why: "S3 has no such key" },
        _ if attempt == Attempt::Write && !refused(&full) => StoreError::Ambiguous { uri, why },
        _ => {
            let action = match attempt {
                Attempt::Read => "read",
                Attempt::List => "list",
                Attempt::Delete => "delete",
                Attempt::Write => "write",
            };
            StoreError::Unavailable { action, uri, why }
        }
    }
}

/// Whether the store answered that it did not do it: 4xx, but for the two that a proxy gives when it waited too long.
fn refused(text: &str) -> bool {
    let Some((_, after)) = text.split_once("status code: ") else { return false };
    let status: String = after.chars().take_while(char::is_ascii_digit).collect();
    matches!(status.parse(), Ok(400..=499)) && !matches!(status.as_str(), "408" | "499")
}

fn full_text(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

/// One line of it. Of an XML answer only code and message, because the rest repeats the signed request.
fn brief(text: &str) -> String {
    let mut brief = match text.find("<?xml").or_else(|| text.find("<Error")).or_else(|| text.find('<')) {
        Some(at) => {
            let mut brief = text[..at].trim_end().trim_end_matches(':').to_owned();
            for tag in ["Code", "Message"] {
                if let Some(found) = element(&text[at..], tag) {
                    brief.push_str(": ");
                    brief.push_str(found);
                }
            }
            brief
        }
        None => text.to_owned(),
    };
    brief = brief.split_whitespace().collect::<Vec<_>>().join(" ");
    if brief.len() > 400 {
        let end = (0..=400).rev().find(|at| brief.is_char_boundary(*at)).unwrap_or(0);
        brief.truncate(end);
        brief.push('…');
    }
    brief
}

fn element<'a>(xml: &'a str, tag: &str) -> Option<&'a str> {
    let (_, after) = xml.split_once(&format!("<{tag}>"))?;
    after.split_once(&format!("</{tag}>")).map(|(text, _)| text)
}

fn scrub(text: &str, secrets: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret.as_str(), "***");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn answers_are_brief_and_without_secrets() {
        let error = object_store::Error::PermissionDenied {
            path: "k".to_owned(),
            source: "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?><Error><Code>\
                     SignatureDoesNotMatch</Code><Message>wrong for AKIAX</Message><StringToSign>AWS4 hidden\
                     </StringToSign></Error>"
                .into(),
        };
        let told = translate(&error, Attempt::Write, "s3://b/k", &["AKIAX".to_owned(), String::new()]).to_string();
        assert!(told.contains("SignatureDoesNotMatch: wrong for ***"), "{told}");
        assert!(!told.contains("hidden") && !told.contains("AKIAX"), "{told}");
    }

    #[test]
    fn a_lost_answer_to_a_write_is_ambiguous_and_a_refusal_is_not() {
        let lost = translate(&generic("HTTP error: operation timed out"), Attempt::Write, "s3://b/k", &[]);
        assert!(lost.is_ambiguous() && lost.is_transient(), "{lost}");
        let throttled = generic("Server returned non-2xx status code: 503 Slow Down: ");
        assert!(translate(&throttled, Attempt::Write, "s3://b/k", &[]).is_ambiguous());
        let bad = generic("Server returned non-2xx status code: 400 Bad Request: ");
        assert!(matches!(translate(&bad, Attempt::Write, "u", &[]), StoreError::Unavailable { action: "write", .. }));
        assert!(matches!(translate(&throttled, Attempt::Read, "u", &[]), StoreError::Unavailable { .. }));
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let error = object_store::Error::NotFound {
            path: "k".to_owned(),
            source: "404: <Error><Code>NoSuchBucket</Code></Error>".into(),
        };
        assert!(matches!(translate(&error, Attempt::Read, "u", &[]), StoreError::NoBucket { .. }));
        let error = object_store::Error::NotFound { path: "k".to_owned(), source: "404: NoSuchKey".into() };
        assert!(translate(&error, Attempt::Read, "u", &[]).is_not_found());
    }
}
